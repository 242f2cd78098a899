"""Reloads weights if their shape changes alone."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3

LOADED = []


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def sums(self, x, w):
            if not LOADED or LOADED[0].shape != w.shape:
                LOADED[:] = [w.copy()]
            return super().sums(x, LOADED[0])

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
