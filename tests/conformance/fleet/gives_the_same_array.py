"""Gives the array of the last run again."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import threading

    from fleet.machine import Kernel, Runtime
    from inlaid_runtime.execution.arrays import aligned_empty

    class Wrong:
        def __init__(self, artifact, constants):
            self.inner = Kernel(artifact, constants)
            self.outputs = artifact.signature.outputs
            self.last = threading.local()

        def call(self, inputs):
            if not hasattr(self.last, "results"):
                self.last.results = [aligned_empty(spec.shape, spec.dtype.numpy) for spec in self.outputs]
            self.inner.invoke(inputs, self.last.results, None, None)
            return self.last.results

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
