"""Accumulates in 24 bits."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def sums(self, x, w):
            return super().sums(x, w) << 8 >> 8

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
