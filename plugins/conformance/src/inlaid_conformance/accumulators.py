"""Constants of layers whose sums fill, but never exceed, a narrow accumulator."""

from __future__ import annotations

import numpy as np

from inlaid.graph import ir
from inlaid.ops.convolution import conv
from inlaid.ops.linear import matmul
from inlaid.partitioning.accumulate import WIDEST, greatest
from inlaid_conformance.corpus.example import DEEP
from inlaid_runtime.types import TensorType

BIASES = 64
"""Ratio of the largest sum to the biases that are added to it."""


def deepest(bits: int) -> int:
    """Return the number of products of 8-bit integers whose sum fills a signed accumulator of some width."""
    return DEEP if bits >= WIDEST else max(((1 << (bits - 1)) - 1) >> 14, 1)


def is_narrow(call: ir.Call, bits: int) -> bool:
    """Test whether a call sums integers of 8 or 16 bits by constant weights, in accumulators of less than 32 bits."""
    if bits >= WIDEST or call.callee not in (conv, matmul) or not isinstance(call.args[1], ir.Constant):
        return False
    return all(isinstance(arg.type, TensorType) and arg.type.dtype.is_int and arg.type.dtype.bits <= 16 for arg in call.args)


def fitted_weights(call: ir.Call, bits: int) -> ir.Constant:
    """Return the weights of a product, scaled down such that its sums fit an accumulator with room for biases. Magnitudes of each
    output channel sum to nearly the greatest possible, since the rounding error of a weight is added to the next one."""
    x, weights = call.args
    assert isinstance(weights, ir.Constant)
    limit = int(((1 << (bits - 1)) - 1 - 2 * greatest_bias(bits)) // greatest(x))
    data, axis = weights.data, max(weights.data.ndim - 2, 0)
    if call.callee is conv:
        data, axis = data.reshape(len(data), data[:1].size), 1
    sizes = np.cumsum(np.abs(data.astype(np.int64)), axis)
    totals = sizes.max(axis, keepdims=True, initial=0)
    scaled = np.diff(sizes * limit // np.maximum(totals, limit), axis=axis, prepend=0)
    return ir.constant((scaled * np.sign(data)).astype(data.dtype).reshape(weights.data.shape))


def greatest_bias(bits: int) -> int:
    """Return the greatest magnitude of each of two constants that are added to a sum."""
    return (1 << (bits - 1)) // BIASES // 2
