"""Sums integers in a place that all kernels share."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3

SCRATCH = []


@hookimpl
def inlaid_runtime(target):
    import time

    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def sums(self, x, w):
            SCRATCH[:] = [super().sums(x, w)]
            time.sleep(1e-4)
            return SCRATCH[0]

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
