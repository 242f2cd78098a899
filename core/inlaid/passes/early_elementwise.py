"""Move element-wise operators before data movement on a convolution's result, so that they fuse into the convolution.

Examples are the interleaved phases of a transposed convolution and channel shuffles, which precede bias and activation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.operator import Operator
from inlaid.graph.uses import UseCounts, rewrite
from inlaid.ops.define import Array
from inlaid.ops.shape import SliceAttrs, TransposeAttrs, matching_runs
from inlaid.types import TensorType

REARRANGEMENTS = (ops.reshape, ops.transpose, ops.strided_slice)


def early_elementwise(function: Function) -> Function:
    """Move element-wise operators whose other operands are constants before the data movement that they read. Returns the same
    object if no operator moves."""
    return rewrite(function, _moved)


def _moved(expr: Expr, uses: UseCounts) -> Expr | None:
    """Rewrite elementwise(movement(conv)) to movement(elementwise(conv)); None if the pattern does not match."""
    place = _varying(expr)
    if place is None:
        return None
    assert isinstance(expr, Call) and isinstance(expr.callee, Operator)
    links = list(_rearrangements(expr.args[place], uses))
    if not links or _shape(expr) != _shape(links[0]) or not _is_convolution(links[-1].args[0], uses):
        return None
    args: list[Expr] = []
    for number, arg in enumerate(expr.args):
        if number == place:
            args.append(links[-1].args[0])
            continue
        assert isinstance(arg, Constant)
        value: Array | None = arg.data
        if value is not None and value.ndim:
            value = value.reshape((1,) * (len(_shape(expr)) - value.ndim) + value.shape)
            for link in links:
                value = None if value is None else _before(link, value)
        if value is None:
            return None
        args.append(constant(value, span=arg.span))
    made: Expr = call(expr.callee, tuple(args), expr.attrs, expr.span)
    if _shape(made) != _shape(links[-1].args[0]):
        return None
    for link in reversed(links):
        assert isinstance(link.callee, Operator)
        made = call(link.callee, (made,), link.attrs, link.span)
    return made


def _varying(expr: Expr) -> int | None:
    """Find the position of an operator's only non-constant operand; None if there are several, or a parameter is per axis."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator) or not expr.callee.elementwise:
        return None
    varying = [number for number, arg in enumerate(expr.args) if not isinstance(arg, Constant)]
    if len(varying) != 1 or not isinstance(expr.type, TensorType):
        return None
    by_axis = hasattr(expr.attrs, "axis") and any(isinstance(arg, Constant) and arg.data.ndim for arg in expr.args)
    return None if by_axis else varying[0]


def _rearrangements(expr: Expr, uses: UseCounts) -> Iterator[Call]:
    """Yield the chain of data movement operators that produces an expression, last first."""
    while isinstance(expr, Call) and expr.callee in REARRANGEMENTS and uses.single(expr):
        yield expr
        expr = expr.args[0]


def _is_convolution(expr: Expr, uses: UseCounts) -> bool:
    """Test whether an expression is a convolution, possibly followed by element-wise operators, each with one use."""
    while uses.single(expr) and (place := _varying(expr)) is not None:
        assert isinstance(expr, Call)
        expr = expr.args[place]
    return isinstance(expr, Call) and expr.callee is ops.conv and uses.single(expr)


def _shape(expr: Expr) -> tuple[object, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def _before(link: Call, value: Array) -> Array | None:
    """Rewrite a constant that broadcasts to the result of a data movement to a constant that broadcasts to the operand; None if
    that needs a symbolic extent."""
    source, result = link.args[0].type, link.type
    assert isinstance(source, TensorType) and isinstance(result, TensorType)
    if isinstance(link.attrs, TransposeAttrs):
        return value.transpose(np.argsort(link.attrs.perm))
    if isinstance(link.attrs, SliceAttrs):
        alike = (one == 1 or old == new for one, old, new in zip(value.shape, source.shape, result.shape, strict=True))
        cut = (abs(step) == 1 for step in link.attrs.strides)
        return value if all(alike) and all(cut) else None
    whole, shape = list(value.shape), [1] * len(source.shape)
    for new, old in matching_runs(result.shape, source.shape):
        if all(value.shape[axis] == 1 for axis in range(*new)):
            continue
        for axis in range(*new):
            extent = result.shape[axis]
            if not isinstance(extent, int):
                return None
            whole[axis] = extent
        for axis in range(*old):
            extent = source.shape[axis]
            if not isinstance(extent, int):
                return None
            shape[axis] = extent
    return np.broadcast_to(value, whole).reshape(shape)
