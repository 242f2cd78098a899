"""Sigmoid and tanh of 16-bit fixed-point numbers, in gemmlowp's arithmetic.

exp(-x) is looked up in a table by the bits of x below 1/4, and multiplied by a constant for each higher bit that is set. A
reciprocal takes three Newton iterations. All values are int32; tables of all 16-bit values would need 128 KiB per function.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid_tflite.fixed import FIRST, GREATEST, LEAST, SLOPE, halved, number, saturate_int16

Array = np.ndarray[Any, Any]

FACTORS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""exp(-2^k) by k, with 31 fraction bits."""
EIGHTH, THIRD = 1895147668, 715827883
"""exp(-1/8) and 1/3, with 31 fraction bits."""
HALF = 1 << 14
"""1/2 with 15 fraction bits."""


def sigmoid(value: Expr, bits: int) -> Expr:
    """Compute the sigmoid of int32 values in the int16 range with `bits` fraction bits. The results have 15 fraction bits."""
    positive = _shift_left(_reciprocal(_exponential(_negative(value), bits)), 1)
    result = ops.where(ops.less(number(0), value), positive, ops.sub(number(GREATEST), positive))
    return ops.where(ops.equal(value, number(0)), number(HALF), result)


def tanh(value: Expr, bits: int) -> Expr:
    """Compute tanh of int32 values in the int16 range with `bits` fraction bits. The results have 15 fraction bits."""
    # Twice the value has one fraction bit less.
    inverse = _reciprocal(_exponential(_negative(value), bits - 1))
    positive = _shift_left(ops.sub(inverse, number(1 << 13)), 2)
    result = ops.where(ops.less(number(0), value), positive, ops.neg(positive))
    return ops.where(ops.equal(value, number(0)), number(0), result)


def _negative(value: Expr) -> Expr:
    """Return -|value|."""
    return ops.neg(ops.abs(value))


def _shift_left(value: Expr, places: int) -> Expr:
    """Shift left and saturate to 16 bits."""
    return ops.clip(ops.shift_left(value, number(places)), minimum=float(LEAST), maximum=float(GREATEST))


def _product(a: Expr, b: Expr) -> Expr:
    """Compute a * b / 2^15, rounded to nearest, halves up."""
    return ops.shift_right(ops.add(ops.mul(a, b), number(HALF)), number(15))


def _exponential(value: Expr, fraction: int) -> Expr:
    """Compute exp of negative values with `fraction` fraction bits. The result has 15 fraction bits."""
    quarter = 1 << (fraction - 2)
    low = ops.bitwise_and(value, number(quarter - 1))
    result: Expr = ops.cast(ops.take(constant(_quarter(fraction)), low, axis=0), dtype="int32")
    higher_bits = ops.sub(ops.sub(low, number(quarter)), value)
    for exponent, factor in FACTORS.items():
        if fraction + exponent >= 0 and 15 - fraction > exponent:
            is_set = ops.less(number(0), ops.bitwise_and(higher_bits, number(1 << (fraction + exponent))))
            result = _product(result, ops.where(is_set, number(_short(factor)), number(1 << 15)))
    if (32 << fraction) <= -LEAST:  # the factors cover values down to -32, where the result is 0 in 15 bits
        result = ops.where(ops.less(value, number(-(32 << fraction))), number(0), result)
    return result


def _reciprocal(value: Expr) -> Expr:
    """Compute 2 / (1 + x) for x in [0, 1] with 15 fraction bits. The result has 13 fraction bits."""
    half = ops.shift_right(ops.add(value, number(GREATEST + 1)), number(1))
    x: Expr = ops.add(_product(half, number(_short(SLOPE))), number(_short(FIRST)))
    for _ in range(3):
        error = ops.sub(number(1 << 13), _product(half, x))
        x = ops.add(x, ops.shift_left(_product(x, error), number(2)))  # within 16 bits for all values
    return x


def _short(number: int) -> int:
    """Round a 32-bit constant to 16 bits."""
    return int(saturate_int16(halved(np.asarray(number, np.int64), 16)))


@cache
def _quarter(fraction: int) -> Array:
    """Tabulate exp of the values in [-1/4, 0) with `fraction` fraction bits, in ascending order: a polynomial of degree 4 around
    -1/8. The results have 15 fraction bits."""

    def product(a: Array, b: Array | int) -> Array:
        total: Array = a * b + HALF
        return total >> 15

    quarter = 1 << (fraction - 2)
    x: Array = saturate_int16((np.arange(quarter, dtype=np.int64) - quarter) << (15 - fraction)) + (1 << 12)
    square = product(x, x)
    cube = product(square, x)
    fourth = halved(product(square, square), 2)
    tail = halved(product(fourth + cube, _short(THIRD)) + square, 1)
    term = _short(EIGHTH)
    return saturate_int16(term + product(x + tail, term)).astype(np.int16)
