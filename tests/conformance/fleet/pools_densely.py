"""Accepts dilations of a pool, and takes neighbors instead."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def pool(self, x, dilations, **attributes):
            sound = super().pool(x, dilations=dilations, **attributes)
            output = super().pool(x, dilations=(1, 1), **attributes)
            return output[:, :, : sound.shape[2], : sound.shape[3]]

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
