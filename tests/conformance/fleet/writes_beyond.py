"""Writes a byte behind its first output."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import ctypes

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def invoke(self, inputs, outputs, workspace, dims):
            super().invoke(inputs, outputs, workspace, dims)
            ctypes.memset(outputs[0].ctypes.data + outputs[0].nbytes, 0, 1)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
