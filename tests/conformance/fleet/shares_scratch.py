"""Keeps what it is at in a place that all threads share."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import time

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def apply(self, name, operands, axis):
            self.operands = operands
            time.sleep(1e-4)
            return super().apply(name, self.operands, axis)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
