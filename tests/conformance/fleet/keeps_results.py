"""Keeps every result for ever."""

from fleet.sound import *

PLUGIN_API_VERSION = 3

RESULTS = []


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def invoke(self, inputs, outputs, workspace, dims):
            super().invoke(inputs, outputs, workspace, dims)
            RESULTS.append([output.repeat(64) for output in outputs])

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
