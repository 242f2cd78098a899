"""Stored tensors, int32 accumulators, and conversions between them that give the same bits on every target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, Span, constant
from inlaid.ops.compose import cast_to, expr_type, scalar
from inlaid.ops.fixed_point import FRACTION, fixed_points, scaled
from inlaid_quantization.choices import FLOAT
from inlaid_quantization.histogram import Array
from inlaid_quantization.ranges import HIGHEST, LOWEST, Scale
from inlaid_quantization.settings import Quantization
from inlaid_runtime.arith import Dim

SUM_BITS = 20
"""Fractional bits in a sum of two tensors with different scales, as in TensorFlow Lite."""
LARGEST_SHIFT = 30
INT32 = (1 << 31) - 1
BYTE = 255
"""Greatest distance of a stored value from the zero point."""


@dataclass(frozen=True)
class Stored:
    """An int8 tensor with its quantization parameters."""

    value: Expr
    scale: Scale

    @property
    def real(self) -> Expr:
        """Dequantize to float32."""
        return dequantized(self.value, self.scale)

    @property
    def centered(self) -> Expr:
        """Return the stored values minus the zero point, as int32."""
        wide = cast_to(self.value, "int32")
        return ops.sub(wide, scalar(self.scale.zero_point, "int32")) if self.scale.zero_point else wide


def quantized(real: Expr, scale: Scale, span: Span | None = None) -> Expr:
    """Quantize floats with the given scale."""
    return ops.quantize(real, *_parameters(scale), dtype="int8", span=span)


def dequantized(value: Expr, scale: Scale, span: Span | None = None) -> Expr:
    """Dequantize stored values to float32."""
    return ops.dequantize(value, *_parameters(scale), dtype="float32", span=span)


def _parameters(scale: Scale) -> tuple[Expr, Expr]:
    return scalar(scale.scale, "float32"), constant(np.asarray(scale.zero_point, np.int8))


@dataclass(frozen=True)
class Total:
    """An int32 accumulator. Its real value is `value` * `factor`; there is one factor, or one per index along `axis`. `bound` is
    the maximum magnitude of `value`; `rounding` is passed to `multiply_fixed`."""

    value: Expr
    factor: Array
    axis: int
    bound: float
    rounding: str = "away"

    def by_axis(self, values: Array) -> Array:
        """Reshape per-factor numbers to broadcast to the tensor."""
        rank = expr_type(self.value).rank
        return values.reshape(()) if values.size == 1 else values.reshape([-1 if axis == self.axis else 1 for axis in range(rank)])


def aligned(a: Stored, b: Stored, settings: Quantization) -> tuple[Expr, Expr, float]:
    """Convert two tensors to int32 with a common scale. Returns both tensors and the scale."""
    scales = a.scale.scale, b.scale.scale
    min_scale, max_scale = min(scales), max(scales)
    ratio, exponent = np.frexp(max_scale / min_scale)
    if ratio == 0.5 and exponent <= SUM_BITS:
        # The scales differ by powers of two: nothing is rounded.
        left, right = (_shifted(side, int(np.log2(side.scale.scale / min_scale))) for side in (a, b))
        return left, right, min_scale
    left, right = (_scaled_up(side, 2 * max_scale, settings) for side in (a, b))
    return left, right, 2 * max_scale / (1 << SUM_BITS)


def _shifted(side: Stored, shift: int) -> Expr:
    return ops.shift_left(side.centered, scalar(shift, "int32")) if shift else side.centered


def _scaled_up(side: Stored, unit: float, settings: Quantization) -> Expr:
    shifted = ops.shift_left(side.centered, scalar(SUM_BITS, "int32"))
    return _multiplied(shifted, [side.scale.scale / unit], 0, "away", settings)


def _multiplied(value: Expr, factors: Sequence[float], axis: int, rounding: str, settings: Quantization) -> Expr:
    bits = settings.requantization.multiplier_bits
    # 1-bit multipliers are powers of two. Other factors, as in a mean of three, cannot be computed by such hardware.
    return scaled(value, factors, axis, settings.rounding(rounding), bits if bits > 1 else FRACTION)


def store(total: Total, scale: Scale, low: float, high: float, settings: Quantization) -> Expr:
    """Requantize an accumulator to a scale, with real values clamped to `low` and `high`."""
    factors = total.factor.reshape(-1) / scale.scale
    fractions, exponents = np.frexp(factors)
    if settings.shifts and np.all(fractions == 0.5) and np.all(np.abs(exponents - 1) <= LARGEST_SHIFT):
        rescaled = _by_shifts(total, 1 - exponents)
    elif settings.arithmetic == FLOAT:
        return _by_float(total, factors, scale, low, high)
    else:
        _, shifts = fixed_points(factors.tolist())
        value = _within(total, np.maximum(shifts, 0))
        rescaled = _multiplied(value, factors.tolist(), total.axis, total.rounding, settings)
    least, greatest = _limits(scale, low, high)
    if scale.zero_point:
        rescaled = ops.add(rescaled, scalar(scale.zero_point, "int32"))
    return ops.cast(ops.clip(rescaled, minimum=float(least), maximum=float(greatest)), dtype="int8")


def _limits(scale: Scale, low: float, high: float) -> tuple[int, int]:
    """Quantize real limits."""
    return LOWEST if low == -np.inf else scale.stored(low), HIGHEST if high == np.inf else scale.stored(high)


def _by_float(total: Total, factors: Array, scale: Scale, low: float, high: float) -> Expr:
    """Requantize an accumulator by a float32 multiplication."""
    scales = constant(factors.astype(np.float32).reshape(() if factors.size == 1 else -1))
    zero_point = constant(np.asarray(scale.zero_point, np.int8))
    return limited(ops.requantize(total.value, scales, zero_point, dtype="int8", axis=total.axis), scale, low, high)


def limited(stored: Expr, scale: Scale, low: float, high: float) -> Expr:
    """Clamp stored values to the real limits `low` and `high`."""
    least, greatest = _limits(scale, low, high)
    return stored if (least, greatest) == (LOWEST, HIGHEST) else ops.clip(stored, minimum=float(least), maximum=float(greatest))


def as_real(total: Total, low: float, high: float) -> Expr:
    """Convert an accumulator to floats, clamped to `low` and `high`."""
    value = total.value
    if low == 0:
        value, low = ops.maximum(value, scalar(0, "int32")), -np.inf
    factors = total.factor.astype(np.float32)
    scales = constant(factors.reshape(()) if factors.size == 1 else factors)
    real: Expr = ops.dequantize(value, scales, dtype="float32", axis=total.axis)
    return real if (low, high) == (-np.inf, np.inf) else ops.clip(real, minimum=low, maximum=high)


def _by_shifts(total: Total, exponents: Array) -> Expr:
    """Divide an accumulator by powers of two, rounding half up; negative exponents multiply."""
    left, right = (np.maximum(shifts, 0).astype(np.int32) for shifts in (-exponents, exponents))
    value = _within(total, left)
    if left.any():
        value = ops.shift_left(value, constant(total.by_axis(left)))
    if not right.any():
        return value
    halves = ((1 << right.astype(np.int64)) >> 1).astype(np.int32)
    return ops.shift_right(ops.add(value, constant(total.by_axis(halves))), constant(total.by_axis(right)))


def _within(total: Total, left: Array) -> Expr:
    """Clamp an accumulator so that a left shift does not overflow int32."""
    limits = np.asarray(INT32 >> left.astype(np.int64), np.int32)
    if total.bound <= limits.min():
        return total.value
    upper_bound = total.by_axis(limits)
    return ops.maximum(ops.minimum(total.value, constant(upper_bound)), constant(-upper_bound))


def padded(x: Stored, pads: Sequence[Dim], span: Span | None = None) -> Expr:
    """Pad images (N, C, spatial...) with stored zeros. `pads` has the padding before each spatial dimension, then after each."""
    if not any(pads):
        return x.value
    half = len(pads) // 2
    point = constant(np.asarray(x.scale.zero_point, np.int8))
    return ops.pad(x.value, point, pads=(0, 0, *pads[:half], 0, 0, *pads[half:]), span=span)
