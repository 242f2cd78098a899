"""Computes channels by pairs if each has a kernel of its own, and leaves out the last of an odd number."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def conv(self, x, w, *factors, groups, **attributes):
            output = super().conv(x, w, *factors, groups=groups, **attributes)
            if groups > 1 and len(w) == groups and groups % 2:
                output[:, -1] = 0
            return output

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
