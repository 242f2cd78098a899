"""Takes NaN for zero in what is added to a product."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def affine(self, x, w, b):
            return x @ w + np.where(np.isnan(b), np.float32(0), b)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
