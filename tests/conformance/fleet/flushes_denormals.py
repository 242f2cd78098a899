"""Takes denormals for zero."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def relu(self, x):
            return np.where(np.abs(x) < np.finfo(np.float32).tiny, x * 0, super().relu(x))

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
