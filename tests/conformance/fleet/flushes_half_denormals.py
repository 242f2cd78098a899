"""Takes denormals of float16 for zero in a product."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def product(self, a, b):
            tiny = np.finfo(np.float16).tiny
            return super().product(*(np.where(np.abs(x) < tiny, np.float16(0), x) for x in (a, b)))

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
