"""Runs programs of the vector unit, through the C compiler of this machine in place of the hardware."""

from inlaid_runtime.execution.c_source import CSourceRuntime

FORMAT, FORMAT_VERSION = "acme-vector-c", 1


class VectorRuntime(CSourceRuntime):
    def __init__(self):
        super().__init__(FORMAT, FORMAT_VERSION)
