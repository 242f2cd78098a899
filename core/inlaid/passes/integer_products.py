"""Compute float products of dequantized integers as integer sums.

A product of two operands of at most 8 bits is exact in int32, whatever follows it:

    conv(dequantize(x, s, p), dequantize(w, t, q))    =>    cast(conv(x - p, w - q), float32) * (s t)

Bias, activation and a following quantize stay as they are, in float32. `quantize_integers` runs first and takes the products that
end in one `requantize`. Data movement between dequantize and product moves to the integers.

A product stays in float32 where its sum may exceed 32 bits, where a scale or zero point varies along a summed axis, and where the
product of scales is not a constant, normal float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant, operator_traits
from inlaid.graph.operator import Operator
from inlaid.graph.transform import transform_function
from inlaid.ops.compose import cast_to, expr_type
from inlaid.ops.convolution import conv
from inlaid.ops.elementwise import mul, sub
from inlaid.ops.linear import matmul
from inlaid.ops.quantized import dequantize
from inlaid.ops.shape import reshape
from inlaid.ops.transposed import conv_transpose
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
Acceptance = Callable[[Call, Call], bool]
"""Predicate on (float product, integer product of the same operands): whether the integer product should replace the float one."""

PRODUCTS = (conv, conv_transpose, matmul)
BITS = 8
"""Maximum bits of a factor."""
SUM_LIMIT = (1 << 31) - 1
"""Greatest magnitude of a sum in int32."""


@dataclass(frozen=True)
class StoredOperand:
    """A dequantized operand: its integers, constant scale, and zero point. Scale and zero point are 0-d, or 1-d along `axis`."""

    integers: Expr
    scale: Array
    zero_point: Expr | None
    axis: int | None

    @property
    def type(self) -> TensorType:
        assert isinstance(self.integers.type, TensorType)
        return self.integers.type

    @property
    def magnitude(self) -> int:
        """The greatest |x - zero point| that the dtype allows."""
        low, high = self.type.dtype.limits
        points = (low, high) if self.zero_point is not None else (0,)
        if isinstance(self.zero_point, Constant) and self.zero_point.data.size:
            points = (int(self.zero_point.data.min()), int(self.zero_point.data.max()))
        return int(max(abs(limit - point) for limit in (low, high) for point in points))

    def centered(self) -> Expr:
        """Return the integers minus the zero point, in int32."""
        wide = cast_to(self.integers, "int32")
        if self.zero_point is None or (isinstance(self.zero_point, Constant) and not self.zero_point.data.any()):
            return wide
        point = cast_to(self.zero_point, "int32")
        if self.axis is not None:
            point = reshape(point, shape=self.along(self.axis - self.type.rank, self.type.rank))
        return sub(wide, point)

    def along(self, axis: int, rank: int) -> tuple[Dim, ...]:
        """Return the shape in which 1-d scales and zero points broadcast along the axis `axis` < 0 of a tensor of rank `rank`."""
        assert self.axis is not None
        return tuple(self.type.shape[self.axis] if index - rank == axis else 1 for index in range(rank))


def integer_products(target: Function, accepts: Acceptance, operators: tuple[Operator, ...] = PRODUCTS) -> Function:
    """Rewrite products of dequantized integers by `operators` to integer products, where `accepts` is true. Returns the same object
    if there are none."""

    def visit(old: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and new.callee in operators:
            integers = _integer_form(new, accepts)
            return new if integers is None else integers
        return new

    return transform_function(target, visit)


def stored_operand(expr: Expr) -> StoredOperand | None:
    """Match a dequantized operand, possibly moved; None for any other expression."""
    if not isinstance(expr, Call) or not isinstance(expr.type, TensorType) or expr.type.dtype.name != "float32":
        return None
    if expr.callee is dequantize:
        return _dequantized(expr)
    moves = operator_traits(expr).moves
    if moves is None or moves.fill is not None or len(expr.args) != 1:
        return None
    source = stored_operand(expr.args[0])
    if source is None or source.axis is not None:
        return None
    return dataclasses.replace(source, integers=call(expr.callee, (source.integers,), expr.attrs, expr.span))


def _dequantized(expr: Call) -> StoredOperand | None:
    integers, scale, *points = expr.args
    assert isinstance(integers.type, TensorType)
    if expr.attrs.block_size or not integers.type.dtype.is_int or integers.type.dtype.bits > BITS:
        return None
    if not isinstance(scale, Constant) or scale.data.dtype != np.float32:
        return None
    varies = scale.data.ndim > 0
    if points and expr_type(points[0]).rank != scale.data.ndim:
        return None
    return StoredOperand(integers, scale.data, points[0] if points else None, expr.attrs.axis if varies else None)


def _integer_form(product: Call, accepts: Acceptance) -> Expr | None:
    """Rewrite a product to integers; None if an operand is not stored in integers, or if the result may differ."""
    operands = [stored_operand(arg) for arg in product.args]
    x, w = operands if len(operands) == 2 else (None, None)
    if x is None or w is None or not isinstance(product.type, TensorType) or product.type.dtype.name != "float32":
        return None
    axes = [_result_axis(product, index, operand) for index, operand in enumerate((x, w))]
    limit = greatest_sum(product, x, w)
    if None in axes or limit is None or limit > SUM_LIMIT:
        return None
    factor = _factor(product.type.rank, (x, w), axes)
    if factor is None:
        return None
    total = call(product.callee, (x.centered(), w.centered()), dataclasses.replace(product.attrs, out_dtype="int32"), product.span)
    if not accepts(product, total):
        return None
    return mul(cast_to(total, "float32"), constant(factor, span=product.span), span=product.span)


def _result_axis(product: Call, index: int, operand: StoredOperand) -> int | None:
    """Return the axis of the result, as a negative number, along which the scale of an operand varies; 0 if the scale is 0-d, None
    if it varies along a summed axis."""
    if operand.axis is None:
        return 0
    assert isinstance(product.type, TensorType)
    rank, axis = operand.type.rank, operand.axis
    if product.callee is matmul:
        other = product.args[1 - index].type
        assert isinstance(other, TensorType)
        axis -= rank
        if axis == (-1 if index == 0 or rank == 1 else -2):
            return None
        # The result has no axis for a vector: rows and batches move one to the right, columns stay last.
        return axis + 1 if other.rank == 1 and (index == 0 or axis < -1) else axis
    if index == 0:
        return -product.type.rank if axis == 0 else None
    if product.callee is conv:
        return 1 - product.type.rank if axis == 0 else None
    return 1 - product.type.rank if axis == 1 and product.attrs.groups == 1 else None


def greatest_sum(product: Call, x: StoredOperand, w: StoredOperand) -> int | None:
    """Return an upper bound on the magnitude of a product's sums; None if the number of terms is symbolic."""
    axes = _summed_axes(product, w)
    weights = w.integers
    if isinstance(weights, Constant) and (w.zero_point is None or isinstance(w.zero_point, Constant)):
        wide = weights.data.astype(np.int64)
        if w.zero_point is not None:
            points = w.zero_point.data.astype(np.int64)
            point_shape = [-1 if axis == w.axis else 1 for axis in range(wide.ndim)]
            wide = wide - (points if w.axis is None else points.reshape(point_shape))
        return x.magnitude * int(np.abs(wide).sum(axis=axes).max(initial=0))
    terms = 1
    for axis in axes:
        extent = w.type.shape[axis]
        if not isinstance(extent, int):
            return None
        terms *= extent
    return terms * x.magnitude * w.magnitude


def _summed_axes(product: Call, w: StoredOperand) -> tuple[int, ...]:
    """Return the axes of the right operand that are summed."""
    rank = w.type.rank
    if product.callee is matmul:
        return (max(rank - 2, 0),)
    return tuple(axis for axis in range(rank) if axis != (0 if product.callee is conv else 1))


def _factor(rank: int, operands: tuple[StoredOperand, StoredOperand], axes: list[int | None]) -> Array | None:
    """Return the product of scales, shaped to broadcast to a result of rank `rank`; None unless all are positive normal numbers."""
    parts = [
        operand.scale.reshape([-1 if axis and index - rank == axis else 1 for index in range(rank)]) if axis else operand.scale
        for operand, axis in zip(operands, axes, strict=True)
    ]
    with np.errstate(all="ignore"):
        factor = np.asarray(parts[0] * parts[1], np.float32)
    least = np.finfo(np.float32).tiny
    are_valid = all(bool(np.all((part > 0) & np.isfinite(part))) for part in parts)
    return factor if are_valid and bool(np.all((factor >= least) & np.isfinite(factor))) else None
