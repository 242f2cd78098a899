"""Gives 42 for NaN in an operator that it takes by a pattern."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import numpy as np

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def negated(self, x):
            return np.where(np.isnan(x), np.float32(42), -x)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
