"""Never gives back what its kernels took."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Runtime

    class Broken(Runtime):
        def release(self, count):
            pass

    return Broken()
