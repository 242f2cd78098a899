"""Small int8 models, for each rounding mode, whose requantizations are fixed-point multiplications as in TensorFlow Lite.

Layers have more rows and channels than many tiles, and equal shapes with different weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.ops.fixed_point import ROUNDINGS, scaled
from inlaid_runtime.types import TensorType

SPREAD = 40
"""Standard deviation of the results of a layer."""
POINT = 7
"""Zero point of inputs and results."""


class _Layers:
    """Makes layers with deterministic random weights, requantized with one rounding."""

    def __init__(self, rounding: str) -> None:
        self._rng = np.random.default_rng(2)
        self._rounding = rounding

    def conv(self, x: ir.Expr, outer: int, size: int, strides: int = 1, groups: int = 1, least: int = POINT) -> ir.Expr:
        """Convolve with a window of size x size, padded with the zero point, and clamp, by default at the zero point from below."""
        inner = int(_shape(x)[1]) // groups
        padding = size // 2
        if padding:
            x = ops.pad(x, _int8(POINT), pads=(0, 0, padding, padding) * 2)
        sums = ops.conv(x, self._weights(outer, inner, size, size), strides=(strides, strides), groups=groups, out_dtype="int32")
        total = ops.add(sums, self._bias(outer, 1, 1))
        return self._requantized(total, inner * size * size, outer, 1, least)

    def dense(self, x: ir.Expr, outer: int, least: int = -128) -> ir.Expr:
        """Multiply by a matrix."""
        inner = int(_shape(x)[1])
        total = ops.add(ops.matmul(x, self._weights(inner, outer), out_dtype="int32"), self._bias(outer))
        return self._requantized(total, inner, outer, 1, least)

    def mean(self, x: ir.Expr) -> ir.Expr:
        """Take the mean over images."""
        pixels = int(np.prod(_shape(x)[2:]))
        total = ops.reduce_sum(ops.cast(x, dtype="int32"), axes=(2, 3), keepdims=True)
        return _narrow(scaled(total, [1 / pixels], rounding=self._rounding), -128)

    def add(self, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """Add values with different scales."""
        factors = zip((a, b), (0.75, 0.4), strict=True)
        first, second = (self._scaled_up(value, factor) for value, factor in factors)
        total = scaled(ops.add(first, second), [2.0**-20], rounding=self._rounding)
        return _narrow(ops.add(total, _int32(POINT)), -128)

    def _scaled_up(self, value: ir.Expr, factor: float) -> ir.Expr:
        centered = ops.sub(ops.cast(value, dtype="int32"), _int32(POINT))
        return scaled(ops.shift_left(centered, _int32(20)), [factor], rounding=self._rounding)

    def _weights(self, *shape: int) -> ir.Constant:
        return ir.constant(self._rng.integers(-127, 128, shape).astype(np.int8))

    def _bias(self, *shape: int) -> ir.Constant:
        return ir.constant(self._rng.integers(-9999, 9999, shape).astype(np.int32))

    def _requantized(self, total: ir.Expr, terms: int, channels: int, axis: int, least: int) -> ir.Expr:
        factor = SPREAD / (73 * 74 * np.sqrt(terms))
        factors = factor * self._rng.uniform(0.5, 1.5, channels)
        return _narrow(ops.add(scaled(total, factors.tolist(), axis, self._rounding), _int32(POINT)), least)


def _narrow(total: ir.Expr, least: int) -> ir.Expr:
    return ops.cast(ops.clip(total, minimum=float(least), maximum=127.0), dtype="int8")


def _int8(value: int) -> ir.Constant:
    return ir.constant(np.int8(value))


def _int32(value: int) -> ir.Constant:
    return ir.constant(np.int32(value))


def _shape(x: ir.Expr) -> tuple[int, ...]:
    assert isinstance(x.type, TensorType)
    return tuple(int(dim) for dim in x.type.shape if isinstance(dim, int))


def _convolution(rounding: str) -> ir.Function:
    layers, x = _Layers(rounding), ir.var("x", TensorType((1, 3, 17, 17), "int8"))
    first = layers.conv(x, 40, 3, strides=2)
    # Sums of both signs tell roundings apart.
    second = layers.conv(layers.conv(first, 40, 3, groups=40), 40, 1, least=-128)
    pooled = ops.max_pool(layers.add(first, second), kernel=(3, 3), strides=(2, 2))
    third = layers.conv(layers.conv(pooled, 40, 1), 70, 3, least=-128)
    flat = ops.reshape(layers.mean(third), shape=(1, 70))
    # A later layer hides most differences of one in an earlier one.
    return ir.function((x,), ir.tuple_((layers.dense(flat, 10), flat)))


def _perceptron(rounding: str) -> ir.Function:
    layers, x = _Layers(rounding), ir.var("x", TensorType((37, 67), "int8"))
    hidden = layers.dense(layers.dense(x, 67, POINT), 67, POINT)
    residual = layers.add(hidden, layers.dense(hidden, 67))
    return ir.function((x,), ir.tuple_((layers.dense(residual, 10), residual)))


INTEGER_NETS: tuple[tuple[str, Callable[[], ir.Function], tuple[int, ...]], ...] = tuple(
    (f"integer-{name}-{rounding}", partial(build, rounding), shape)
    for name, build, shape in (("convolution", _convolution, (1, 3, 17, 17)), ("perceptron", _perceptron, (37, 67)))
    for rounding in ROUNDINGS
)
"""Name, builder and shape of the input x of each model."""
