"""Examples of quantization and of random number operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inlaid import ops
from inlaid.ops.fixed_point import ROUNDINGS
from inlaid_conformance.corpus.example import Choices, Entry, Example

_STORED = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "float8e4m3fn", "float8e5m2")


def _granularity(choices: Choices) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]:
    """Pick the shape of the data, and the shape of the scales and attributes: per tensor, per channel, or per block."""
    shape = choices.solid_shape()
    axis, block = choices.axis(len(shape)), choices.pick(2, 4, 1)
    block_scales = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    return choices.pick(
        (shape, (), {}), (shape, (shape[axis],), {"axis": axis}), (shape, block_scales, {"axis": axis, "block_size": block})
    )


def _quantize(choices: Choices, dtype_name: str) -> Example:
    shape, scales, attrs = _granularity(choices)
    real_dtype = choices.pick("float32", "float16", "bfloat16")
    zero_points = (choices.array(scales, dtype_name, -2, 2),) if choices.flag() else ()
    arrays = (choices.summable(shape, real_dtype), choices.scales(scales, real_dtype, 0.1, 2), *zero_points)
    return Example(ops.quantize, arrays, {"dtype": dtype_name, **attrs})


def _dequantize(choices: Choices, dtype_name: str) -> Example:
    shape, scales, attrs = _granularity(choices)
    real_dtype = choices.pick("float32", "float16", "bfloat16")
    zero_points = (choices.array(scales, dtype_name, -2, 2),) if choices.flag() else ()
    arrays = (choices.array(shape, dtype_name, -5, 5), choices.scales(scales, real_dtype, 0.1, 2), *zero_points)
    return Example(ops.dequantize, arrays, {"dtype": real_dtype, **attrs})


def _requantize(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape()
    axis = choices.axis(len(shape))
    scales = choices.pick((), (shape[axis],))
    total = choices.array(shape, "int32", -100000, 100000)
    arrays = (total, choices.array(scales, "float32", 1e-4, 1e-2), choices.array((), dtype_name, -2, 2))
    return Example(ops.requantize, arrays, {"dtype": dtype_name, "axis": axis})


def _multiply_fixed(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape()
    axis = choices.axis(len(shape))
    factors = choices.pick((), (shape[axis],))
    multipliers, shifts = choices.array(factors, dtype_name, 1 << 30, (1 << 31) - 256), choices.array(factors, dtype_name, -12, -1)
    if choices.pick(False, True):
        # Powers of two, so that many products are halfway between integers, on both sides of 0.
        multipliers, shifts = np.full_like(multipliers, 1 << 30), np.maximum(shifts, -3)
    attrs = {"axis": axis, "rounding": choices.pick(*ROUNDINGS)}
    return Example(ops.multiply_fixed, (choices.array(shape, dtype_name, -100000, 100000), multipliers, shifts), attrs)


def _random(name: str) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        state = np.array(choices.seed() * 2**40 + 7, np.uint64)
        return Example(ops.TABLE[name], (state,), {"shape": choices.shape(), "dtype": dtype_name})

    return make


_DRAWN = ("float32", "float64", "float16", "bfloat16")

ENTRIES = (
    Entry(ops.quantize, _STORED, _quantize, exact=True),
    Entry(ops.dequantize, (*_STORED, "int32"), _dequantize),
    Entry(ops.requantize, ("int8", "uint8", "int16", "uint4"), _requantize, exact=True),
    Entry(ops.multiply_fixed, ("int32",), _multiply_fixed, exact=True),
    Entry(ops.random_uniform, _DRAWN, _random("random_uniform"), exact=True),
    Entry(ops.random_normal, _DRAWN, _random("random_normal")),
)
