"""Takes the first row of what is added to a product for all of it."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def affine(self, x, w, b):
            return x @ w + (b[:1] if b.ndim == 2 else b)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
