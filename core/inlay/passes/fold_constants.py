"""Constant folding: what is known is computed now, by the numpy references."""

from __future__ import annotations

from typing import Any

from inlay.errors import KernelFault
from inlay.graph.attrs import attr_vars
from inlay.graph.interp import evaluate
from inlay.graph.ir import Call, Constant, Expr, Function, Tuple, constant, function, tuple_
from inlay.graph.operator import Operator
from inlay.graph.transform import transform_function
from inlay.types import TensorType, TupleType, Type

LIMIT = 1 << 20
"""Bytes of a result up to which it is folded even where it is larger than what it is computed from."""


def fold_constants(target: Function, limit: int = LIMIT) -> Function:
    """The function with operators on constants replaced by their results.

    A result larger than its inputs (a broadcast, an iota) is folded only up to `limit` bytes. Strings fold; sequences and
    optionals, which no constant holds, do not. An operator that faults on its constants stays, to fault when it runs.
    """

    def visit(old: Expr, new: Expr) -> Expr:
        folded = _fold(new, limit) if isinstance(new, Call) and isinstance(new.callee, Operator) else None
        return new if folded is None else folded

    return transform_function(target, visit)


def _fold(call: Call, limit: int) -> Expr | None:
    """The result of a call as constants, None where it is not to be folded."""
    given = 0
    for arg in call.args:
        for part in arg.fields if isinstance(arg, Tuple) else (arg,):
            if not isinstance(part, Constant):
                return None
            given += part.data.nbytes
    size = _bytes(call.type)
    if size is None or size > max(limit, given) or attr_vars(call.attrs):
        return None
    try:
        value = evaluate(function((), call), ())
    except KernelFault:
        return None
    return _constants(call.type, value, call)


def _bytes(type_: Type) -> int | None:
    """Bytes of a value; sizes that only the operator works out count nothing. None for what is not made of tensors."""
    match type_:
        case TensorType(shape=shape, dtype=of):
            count = 1
            for dim in shape:
                count *= dim if isinstance(dim, int) else 1
            return count * max(of.bytes, 1)
        case TupleType(fields=fields):
            parts = [_bytes(item) for item in fields]
            return None if None in parts else sum(part for part in parts if part is not None)
    return None


def _constants(type_: Type, value: Any, call: Call) -> Expr:
    if isinstance(type_, TupleType):
        return tuple_([_constants(item, part, call) for item, part in zip(type_.fields, value, strict=True)], call.span)
    return constant(value, span=call.span)
