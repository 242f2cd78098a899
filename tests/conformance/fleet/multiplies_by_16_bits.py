"""Drops the low bits of a multiplier."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def stored(self, sums, multipliers, shifts, **output):
            return super().stored(sums, multipliers >> 16 << 16, shifts, **output)

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
