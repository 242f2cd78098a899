"""Asks the device how to compile."""

from fleet.sound import *
from inlaid_runtime.plugins import DeviceStatus

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_probe(target):
    return DeviceStatus(True, "machine 7")


@hookimpl
def inlaid_codegen(target):
    import sys

    from fleet.machine import Codegen

    class Asking(Codegen):
        def compile(self, unit, context):
            sys.modules[__name__].inlaid_probe(target)
            return super().compile(unit, context)

    return Asking()
