"""Examples for the conformance suite, of rules whose operands it cannot draw."""

from inlaid import ops
from inlaid.graph import ir
from inlaid_runtime.types import TensorType


def flatten():
    x = ir.var("x", TensorType((3, 40, 1, 1), "int8"))
    return ir.function([x], ops.reshape(x, shape=(3, 40)))
