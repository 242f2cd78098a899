"""Functions of one stored byte as tables of 256 entries.

Between two products a model in eight bits has operators that work element by element on what one byte stands for:

    dequantize -> div -> erf -> quantize -> dequantize -> add -> quantize    =>    take(table, x)

However many there are, the last of them can give 256 results, which are worked out when the model is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Expr, Function, Var, call, constant, function, var
from inlaid.graph.operator import Operator
from inlaid.graph.transform import transform_function
from inlaid.ops.conversion import bitcast
from inlaid.ops.index import take
from inlaid.ops.quantised import quantize
from inlaid.passes.supported import Supports, is_supported, supports_all
from inlaid.types import TensorType


@dataclass(frozen=True)
class _Derived:
    """An element-wise function of `source`, a tensor of bytes: what it makes of `byte`, which stands for all 256 of them, and
    whether that is expensive."""

    source: Expr
    byte: Var
    result: Expr
    expensive: bool


def tabulate(target: Function, cheap: bool = False, supports: Supports = supports_all) -> Function:
    """The function with bytes that expensive operators compute from other bytes, one from one, looked up; with `cheap` also those
    that are computed by floats in another way, which then are the same on every target. The same object without any, or
    where the target does not claim look-ups. A table for cheap operators would only keep them from the kernel before."""
    derived: dict[int, _Derived] = {}

    def visit(old: Expr, new: Expr) -> Expr:
        found = _derived(new, derived)
        if found is None:
            return new
        if _is_bytes(new) and (found.expensive or (cheap and isinstance(new, Call) and new.callee is quantize)):
            looked_up = _looked_up(found, new)
            new = looked_up if is_supported(looked_up, supports, found.source) else new
        derived[id(new)] = found
        kept.append(new)
        return new

    kept: list[Expr] = []  # so that no other expression gets the identity of one of these
    return transform_function(target, visit)


def _is_bytes(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.is_int and expr.type.dtype.bits == 8


def _derived(expr: Expr, known: dict[int, _Derived]) -> _Derived | None:
    """What an expression is of one tensor of bytes; None where it is no function of one alone."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator) or not expr.callee.elementwise:
        return None
    for arg in expr.args:
        if _is_bytes(arg) and not isinstance(arg, Constant):
            known.setdefault(id(arg), _itself(arg))
    sources = [known.get(id(arg)) for arg in expr.args if not isinstance(arg, Constant)]
    first = sources[0] if sources else None
    if first is None or any(other is None or other.source is not first.source for other in sources):
        return None
    assert isinstance(expr.type, TensorType) and isinstance(first.source.type, TensorType)
    if expr.type.shape != first.source.type.shape or any(isinstance(arg, Constant) and arg.data.size != 1 for arg in expr.args):
        return None
    args = [constant(arg.data.reshape(())) if isinstance(arg, Constant) else known[id(arg)].result for arg in expr.args]
    expensive = expr.callee.traits.expensive or any(other is not None and other.expensive for other in sources)
    return _Derived(first.source, first.byte, call(expr.callee, args, expr.attrs, expr.span), expensive)


def _itself(source: Expr) -> _Derived:
    assert isinstance(source.type, TensorType)
    byte = var("byte", TensorType((256,), source.type.dtype))
    return _Derived(source, byte, byte, False)


def _looked_up(found: _Derived, expr: Expr) -> Expr:
    """The byte from the table of all results, in the order of bytes without a sign."""
    assert isinstance(found.byte.type, TensorType)
    every = np.arange(256, dtype=np.uint8).view(found.byte.type.dtype.numpy)
    table = evaluate(function([found.byte], found.result), [every])
    index = found.source if found.byte.type.dtype.name == "uint8" else bitcast(found.source, dtype="uint8")
    return take(constant(table), index, axis=0, span=expr.span)
