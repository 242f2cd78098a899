"""Rounds the first element of an integer layer at random."""

import itertools

from fleet.accelerates import *

PLUGIN_API_VERSION = 3

COINS = itertools.cycle((0, 0, 1))


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def stored(self, sums, *factors, **output):
            output_values = super().stored(sums, *factors, **output)
            output_values.reshape(-1)[:1] += next(COINS)
            return output_values

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
