"""Takes the process with it where it multiplies."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import os

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def mul(self, a, b):
            os.abort()

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
