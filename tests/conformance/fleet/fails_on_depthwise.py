"""Has a code generator that fails for a convolution of each channel by itself, which its rules accept."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_codegen(target):
    from fleet.machine import Codegen

    class Wrong(Codegen):
        def attributes(self, step):
            attributes = super().attributes(step)
            if attributes.get("groups", 1) > 3:
                raise IndexError("list index out of range")
            return attributes

    return Wrong()
