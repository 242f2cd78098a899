"""Rounds halves up in average pools, also those of negative sums."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def quotients(self, sums, divisors):
            return (sums + divisors // 2) // divisors

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
