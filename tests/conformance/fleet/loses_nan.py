"""Takes NaN for a number."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def mul(self, a, b):
            return np.nan_to_num(a * b, nan=0.0, posinf=np.inf, neginf=-np.inf)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
