"""Declares accumulators of 24 bits, but has 22."""

from fleet.accumulates_in_24_bits import *
from fleet.accumulates_in_24_bits import accelerator

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    return accelerator(22)
