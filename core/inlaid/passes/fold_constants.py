"""Constant folding by the numpy reference implementations of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inlaid.graph.attrs import attr_vars
from inlaid.graph.interp import evaluate, evaluate_call
from inlaid.graph.ir import Call, Constant, Expr, Function, Tuple, children, constant, function, post_order, tuple_
from inlaid.graph.operator import FusionKind, Operator
from inlaid.graph.transform import transform_function
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import TensorType, TupleType, Type

LIMIT = 1 << 20
"""Maximum bytes of a folded result that is larger than its operands."""
WEIGHTS_LIMIT = 1 << 29
"""`LIMIT` for weights of products. It is higher, since constant weights can be scaled and packed at compile time."""


def fold_constants(
    target: Function, limit: int = LIMIT, weights_limit: int = WEIGHTS_LIMIT, keep: Callable[[Call], bool] | None = None
) -> Function:
    """Replace operators on constants by their results.

    A result larger than its operands (a broadcast, an iota) is folded only up to `limit` bytes, or `weights_limit` for weights.
    Calls for which `keep` is true are not folded. Strings are folded; sequences and optionals are not, since there are no constants
    of these types. A call whose evaluation raises an error is kept, so that the error occurs at run time.
    """

    weights = _weights(target)

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.callee, Operator) or (keep is not None and keep(new)):
            return new
        folded = _fold(new, weights_limit if id(old) in weights else limit)
        return new if folded is None else folded

    return transform_function(target, visit)


def _weights(target: Function) -> set[int]:
    """Return the ids of expressions that are used only as second operands of complex operators, directly or through other
    operators."""
    weight_ids: set[int] = set()
    data_ids: set[int] = set()
    for expr in reversed(list(post_order(target))):
        for index, child in enumerate(children(expr)):
            if isinstance(expr, Call) and isinstance(expr.callee, Operator):
                is_weight = (index == 1 and expr.callee.fusion is FusionKind.COMPLEX_OUT_FUSABLE) or (
                    id(expr) in weight_ids and id(expr) not in data_ids
                )
            else:
                is_weight = False
            (weight_ids if is_weight else data_ids).add(id(child))
    return weight_ids - data_ids


def _fold(call: Call, limit: int) -> Expr | None:
    """Evaluate a call to constants; None if it must not be folded."""
    operand_bytes = 0
    values: list[Any] = []
    for arg in call.args:
        parts = []
        for part in arg.fields if isinstance(arg, Tuple) else (arg,):
            if not isinstance(part, Constant):
                return None
            operand_bytes += part.data.nbytes
            parts.append(part.data)
        values.append(tuple(parts) if isinstance(arg, Tuple) else parts[0])
    size = _bytes(call.type)
    if size is None or size > max(limit, operand_bytes) or attr_vars(call.attrs):
        return None
    try:
        assert isinstance(call.callee, Operator)
        value = evaluate_call(call, values) if call.callee.reference is not None else evaluate(function((), call), ())
    except KernelFault:
        return None
    return _constants(call.type, value, call)


def _bytes(type_: Type) -> int | None:
    """Return the size of a value in bytes, with symbolic dimensions as 1; None for a value that is not a tensor or tuple of
    tensors."""
    match type_:
        case TensorType(shape=shape, dtype=dtype):
            count = 1
            for dim in shape:
                count *= dim if isinstance(dim, int) else 1
            return count * max(dtype.bytes, 1)
        case TupleType(fields=fields):
            parts = [_bytes(item) for item in fields]
            return None if None in parts else sum(part for part in parts if part is not None)
    return None


def _constants(type_: Type, value: Any, call: Call) -> Expr:
    if isinstance(type_, TupleType):
        return tuple_([_constants(item, part, call) for item, part in zip(type_.fields, value, strict=True)], call.span)
    return constant(value, span=call.span)
