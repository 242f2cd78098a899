"""Integer LSTM layers: 8-bit weights and data, 16-bit cells.

Gates have 12 fraction bits before their activations and 15 after. The scale of a cell is a power of two, which determines its
fraction bits. The activations use gemmlowp's fixed-point arithmetic; they are computed at import as tables of all 16-bit values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.frontends.tflite.fixed import FIRST, GREATEST, LEAST, SLOPE, halved, saturate_int16
from inlaid.frontends.tflite.node import Node, tensor_type
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import scalar, slice_axis
from inlaid.ops.fixed_point import scaled
from inlaid.ops.steps import States, run_steps

Array = np.ndarray[Any, Any]

GATE_BITS = 12
"""Fraction bits of a gate before its activation."""
EXPONENTS = {-2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242}
"""exp(-2^k) by k, with 31 fraction bits."""
EIGHTH, THIRD = 1895147668, 715827883
"""exp(-1/8) and 1/3, with 31 fraction bits."""


# --- 16-bit fixed-point arithmetic, on arrays of int64 ------------------------------------------------------------


def _short(number: int) -> int:
    """Round a 32-bit constant to 16 bits."""
    return int(saturate_int16(halved(np.asarray(number, np.int64), 16)))


def _product(a: Array, b: Array | int) -> Array:
    """Compute a * b / 2^15, rounded to nearest. A half is rounded towards 0 for a negative product, otherwise up."""
    value = a * b
    moved = value + np.where(value >= 0, 1 << 14, 1 - (1 << 14))
    return np.asarray(np.minimum(np.sign(moved) * (np.abs(moved) >> 15), GREATEST))


def _exponential(value: Array, fraction: int) -> Array:
    """Compute exp of non-positive values with `fraction` fraction bits. The result has 15 fraction bits."""
    quarter = 1 << (fraction - 2)
    part = (value & (quarter - 1)) - quarter
    x = saturate_int16(part << (15 - fraction)) + (1 << 12)
    square = _product(x, x)
    cube = _product(square, x)
    fourth = halved(_product(square, square), 2)
    tail = halved(_product(fourth + cube, _short(THIRD)) + square, 1)
    term = _short(EIGHTH)
    result = saturate_int16(term + _product(x + tail, term))
    rest = part - value
    for exponent, factor in EXPONENTS.items():
        if fraction + exponent >= 0 and 15 - fraction > exponent:
            result = np.where(rest & (1 << (fraction + exponent)), _product(result, _short(factor)), result)
    # The factors cover values down to -32, where the result is 0 in 15 bits.
    return np.where(value == 0, GREATEST, np.where(value < -(32 << fraction), 0, result))


def _reciprocal(value: Array) -> Array:
    """Compute 2 / (1 + x) for x in [0, 1] with 15 fraction bits, by three Newton iterations. The result has 13 fraction bits."""
    total = value + GREATEST
    half = (total + 1) >> 1
    x = _short(FIRST) + _product(half, _short(SLOPE))
    for _ in range(3):
        missing = (1 << 13) - _product(half, x)
        x = x + saturate_int16(_product(x, missing) << 2)
    return x


@cache
def sigmoids() -> Array:
    """Tabulate the sigmoid of every int16 with 12 fraction bits, in ascending order. The results have 15 fraction bits."""
    every = np.arange(LEAST, GREATEST + 1, dtype=np.int64)
    positive = saturate_int16(_reciprocal(_exponential(np.maximum(-np.abs(every), LEAST), GATE_BITS)) << 1)
    found = np.where(every > 0, positive, GREATEST - positive)
    return np.where(every == 0, 1 << 14, found).astype(np.int16)


@cache
def tangents(bits: int) -> Array:
    """Tabulate tanh of every int16 with `bits` fraction bits, in ascending order. The results have 15 fraction bits."""
    every = np.arange(LEAST, GREATEST + 1, dtype=np.int64)
    # Twice the value has one fraction bit less.
    negative = np.maximum(-np.abs(every), LEAST)
    found = saturate_int16((_reciprocal(_exponential(negative, bits - 1)) - (1 << 13)) << 2)
    return np.where(every == 0, 0, np.where(every > 0, found, -found)).astype(np.int16)


# --- the layer --------------------------------------------------------------------------------------------------------


def _look_up(table: Expr, value: Expr) -> Expr:
    """Look up int32 values, in the int16 range, in a table with one entry per int16. Returns int32."""
    return ops.cast(ops.take(table, ops.add(value, scalar(-LEAST, "int32")), axis=0), dtype="int32")


def _clipped(value: Expr, least: float = LEAST, greatest: float = GREATEST) -> Expr:
    return ops.clip(value, minimum=float(least), maximum=float(greatest))


def _rounded(value: Expr, places: int) -> Expr:
    """Compute value / 2^places for int32, rounded half away from 0."""
    half = 1 << (places - 1)
    moved = ops.where(ops.less(value, scalar(0, "int32")), scalar(half - 1, "int32"), scalar(half, "int32"))
    return ops.shift_right(ops.add(value, moved), scalar(places, "int32"))


def steps(node: Node, x: Expr, first: int, output: int, cell: int) -> tuple[Expr, States]:
    """Run the layer on x (time, batch, inputs). Returns (outputs of all steps, (last output, last cell)). `first`, `output` and
    `cell` are input indices: of the first weights, of the output state and of the cell state."""
    if node.tensor(0).dtype.name != "int8" or node.tensor(cell).dtype.name != "int16":
        raise node.error("an integer LSTM must have int8 data and an int16 cell: convert the layer so, or keep it in floats")
    if any(node.has(index) for index in (*range(first + 8, first + 11), first + 15, first + 16, *range(20, 24))):
        raise node.error("integer peepholes, projections and layer norms are not supported: keep the layer in floats")
    if not node.has(first) or len(node.intermediates) != 5:
        raise node.error("integer coupled gates or missing intermediate scales are not supported: keep the layer in floats")
    cell_scale, _ = node.pair(node.tensor(cell))
    power = math.log2(float(cell_scale))
    if power != round(power) or not -15 <= power <= -9:
        raise node.error(f"the scale of the cell must be a power of two from 2^-15 to 2^-9, got {cell_scale}")
    bits = -round(power)
    hidden_scale, hidden_point = node.pair(node.intermediates[4])
    given, products = _products(node, x, first, output)
    sigmoid, tangent, of_cell = (constant(table) for table in (sigmoids(), tangents(GATE_BITS), tangents(bits)))
    limit = float(node.option("CellClip", 0.0))
    bound = min(max(int(np.float32(limit) / cell_scale), LEAST), GREATEST) if limit > 0 else GREATEST
    units = node.shape(first + 14)[0]

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        gates = _clipped(ops.add(slices[0], products(states[0])))
        take, forget, new, show = (slice_axis(gates, 1, units * gate, units * (gate + 1)) for gate in range(4))
        take, forget, show = (_look_up(sigmoid, gate) for gate in (take, forget, show))
        kept = _rounded(ops.mul(forget, ops.cast(states[1], dtype="int32")), 15)
        added = _rounded(ops.mul(take, _look_up(tangent, new)), 30 - bits)
        total = _clipped(ops.add(kept, added))
        total = _clipped(total, -bound, bound) if limit > 0 else total
        product = ops.mul(show, _look_up(of_cell, total))
        result = ops.add(scaled(product, [2.0**-30 / float(hidden_scale)]), scalar(hidden_point, "int32"))
        narrow = ops.cast(_clipped(result, -128, 127), dtype="int8")
        return narrow, (narrow, ops.cast(total, dtype="int16"))

    return run_steps(step, [given], (node.input(output), node.input(cell)))


def _products(node: Node, x: Expr, first: int, output: int) -> tuple[Expr, Callable[[Expr], Expr]]:
    """Return the products of all data and the gates' weights, plus biases, concatenated, as 16-bit values with 12 fraction bits.
    Also returns a function that computes the products of an output, which may exceed 16 bits."""

    def product(value: Expr, start: int, scale: Any, point: int, biased: bool) -> Expr:
        parts = []
        for gate in range(4):
            weights = node.array(start + gate)
            bias = -np.int32(point) * weights.astype(np.int32).sum(1, dtype=np.int32)
            if biased:
                bias = bias + node.array(first + 11 + gate).astype(np.int32)
            total = ops.add(ops.matmul(value, constant(np.ascontiguousarray(weights.T))), constant(bias))
            weight, _ = node.pair(node.tensor(start + gate))
            factor = np.float32(weight * scale) / np.float32(2.0**-GATE_BITS)
            parts.append(scaled(total, [float(factor)]))
        return ops.concat(*parts, axis=tensor_type(value).rank - 1)

    (scale, point), (state_scale, state_point) = node.pair(node.tensor(0)), node.pair(node.tensor(output))
    given = _clipped(product(x, first, scale, point, True))
    return given, lambda value: product(value, first + 4, state_scale, state_point, False)
