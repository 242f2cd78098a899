"""Reads something for any index."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def take(self, x, where, axis):
            return np.take(x, where % x.shape[axis], axis)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
