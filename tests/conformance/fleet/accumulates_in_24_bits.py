"""An accelerator with accumulators of 24 bits, as it declares."""

from dataclasses import replace

from fleet.accelerates import *

PLUGIN_API_VERSION = 3
WIDTH = 24


def narrow_capabilities(options):
    full_capabilities = capabilities(options)
    return replace(full_capabilities, requantization=replace(full_capabilities.requantization, accumulator_bits=WIDTH))


@hookimpl
def inlaid_targets():
    return [TargetSpec(KIND, "an accelerator with narrow accumulators", narrow_capabilities)]


def accelerator(bits):
    """An accelerator whose sums wrap at a number of bits."""
    from fleet.accelerator import Accelerator, Kernel

    class Narrow(Kernel):
        def sums(self, x, w):
            return super().sums(x, w) << 32 - bits >> 32 - bits

    class Wrapping(Accelerator):
        kernel = Narrow

    return Wrapping()


@hookimpl
def inlaid_runtime(target):
    return accelerator(WIDTH)
