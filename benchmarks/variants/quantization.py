"""Quantization as exporters write it: QuantizeLinear and DequantizeLinear around operators, with seeded weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from variants.row import Array
from zoo.net import Net

DATA_SCALE = 0.02
DEVIATION = 74.0
"""Standard deviation of integers that are uniform over 8 bits."""
RESULT_DEVIATION = 1.5
"""Standard deviation of the products' results."""
RESULT_SCALE = 4 * RESULT_DEVIATION / 128


@dataclass(frozen=True)
class Quantized:
    """Element types and zero points of a product's operands: data, then weights."""

    data: str
    data_zero: int
    weights: str
    weights_zero: int


def weights_scale(depth: int) -> float:
    """Scale of weights with which sums of `depth` products have the deviation `RESULT_DEVIATION`."""
    return RESULT_DEVIATION / (DEVIATION**2 * DATA_SCALE * math.sqrt(depth))


def integers(net: Net, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw integers over the range of an 8-bit type but its least number. With a zero point other than 0, or 128 in uint8, their
    differences from it leave 8 bits."""
    middle = 128 if dtype == "uint8" else 0
    return (np.rint(net.uniform(shape, 127.0)) + middle).astype(dtype)


def channel_scales(net: Net, count: int, middle: float) -> Array:
    """Draw a scale per channel, within a half of `middle`."""
    return net.uniform((count,), middle / 2) + np.float32(middle)


def dequantize(net: Net, x: str, scale: float | Array, zero: int = 0, dtype: str = "int8", axis: int = 0) -> str:
    """DequantizeLinear, with a scale per tensor or per index of `axis`."""
    zeros = np.full(np.shape(scale), zero, dtype)
    attrs = {"axis": axis} if np.ndim(scale) else {}
    return net.node("DequantizeLinear", x, net.constant(scale), net.constant(zeros, dtype), **attrs)


def quantize(net: Net, x: str, scale: float = RESULT_SCALE, zero: int = 0, dtype: str = "int8") -> str:
    """QuantizeLinear with one scale."""
    return net.node("QuantizeLinear", x, net.constant(scale), net.constant(zero, dtype))


def integer_bias(net: Net, channels: int, scale: float | Array) -> str:
    """An int32 bias of the magnitude of one, dequantized."""
    greatest = 1 / float(np.max(scale))
    drawn = np.rint(net.uniform((channels,), 1.0).astype(np.float64) * greatest).astype(np.int32)
    return dequantize(net, net.initializer("bias", drawn), scale, 0, "int32")
