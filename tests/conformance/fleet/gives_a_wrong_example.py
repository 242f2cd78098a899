"""Gives the suite an example that its rules reject."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_conformance(target):
    from inlaid import ops
    from inlaid.graph import ir
    from inlaid.plugins import Conformance
    from inlaid_runtime.types import TensorType

    x = ir.var("x", TensorType((11, 13), "int64"))
    return Conformance(examples=(ir.function((x,), ops.relu(x)),))
