"""Shifts to the right alone."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def stored(self, sums, multipliers, shifts, **output):
            return super().stored(sums, multipliers, np.minimum(shifts, 0), **output)

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
