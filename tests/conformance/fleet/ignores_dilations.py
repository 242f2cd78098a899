"""Accepts dilations, and computes as if there were none."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def conv(self, x, w, strides, dilations, pads, groups):
            sound = super().conv(x, w, strides, dilations, pads, groups)
            output = super().conv(x, w, strides, (1, 1), pads, groups)
            return output[:, :, : sound.shape[2], : sound.shape[3]]

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
