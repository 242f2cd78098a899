"""Integer implementations of operators, one form for each kind.

A form is created from a call of a float operator, and computes the call from stored tensors. Most forms return a `Total`, an int32
accumulator that is then requantized, clamped and stored. Factors and roundings follow TensorFlow Lite's kernels where these exist,
so that kernels tuned for TensorFlow Lite also match these models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, call, constant
from inlaid.graph.operator import Operator
from inlaid.ops.compose import expr_type, scalar
from inlaid_quantization.choices import TENSOR
from inlaid_quantization.histogram import Array
from inlaid_quantization.ranges import HIGHEST, Scale, rounded_scales
from inlaid_quantization.settings import Quantization
from inlaid_quantization.totals import BYTE, INT32, Stored, Total, aligned, padded
from inlaid_runtime.types import TensorType

EXP_BITS = 15
"""Bits of the exponentials in a softmax: sums of 65,535 of them fit into int32."""
RECIPROCAL_BITS = 30
LONGEST_SOFTMAX = (1 << (31 - EXP_BITS)) - 1
BIAS_LIMIT = 1 << 29
"""Greatest magnitude of a stored bias. It leaves three quarters of the int32 range to the products."""


class Form:
    """Integer implementation of an operator, including operators folded into it."""

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        """Return the int32 accumulator."""
        raise NotImplementedError

    def real(self, operands: Sequence[Stored]) -> Expr | None:
        """Return the float32 result for `Quantization.arithmetic` "float"; None for forms that scale the accumulator."""
        return None

    def biased(self, offset: Array) -> Form | None:
        """Return the form with a constant added to its result; None if the form cannot include a constant."""
        return None


# --- weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """Constant int8 weights, with a scale per output channel or one for all, and the bias in units of the accumulator."""

    stored: Array
    scales: Array
    bias: Array


def stored_weights(weights: Array, axis: int, offset: Array, x: Scale, settings: Quantization) -> Weights:
    """Quantize weights to [-127, 127], and the bias to int32, for each index along `axis`, the axis of output channels.

    If a stored bias would exceed `BIAS_LIMIT`, the scale of the weights is increased.
    """
    other_axes = tuple(other for other in range(weights.ndim) if other != axis)
    largest = np.abs(weights).max(axis=other_axes, initial=0.0).astype(np.float64)
    scales = np.maximum(largest / HIGHEST, np.abs(offset) / (x.scale * BIAS_LIMIT))
    if settings.weights == TENSOR:
        scales = np.full_like(scales, scales.max(initial=0.0))
    scales = rounded_scales(np.where(scales > 0, scales, 1.0), settings)
    broadcast_scales = scales.reshape([-1 if other == axis else 1 for other in range(weights.ndim)])
    stored = np.clip(np.rint(weights / broadcast_scales), -HIGHEST, HIGHEST).astype(np.int8)
    return Weights(stored, scales, np.rint(offset / (x.scale * scales)).astype(np.int64))


def _sums(weights: Array, axis: int) -> Array:
    return np.asarray(weights.astype(np.int64).sum(axis=tuple(other for other in range(weights.ndim) if other != axis)))


def _bound(weights: Weights, axis: int) -> float:
    """Return an upper bound of the magnitude of any sum of products with stored values."""
    return float((np.abs(_sums(np.abs(weights.stored.astype(np.int64)), axis)) * BYTE + np.abs(weights.bias)).max(initial=0))


@dataclass(frozen=True)
class Product(Form):
    """A convolution or matrix product with constant weights, plus `offset` per output channel."""

    product: Call
    weights: Array
    offset: Array

    @property
    def _axes(self) -> tuple[int, int]:
        """Return the axis of output channels in the weights, and in the result."""
        if self.product.callee is ops.matmul:
            return 1, expr_type(self.product).rank - 1
        return int(self.product.callee is ops.conv_transpose), 1

    def biased(self, offset: Array) -> Form | None:
        spread = by_channel(offset, expr_type(self.product), self._axes[1])
        return None if spread is None else dataclasses.replace(self, offset=self.offset + spread)

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        (x,) = operands
        axis, result_axis = self._axes
        stored = stored_weights(self.weights, axis, self.offset, x.scale, settings)
        span, attrs, operator = self.product.span, self.product.attrs, self.product.callee
        bias, data = stored.bias, x.value
        if operator is ops.conv_transpose:
            data = x.centered  # the gaps between elements are 0, not the zero point
        else:
            bias = bias - x.scale.zero_point * _sums(stored.stored, axis)
            if operator is ops.conv:
                data, attrs = padded(x, attrs.pads, span), dataclasses.replace(attrs, pads=(0,) * len(attrs.pads))
        value: Expr = call(operator, (data, constant(stored.stored, span=span)), attrs, span)
        total = Total(value, x.scale.scale * stored.scales, result_axis, _bound(stored, axis), self._rounding)
        if bias.any():
            limited = np.clip(bias, -INT32, INT32).astype(np.int32)
            value = ops.add(value, constant(total.by_axis(limited), span=span), span=span)
        return dataclasses.replace(total, value=value)

    @property
    def _rounding(self) -> str:
        depthwise = self.product.callee is ops.conv and self.product.attrs.groups > 1
        return "away" if depthwise else "up"


@dataclass(frozen=True)
class Affine(Form):
    """x * `factor` + `offset`, each per index along `axis`: an unfused batch normalization."""

    x: TensorType
    factor: Array
    offset: Array
    axis: int

    def biased(self, offset: Array) -> Form | None:
        spread = by_channel(offset, self.x, self.axis)
        return None if spread is None else dataclasses.replace(self, offset=self.offset + spread)

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        (x,) = operands
        stored = stored_weights(self.factor[:, np.newaxis], 0, self.offset, x.scale, settings)
        weights = stored.stored[:, 0].astype(np.int32)
        total = Total(x.centered, x.scale.scale * stored.scales, self.axis, _bound(stored, 0))
        value: Expr = ops.mul(x.centered, constant(total.by_axis(weights)))
        if stored.bias.any():
            value = ops.add(value, constant(total.by_axis(stored.bias.astype(np.int32))))
        return dataclasses.replace(total, value=value)


def by_channel(values: Array, result: TensorType, axis: int) -> Array | None:
    """Return constants that broadcast to `result` as a vector along `axis`; None if they vary along other axes."""
    extent = result.shape[axis]
    if not isinstance(extent, int) or values.ndim > result.rank:
        return None
    spread = values.reshape((1,) * (result.rank - values.ndim) + values.shape)
    if spread.size not in (1, spread.shape[axis]):
        return None
    return np.broadcast_to(spread.reshape(-1).astype(np.float64), (extent,))


# --- without weights --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Both(Form):
    """A matrix product of two computed tensors."""

    product: Call

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        a, b = operands
        value = call(ops.matmul, (a.centered, b.centered), dataclasses.replace(self.product.attrs, out_dtype="int32"))
        depth = expr_type(self.product.args[0]).shape[-1]
        bound = depth * BYTE * BYTE if isinstance(depth, int) else INT32
        return Total(value, np.array([a.scale.scale * b.scale.scale]), 0, bound, "up")


@dataclass(frozen=True)
class Sum(Form):
    """A sum or difference of two tensors."""

    operator: Operator

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        a, b = operands
        left, right, unit = aligned(a, b, settings)
        return Total(call(self.operator, (left, right)), np.array([unit]), 0, 1 << 30)

    def real(self, operands: Sequence[Stored]) -> Expr | None:
        return call(self.operator, [operand.real for operand in operands])


class Times(Form):
    """An element-wise product of two tensors."""

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        a, b = operands
        return Total(ops.mul(a.centered, b.centered), np.array([a.scale.scale * b.scale.scale]), 0, BYTE * BYTE)

    def real(self, operands: Sequence[Stored]) -> Expr | None:
        a, b = operands
        return ops.mul(a.real, b.real)


@dataclass(frozen=True)
class Scaled(Form):
    """Another form times a positive constant."""

    form: Form
    number: float

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        total = self.form.total(operands, settings)
        return dataclasses.replace(total, factor=total.factor * self.number)


@dataclass(frozen=True)
class Mean(Form):
    """A sum over axes times a factor."""

    axes: tuple[int, ...]
    keepdims: bool
    factor: float
    count: int

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        (x,) = operands
        value = ops.reduce_sum(x.centered, axes=self.axes, keepdims=self.keepdims)
        return Total(value, np.array([x.scale.scale * self.factor]), 0, self.count * BYTE)


@dataclass(frozen=True)
class Average(Form):
    """Sums over windows, computed as a convolution with ones. The convolution reads int8 values directly; a reduction would first
    need an int32 copy, four times as large. `counts` are the numbers that the sums are divided by."""

    attrs: Any
    channels: int
    counts: Array

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        (x,) = operands
        attrs = self.attrs
        taps = int(np.prod(attrs.kernel))
        shape = expr_type(x.value).shape
        if settings.requantization.roundings and shape[2:] == tuple(attrs.kernel) and not any(attrs.pads):
            # Accelerators support sums over whole images, and few window sizes.
            return Mean(tuple(range(2, len(shape))), True, 1 / int(self.counts.max()), taps).total(operands, settings)
        ones = np.ones((self.channels, 1, *attrs.kernel), np.int8)
        value: Expr = ops.conv(
            padded(x, attrs.pads), constant(ones), strides=attrs.strides, dilations=attrs.dilations, groups=self.channels
        )
        if x.scale.zero_point:
            value = ops.add(value, scalar(-x.scale.zero_point * taps, "int32"))
        max_count, bound = int(self.counts.max()), taps * BYTE
        if int(self.counts.min()) == max_count:
            return Total(value, np.array([x.scale.scale / max_count]), 1, bound)
        # Reciprocals with as many bits as the sums leave free.
        bits = RECIPROCAL_BITS - bound.bit_length()
        reciprocals = np.rint((1 << bits) / self.counts).astype(np.int32)
        return Total(ops.mul(value, constant(reciprocals)), np.array([x.scale.scale / (1 << bits)]), 1, 1 << RECIPROCAL_BITS)


@dataclass(frozen=True)
class Softmax(Form):
    """A softmax. The exponentials of the 256 differences from the maximum come from a table; each row takes one division."""

    axis: int

    def total(self, operands: Sequence[Stored], settings: Quantization) -> Total:
        (x,) = operands
        wide = ops.cast(x.value, dtype="int32")
        distances = ops.sub(ops.reduce_max(wide, axes=(self.axis,), keepdims=True), wide)
        table = np.rint(np.exp(-x.scale.scale * np.arange(256)) * (1 << EXP_BITS)).astype(np.int32)
        exponentials = ops.take(constant(table), distances, axis=0)
        sums = ops.reduce_sum(exponentials, axes=(self.axis,), keepdims=True)
        reciprocal = ops.div(scalar(1 << RECIPROCAL_BITS, "int32"), sums)
        factor = np.array([1 / (1 << RECIPROCAL_BITS)])
        return Total(ops.mul(exponentials, reciprocal), factor, 0, 1 << RECIPROCAL_BITS)


@dataclass(frozen=True)
class Move(Form):
    """A data-moving operator; its result has the scale of its operands. `places` are the positions of the arguments that it moves,
    `fill` is the position of the constant that it fills with; see `Moves`."""

    call: Call
    places: tuple[int, ...]
    fill: int | None = None

    def moved(self, operands: Sequence[Stored], arguments: Sequence[Expr]) -> Expr:
        """Return the call on stored operands. `arguments` are all arguments of the call; the operands replace those that it
        moves."""
        args = list(arguments)
        for position, operand in zip(self.places, operands, strict=True):
            args[position] = operand.value
        if self.fill is not None:
            value = args[self.fill]
            assert isinstance(value, Constant)
            args[self.fill] = constant(operands[0].scale.stored_array(value.data))
        return call(self.call.callee, args, self.call.attrs, self.call.span)
