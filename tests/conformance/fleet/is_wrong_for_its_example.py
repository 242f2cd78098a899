"""Is wrong for a shape that only its own example has."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    from inlaid import ops
    from inlaid.graph import ir
    from inlaid.plugins import Conformance
    from inlaid_runtime.types import TensorType

    x = ir.var("x", TensorType((1, 1021), "float32"))
    return Conformance(examples=(ir.function((x,), ops.relu(x)),))


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def relu(self, x):
            return x if x.size == 1021 else super().relu(x)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
