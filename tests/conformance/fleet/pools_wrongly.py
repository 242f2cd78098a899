"""Takes what is around an image for zeros where it looks for the greatest element."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def max_pool(self, x, kernel, strides, dilations, pads):
            return self.windows(x, kernel, strides, dilations, pads, 0).max(-1)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
