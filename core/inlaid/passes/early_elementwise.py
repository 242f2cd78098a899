"""Move element-wise operators before data movement on the results of convolutions, so that they fuse into the convolutions.

Examples are the interleaved phases of a transposed convolution and channel shuffles, which precede bias, activation and
requantization. Phases that are separate convolutions are concatenated: the operator is then applied to each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.operator import Operator
from inlaid.graph.uses import UseCounts, rewrite
from inlaid.ops.define import Array
from inlaid.ops.shape import SliceAttrs, TransposeAttrs, matching_runs
from inlaid_runtime.types import TensorType

REARRANGEMENTS = (ops.reshape, ops.transpose, ops.strided_slice)
Values = Mapping[int, Array]
"""Constant operands by position: scalars, or arrays that broadcast to the result."""


def early_elementwise(function: Function) -> Function:
    """Move element-wise operators whose other operands are constants before the data movement that they read. Returns the same
    object if no operator moves."""
    return rewrite(function, _moved)


def _moved(expr: Expr, uses: UseCounts) -> Expr | None:
    """Rewrite elementwise(movement(conv)) to movement(elementwise(conv)); None if the pattern does not match."""
    operand_index = _varying(expr)
    if operand_index is None:
        return None
    assert isinstance(expr, Call)
    source = expr.args[operand_index]
    if not isinstance(source, Call) or source.callee not in (*REARRANGEMENTS, ops.concat) or _shape(expr) != _shape(source):
        return None
    if _bits(expr) > _bits(source):
        return None  # wider elements take longer to move
    values = _values(expr, operand_index)
    return None if values is None else _inside(expr, operand_index, source, values, uses)


def _varying(expr: Expr) -> int | None:
    """Find the position of an element-wise operator's only non-constant operand; None for any other expression."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator) or not expr.callee.elementwise:
        return None
    varying_positions = [number for number, arg in enumerate(expr.args) if not isinstance(arg, Constant)]
    return varying_positions[0] if len(varying_positions) == 1 and isinstance(expr.type, TensorType) else None


def _values(target: Call, operand_index: int) -> Values | None:
    """Return the constant operands. Parameters along an axis are reshaped to broadcast; None if a parameter is per block."""
    rank, axis = len(_shape(target)), getattr(target.attrs, "axis", None)
    values: dict[int, Array] = {}
    for number, arg in enumerate(target.args):
        if number == operand_index:
            continue
        assert isinstance(arg, Constant)
        value = arg.data
        if axis is not None and value.ndim:
            if value.ndim != 1 or getattr(target.attrs, "block_size", 0) != 0:
                return None
            value = value.reshape([-1 if index == axis else 1 for index in range(rank)])
        values[number] = value.reshape((1,) * (rank - value.ndim) + value.shape) if value.ndim else value
    return values


def _inside(target: Call, operand_index: int, source: Expr, values: Values, uses: UseCounts) -> Expr | None:
    """Apply an operator before the data movement that produces `source`; None if the movement does not move convolutions alone."""
    if not uses.single(source):
        return None
    if isinstance(source, Call) and source.callee in REARRANGEMENTS:
        moved_values = {number: _before_movement(source, value) if value.ndim else value for number, value in values.items()}
        source_values = {number: value for number, value in moved_values.items() if value is not None}
        inner = (
            _inside(target, operand_index, source.args[0], source_values, uses) if len(source_values) == len(moved_values) else None
        )
        return None if inner is None else call(source.callee, (inner,), source.attrs, source.span)
    if isinstance(source, Call) and source.callee is ops.concat:
        if any(value.ndim and value.shape[source.attrs.axis] != 1 for value in values.values()):
            return None
        candidates = [_inside(target, operand_index, part, values, uses) for part in source.args]
        parts = [part for part in candidates if part is not None]
        return call(source.callee, parts, source.attrs, source.span) if len(parts) == len(candidates) else None
    return _applied(target, operand_index, source, values) if _is_convolution(source, uses) else None


def _applied(target: Call, operand_index: int, source: Expr, values: Values) -> Expr | None:
    """Apply an operator to a convolution; None if its parameters would vary along several axes, or the result would be larger."""
    attrs: Any = target.attrs
    if hasattr(attrs, "axis") and any(value.ndim for value in values.values()):
        axes = {axis for value in values.values() for axis, extent in enumerate(value.shape) if extent != 1}
        if len(axes) > 1:
            return None
        attrs = replace(attrs, axis=next(iter(axes), 0))
        values = {number: value.reshape(() if value.size == 1 else -1) for number, value in values.items()}
    args = (
        source if number == operand_index else constant(values[number], span=arg.span) for number, arg in enumerate(target.args)
    )
    assert isinstance(target.callee, Operator)
    result = call(target.callee, tuple(args), attrs, target.span)
    return result if _shape(result) == _shape(source) else None


def _is_convolution(expr: Expr, uses: UseCounts) -> bool:
    """Test whether an expression is a convolution, possibly followed by element-wise operators, each with one use."""
    while uses.single(expr) and (operand_index := _varying(expr)) is not None:
        assert isinstance(expr, Call)
        expr = expr.args[operand_index]
    return isinstance(expr, Call) and expr.callee is ops.conv and uses.single(expr)


def _type(expr: Expr) -> TensorType:
    assert isinstance(expr.type, TensorType)
    return expr.type


def _shape(expr: Expr) -> tuple[Any, ...]:
    return _type(expr).shape


def _bits(expr: Expr) -> int:
    return _type(expr).dtype.bits


def _before_movement(movement: Call, value: Array) -> Array | None:
    """Rewrite a constant that broadcasts to the result of a data movement to a constant that broadcasts to the operand; None if
    that needs a symbolic extent."""
    source, result = movement.args[0].type, movement.type
    assert isinstance(source, TensorType) and isinstance(result, TensorType)
    if isinstance(movement.attrs, TransposeAttrs):
        return value.transpose(np.argsort(movement.attrs.perm))
    if isinstance(movement.attrs, SliceAttrs):
        extents_match = (one == 1 or old == new for one, old, new in zip(value.shape, source.shape, result.shape, strict=True))
        full_steps = (abs(step) == 1 for step in movement.attrs.strides)
        return value if all(extents_match) and all(full_steps) else None
    full_shape, shape = list(value.shape), [1] * len(source.shape)
    for new, old in matching_runs(result.shape, source.shape):
        if all(value.shape[axis] == 1 for axis in range(*new)):
            continue
        for axis in range(*new):
            extent = result.shape[axis]
            if not isinstance(extent, int):
                return None
            full_shape[axis] = extent
        for axis in range(*old):
            extent = source.shape[axis]
            if not isinstance(extent, int):
                return None
            shape[axis] = extent
    return np.broadcast_to(value, full_shape).reshape(shape)
