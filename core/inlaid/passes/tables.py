"""Replace element-wise functions of one 8-bit value by tables of 256 entries.

Between two matrix products, an 8-bit quantized model applies element-wise operators to the dequantized value of one byte:

    dequantize -> div -> erf -> quantize -> dequantize -> add -> quantize    =>    take(table, x)

A chain of any length has at most 256 distinct results, which are computed at compile time.
"""

from __future__ import annotations

import numpy as np

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Expr, Function, Var, call, constant, function, var
from inlaid.graph.operator import Operator
from inlaid.graph.transform import transform_function
from inlaid.ops.conversion import bitcast
from inlaid.ops.index import take
from inlaid.ops.quantized import quantize
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType


@dataclass(frozen=True)
class _ByteFunction:
    """An element-wise function of `source`, an 8-bit tensor. `result` is the function applied to `byte`, a variable of shape (256,)
    that holds every byte value. `expensive`: the function has an expensive operator. `stored`: the number of `quantize` operators
    in it."""

    source: Expr
    byte: Var
    result: Expr
    expensive: bool
    stored: int = 0


def tabulate(target: Function, cheap: bool = False, repeated: bool = False, supports: Supports = supports_everything) -> Function:
    """Replace chains of element-wise operators from one 8-bit tensor to another by table look-ups.

    A chain is replaced if one of its operators is expensive; a look-up of cheap operators would only keep them from fusing into the
    preceding kernel. With `repeated`, chains that quantize at least twice are replaced too: their divisions and conversions take
    longer than a look-up in a cache. With `cheap`, chains that end in `quantize` are replaced too, so that their floating-point
    results are the same on every target. Returns the same object if there is nothing to replace or the target does not support
    `take`."""
    chains: dict[int, _ByteFunction] = {}

    def visit(old: Expr, new: Expr) -> Expr:
        chain = _byte_function(new, chains)
        if chain is None:
            return new
        is_worthwhile = (
            chain.expensive or (repeated and chain.stored > 1) or (cheap and isinstance(new, Call) and new.callee is quantize)
        )
        if _is_bytes(new) and is_worthwhile:
            looked_up = _looked_up(chain, new)
            new = looked_up if is_supported(looked_up, supports, chain.source) else new
        chains[id(new)] = chain
        keepalive.append(new)
        return new

    keepalive: list[Expr] = []  # keeps the expressions alive, so that their ids stay unique
    return transform_function(target, visit)


def _is_bytes(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.is_int and expr.type.dtype.bits == 8


def _byte_function(expr: Expr, chains: dict[int, _ByteFunction]) -> _ByteFunction | None:
    """Express a value as a function of one 8-bit tensor; None if the value depends on anything else."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator) or not expr.callee.elementwise:
        return None
    for arg in expr.args:
        if _is_bytes(arg) and not isinstance(arg, Constant):
            chains.setdefault(id(arg), _identity(arg))
    sources = [chains.get(id(arg)) for arg in expr.args if not isinstance(arg, Constant)]
    first = sources[0] if sources else None
    if first is None or any(other is None or other.source is not first.source for other in sources):
        return None
    assert isinstance(expr.type, TensorType) and isinstance(first.source.type, TensorType)
    if expr.type.shape != first.source.type.shape or any(isinstance(arg, Constant) and arg.data.size != 1 for arg in expr.args):
        return None
    args = [constant(arg.data.reshape(())) if isinstance(arg, Constant) else chains[id(arg)].result for arg in expr.args]
    expensive = expr.callee.traits.expensive or any(other is not None and other.expensive for other in sources)
    quantize_count = (expr.callee is quantize) + max(other.stored for other in sources if other is not None)
    try:
        result = call(expr.callee, args, expr.attrs, expr.span)
    except TypeInferenceError:
        return None  # a variable zero point of a constant, for example, has no more axes than the constant
    return _ByteFunction(first.source, first.byte, result, expensive, quantize_count)


def _identity(source: Expr) -> _ByteFunction:
    assert isinstance(source.type, TensorType)
    byte = var("byte", TensorType((256,), source.type.dtype))
    return _ByteFunction(source, byte, byte, False)


def _looked_up(chain: _ByteFunction, expr: Expr) -> Expr:
    """Look up the source in the table of all results, which is ordered by byte value as unsigned integer."""
    assert isinstance(chain.byte.type, TensorType)
    all_bytes = np.arange(256, dtype=np.uint8).view(chain.byte.type.dtype.numpy)
    table = evaluate(function([chain.byte], chain.result), [all_bytes])
    index = chain.source if chain.byte.type.dtype.name == "uint8" else bitcast(chain.source, dtype="uint8")
    return take(constant(table), index, axis=0, span=expr.span)
