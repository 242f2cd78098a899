"""Rounds halves up where a layer asks for halves away from zero."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def stored(self, sums, *factors, rounding, **output):
            return super().stored(sums, *factors, rounding="once" if rounding == "once_away" else rounding, **output)

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
