"""Move zero points out of products of 8-bit integers, so that dot-product instructions can read the bytes.

`narrow_integers` does so where all factors and zero points are constants that fit 8 bits. Here the zero points are computed at run
time, or belong to constant weights whose differences from them exceed 8 bits:

    (x - p) (w - q)    =>    x w - p sum(w - q) - q sum(x)

Sums of constant weights are constants. All output channels share one sum of data per position: a channel sum, then a sum over the
window. Targets that multiply int16 faster subtract the zero points instead, and multiply int16. All sums wrap at 32 bits, so that
the result is the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.lowering.rewrites.wide_products import BYTES, WIDE, is_shared
from inlaid.ops.compose import cast_to, scalar
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.tensor.scheduling.dot_products import product_speed
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import dtype

Array = np.ndarray[Any, Any]

SPAN = 255
"""Greatest difference of two 8-bit integers."""
SIGN = 128
"""What flipping the sign bit of a uint8 subtracts from its value."""
MIN_OUTPUTS = 8
"""Minimum output channels of a group that share a sum of data."""
MAX_TAPS = 64
"""Maximum positions of a window whose sum is written out as additions."""


@dataclass(frozen=True)
class StoredFactor:
    """An operand of a product: 8-bit integers minus a zero point, an int32 that broadcasts to them; None: zero."""

    integers: Expr
    zero_point: Expr | None

    @property
    def dtype(self) -> str:
        return tensor_type(self.integers.type).dtype.name

    @property
    def fits_wide(self) -> bool:
        """Whether the differences fit int16."""
        if isinstance(self.zero_point, Constant):
            low, high = dtype(WIDE).limits
            least, greatest = tensor_type(self.integers.type).dtype.limits
            points = self.zero_point.data
            return points.size == 0 or bool(low <= least - int(points.max()) and greatest - int(points.min()) <= high)
        return self.zero_point is None or _is_byte_cast(self.zero_point)

    @property
    def stores_zero_point(self) -> bool:
        """Whether the zero point is a value of the integers' type."""
        if isinstance(self.zero_point, Constant):
            least, greatest = tensor_type(self.integers.type).dtype.limits
            return bool(np.all((self.zero_point.data >= least) & (self.zero_point.data <= greatest)))
        if self.zero_point is None:
            return True
        point = self.zero_point
        while isinstance(point, Call) and point.callee is ops.reshape:
            point = point.args[0]
        return _is_byte_cast(point) and isinstance(point, Call) and tensor_type(point.args[0].type).dtype.name == self.dtype


def zero_points(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite products of bytes that have zero points computed at run time, or weights of more than 8 bits. Returns the same object
    if there are none, or if the target has no instruction for products of bytes."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee not in (ops.conv, ops.matmul) or tensor_type(new.type).dtype.name != "int32":
            return new
        factors = _factors(new)
        expanded = None if factors is None else _expanded(new, *factors, context)
        if factors is None or expanded is None:
            return new
        assert expanded.type == new.type
        operands = [item for factor in factors for item in (factor.integers, factor.zero_point) if item is not None]
        return expanded if is_supported(expanded, supports, *operands) else new

    return transform_function(function, visit)


def _factors(product: Call) -> tuple[StoredFactor, StoredFactor] | None:
    """Match the operands of a product; None if they are not bytes, or if instructions multiply them as they are."""
    x, w = _data_factor(product), _weight_factor(product)
    if x is None or w is None or (x.zero_point is None and w.zero_point is None and w.dtype == "int8"):
        return None
    return x, w


def _expanded(product: Call, x: StoredFactor, w: StoredFactor, context: KernelContext) -> Expr | None:
    """Rewrite a product; None if the target has no faster instruction."""
    # `unsigned_data` stores signed data without a sign where that is faster.
    stored_types = BYTES if x.dtype == "int8" else (x.dtype,)
    narrow = max(product_speed(name, "int8", "int32", context) for name in stored_types)
    wide = product_speed(WIDE, WIDE, "int32", context)
    if wide > narrow and is_shared(product, context) and x.fits_wide and w.fits_wide:
        is_wide = all(tensor_type(arg.type).dtype.name == WIDE for arg in product.args)
        return None if is_wide else _wide(product, x, w)
    return _narrow(product, x, w) if narrow > (False, 0.0) else None


# --- matching ---------------------------------------------------------------------------------------------------------


def _data_factor(product: Call) -> StoredFactor | None:
    """Match the left operand. Its zero point must not vary along a summed axis."""
    x = _stored(product.args[0])
    if x is None or isinstance(x.integers, Constant) or tensor_type(x.integers.type).rank < 2:
        return None
    if x.zero_point is None:
        return x
    rank, shape = tensor_type(x.integers.type).rank, tensor_type(x.zero_point.type).shape
    if len(shape) > rank:
        return None
    aligned_shape = (*(1,) * (rank - len(shape)), *shape)
    if product.callee is ops.matmul:
        return x if aligned_shape[-1] == 1 else None
    if any(amount != 0 for amount in product.attrs.pads):
        # Bytes are padded with the zero point.
        return x if all(dim == 1 for dim in aligned_shape) and x.stores_zero_point else None
    return x if all(dim == 1 for dim in aligned_shape[1:]) else None


def _weight_factor(product: Call) -> StoredFactor | None:
    """Match the right operand, as int8 integers with a zero point along output channels."""
    operand = product.args[1]
    rank = tensor_type(operand.type).rank
    if rank < 2:
        return None
    summed_axes = (rank - 2,) if product.callee is ops.matmul else tuple(range(1, rank))
    if isinstance(operand, Constant):
        return _constant_factor(operand, summed_axes)
    w = _stored(operand)
    if w is None or w.zero_point is None:
        return w
    shape = tensor_type(w.zero_point.type).shape
    if len(shape) > rank:
        return None
    aligned_shape = (*(1,) * (rank - len(shape)), *shape)
    return w if all(aligned_shape[axis] == 1 for axis in summed_axes) else None


def _stored(operand: Expr) -> StoredFactor | None:
    """Match bytes, bytes cast to int32, or these minus an int32."""
    point: Expr | None = None
    if isinstance(operand, Call) and operand.callee is ops.sub and tensor_type(operand.type).dtype.name == "int32":
        if tensor_type(operand.args[0].type).shape != tensor_type(operand.type).shape:
            return None
        operand, point = operand.args
        if not _is_byte_cast(operand):
            return None
    if _is_byte_cast(operand):
        assert isinstance(operand, Call)
        operand = operand.args[0]
    return StoredFactor(operand, point) if tensor_type(operand.type).dtype.name in BYTES else None


def _is_byte_cast(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.callee is ops.cast and tensor_type(expr.args[0].type).dtype.name in BYTES


def _constant_factor(weights: Constant, summed_axes: tuple[int, ...]) -> StoredFactor | None:
    """Split constant weights into int8 and a zero point per output channel; None if the weights of a channel differ by too much."""
    data = weights.data.astype(np.int64)
    if data.size == 0:
        return None
    least, greatest = data.min(axis=summed_axes, keepdims=True), data.max(axis=summed_axes, keepdims=True)
    if np.any(greatest - least > SPAN):
        return None
    shifts = np.where((least < -SIGN) | (greatest >= SIGN), least + SIGN, 0)
    if not shifts.any():
        return StoredFactor(constant(data.astype(np.int8), span=weights.span), None)
    # One shift for all channels, where it fits, makes the correction cheaper.
    common = int(least.min()) + SIGN
    if int(greatest.max()) - int(least.min()) <= SPAN:
        shifts = np.full_like(shifts, common)
    return StoredFactor(
        constant((data - shifts).astype(np.int8), span=weights.span), constant((-shifts).astype(np.int32), span=weights.span)
    )


# --- rewriting --------------------------------------------------------------------------------------------------------


def _wide(product: Call, x: StoredFactor, w: StoredFactor) -> Expr:
    """Multiply differences in int16."""
    args: list[Expr] = []
    for factor in (x, w):
        if isinstance(factor.integers, Constant) and (factor.zero_point is None or isinstance(factor.zero_point, Constant)):
            point = 0 if factor.zero_point is None else factor.zero_point.data
            args.append(constant((factor.integers.data.astype(np.int32) - point).astype(WIDE), span=factor.integers.span))
            continue
        wide = cast_to(factor.integers, WIDE)
        args.append(wide if factor.zero_point is None else ops.sub(wide, cast_to(factor.zero_point, WIDE), span=product.span))
    return call(product.callee, args, dataclasses.replace(product.attrs, out_dtype="int32"), product.span)


def _narrow(product: Call, x: StoredFactor, w: StoredFactor) -> Expr | None:
    """Multiply bytes, and subtract the terms of the zero points."""
    w = _signed(w)
    integers, attrs = x.integers, dataclasses.replace(product.attrs, out_dtype="int32")
    if product.callee is ops.conv and any(amount != 0 for amount in attrs.pads):
        spatial = tensor_type(integers.type).rank - 2
        data_pads = (0, 0, *attrs.pads[:spatial], 0, 0, *attrs.pads[spatial:])
        integers = ops.pad(integers, _fill(x), pads=data_pads, span=product.span)
        attrs = dataclasses.replace(attrs, pads=())
    total: Expr = call(product.callee, (integers, w.integers), attrs, product.span)
    if w.zero_point is not None:
        data_sums = _data_sums(product, attrs, integers)
        if data_sums is None:
            return None
        total = ops.sub(total, ops.mul(data_sums, _along_outputs(product, w.zero_point), span=product.span), span=product.span)
    if x.zero_point is not None:
        weight_sums = _along_outputs(product, _weight_sums(product, w))
        total = ops.sub(total, _product(x.zero_point, weight_sums, product), span=product.span)
    return total


def _fill(x: StoredFactor) -> Expr:
    """Return the zero point of data as a 0-d value of its type; all its elements are equal."""
    if x.zero_point is None:
        return scalar(0, x.dtype)
    if isinstance(x.zero_point, Constant):
        return constant(x.zero_point.data.reshape(()).astype(x.dtype), span=x.zero_point.span)
    return cast_to(ops.reshape(x.zero_point, shape=()), x.dtype)


def _signed(w: StoredFactor) -> StoredFactor:
    """Store uint8 as int8 with another zero point."""
    if w.dtype == "int8":
        return w
    flipped = ops.bitcast(ops.bitwise_xor(w.integers, scalar(SIGN, "uint8")), dtype="int8")
    point = scalar(0, "int32") if w.zero_point is None else w.zero_point
    if isinstance(point, Constant):
        return StoredFactor(flipped, constant(np.asarray(point.data - SIGN, np.int32)))
    return StoredFactor(flipped, ops.sub(point, scalar(SIGN, "int32")))


def _product(a: Expr, b: Expr, product: Call) -> Expr:
    """Multiply two int32 tensors, constants at compile time."""
    if isinstance(a, Constant) and isinstance(b, Constant):
        with np.errstate(over="ignore"):
            return constant(np.asarray(a.data * b.data, np.int32), span=product.span)
    return ops.mul(a, b, span=product.span)


def _along_outputs(product: Call, values: Expr) -> Expr:
    """Reshape values, one or one per output channel of the weights, so that they broadcast to the result of a product."""
    if product.callee is ops.matmul or tensor_type(values.type).rank == 0:
        return values
    spatial = tensor_type(product.type).rank - 2
    # One element, or one per output channel.
    shape = (arith.product(tensor_type(values.type).shape), *(1,) * spatial)
    if isinstance(values, Constant):
        return constant(values.data.reshape(shape), span=values.span)
    return ops.reshape(values, shape=shape)


def _weight_sums(product: Call, w: StoredFactor) -> Expr:
    """Sum the weights minus their zero point over the summed axes, which stay with extent 1."""
    rank = tensor_type(w.integers.type).rank
    summed_axes = (rank - 2,) if product.callee is ops.matmul else tuple(range(1, rank))
    if isinstance(w.integers, Constant) and (w.zero_point is None or isinstance(w.zero_point, Constant)):
        point = 0 if w.zero_point is None else w.zero_point.data.astype(np.int64)
        sums = (w.integers.data.astype(np.int64) - point).sum(axis=summed_axes, keepdims=True)
        return constant(sums.astype(np.int32), span=w.integers.span)
    wide = cast_to(w.integers, "int32")
    if w.zero_point is not None:
        wide = ops.sub(wide, w.zero_point, span=product.span)
    return ops.reduce_sum(wide, axes=summed_axes, keepdims=True, span=product.span)


def _data_sums(product: Call, attrs: Any, data: Expr) -> Expr | None:
    """Sum the padded data of each position over the summed axes, shaped to broadcast to the result of a product with attributes
    `attrs`; None if the sums cost too much."""
    rank = tensor_type(data.type).rank
    wide = cast_to(data, "int32")
    if product.callee is ops.matmul:
        return ops.reduce_sum(wide, axes=(rank - 1,), keepdims=True, span=product.span)
    outputs, inputs, *extents = tensor_type(product.args[1].type).shape
    if not isinstance(outputs, int) or (attrs.groups != 1 and outputs < attrs.groups * MIN_OUTPUTS):
        return None
    window = [extent for extent in extents if isinstance(extent, int)]
    if len(window) < len(extents) or math.prod(window) > MAX_TAPS:
        return None
    sums: Expr = wide
    if attrs.groups != 1:
        batch, _, *image = tensor_type(data.type).shape
        sums = ops.reshape(sums, shape=(batch, attrs.groups, inputs, *image), span=product.span)
        sums = ops.reduce_sum(sums, axes=(2,), keepdims=False, span=product.span)
    else:
        sums = ops.reduce_sum(sums, axes=(1,), keepdims=True, span=product.span)
    strides, dilations = (tuple(item) or (1,) * (rank - 2) for item in (attrs.strides, attrs.dilations))
    batch, _, *result = tensor_type(product.type).shape
    total: Expr | None = None
    for offsets in itertools.product(*map(range, window)):
        starts = [offset * dilation for offset, dilation in zip(offsets, dilations, strict=True)]
        ends = [start + (extent - 1) * stride + 1 for start, extent, stride in zip(starts, result, strides, strict=True)]
        part = ops.strided_slice(
            sums, begin=(0, 0, *starts), end=(batch, attrs.groups, *ends), strides=(1, 1, *strides), span=product.span
        )
        total = part if total is None else ops.add(total, part, span=product.span)
    if total is None or attrs.groups == 1:
        return total
    # Each group's sums are those of all its output channels.
    group_sums = ops.reshape(total, shape=(batch, attrs.groups, 1, *result), span=product.span)
    channel_sums = ops.broadcast_to(group_sums, shape=(batch, attrs.groups, outputs // attrs.groups, *result), span=product.span)
    return ops.reshape(channel_sums, shape=tensor_type(product.type).shape, span=product.span)
