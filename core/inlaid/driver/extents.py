"""Limits on the tensors of a model: what compiles can be stored in a package, loaded and run."""

from __future__ import annotations

import math

from inlaid.graph.ir import Call, Module, post_order
from inlaid.graph.operator import Operator
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.codec import LARGEST_INTEGER, MAX_RANK
from inlaid_runtime.execution.sizes import LIMIT
from inlaid_runtime.types import TensorType, TupleType, Type

_BITS = LIMIT.bit_length() - 1


def check_extents(module: Module) -> None:
    """Check the tensors of a module: at most `MAX_RANK` dimensions; bounds of symbolic extents below `LIMIT`; static extents, and
    the bytes of all static extents together, below `LIMIT`. Raises `CompileError`, which names the input, or operator and node."""
    for param in module.main.params:
        description = f"input {param.name!r}"
        _check(param.type, description)
        for dim in param.type.shape if isinstance(param.type, TensorType) else ():
            for bound in (dim.lower, dim.upper) if isinstance(dim, SizeVar) else ():
                if isinstance(bound, int) and bound >= LIMIT:
                    problem = f"expected bounds of dimension {dim!r} of {description} that are < 2^{_BITS}, got {bound}"
                    raise CompileError(problem, remedy="give a smaller bound, or none")
    checked: set[int] = set()
    for function in module.functions.values():
        for expr in post_order(function):
            if isinstance(expr, Call) and isinstance(expr.callee, Operator):
                node = str(expr.span) if expr.span else None
                _check(expr.type, "the result", expr.callee.name, node)
                _check_constants(expr.type, checked, expr.callee.name, node)


def _check(type_: Type, description: str, operator: str | None = None, node: str | None = None) -> None:
    if isinstance(type_, TupleType):
        for field in type_.fields:
            _check(field, description, operator, node)
    if not isinstance(type_, TensorType):
        return
    static = [extent for extent in type_.shape if isinstance(extent, int)]
    size = math.prod(static) * type_.dtype.bytes
    problem = ""
    if type_.rank > MAX_RANK:
        problem = f"at most {MAX_RANK} dimensions, got {type_.rank}"
    elif max(static, default=0) >= LIMIT:
        problem = f"extents that are < 2^{_BITS}, got {max(static)}"
    elif size >= LIMIT:
        problem = f"static extents of less than 2^{_BITS} bytes together, got {size} bytes of {type_!r}"
    if problem:
        raise CompileError(
            f"expected {description} to have {problem}", operator=operator, node=node, remedy="give it a smaller shape"
        )


def _check_constants(type_: Type, checked: set[int], operator: str, node: str | None) -> None:
    """Check the constants in symbolic extents, except in expressions that are `checked` already."""
    for extent in type_.shape if isinstance(type_, TensorType) else ():
        for item in arith.post_order(arith.wrap(extent), below=lambda item: () if id(item) in checked else item.operands):
            checked.add(id(item))
            if isinstance(item, arith.Const) and abs(item.value) > LARGEST_INTEGER:
                problem = f"expected the result to have an extent with constants of at most 2^62, got {item.value}"
                raise CompileError(problem, operator=operator, node=node, remedy="give smaller sizes")
