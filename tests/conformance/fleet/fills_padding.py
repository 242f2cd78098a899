"""Leaves sums of lanes without a channel in the padding of a result."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def laned(self, value):
            storage = super().laned(value)
            channels = value.shape[1] % 16
            if channels:
                storage[:, -1, ..., channels:] = 1
            return storage

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
