"""Is wrong for any rank but two in an operator that it takes by a pattern."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def negated(self, x):
            return -x if x.ndim == 2 else x

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
