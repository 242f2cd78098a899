"""Reads the rows of the second tile one row too early."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def sums(self, x, w):
            return super().sums(np.concatenate([x[:16], x[15:-1]]), w)

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
