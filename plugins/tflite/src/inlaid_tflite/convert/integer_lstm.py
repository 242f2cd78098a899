"""Integer LSTM layers: 8-bit weights, data of 8 or 16 bits, 16-bit cells.

Gates have 12 fraction bits before their activations and 15 after. The scale of a cell is a power of two, which determines its
fraction bits. Layers of int8 compute as LiteRT: the activations in gemmlowp's fixed-point arithmetic, products of gates rounded
once. Layers of int16, which LiteRT lacks, compute as TensorFlow Lite Micro: sums of 64 bits, activations by an interpolated table,
and products of gates by fixed-point multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import scalar, slice_axis
from inlaid.ops.fixed_point import scaled
from inlaid.ops.steps import States, run_steps
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import dtype
from inlaid_tflite.convert.fixed_activations import sigmoid, tanh
from inlaid_tflite.fixed import GREATEST, LEAST, table_sigmoid, table_tanh
from inlaid_tflite.node import Node, tensor_type

GATE_BITS = 12
"""Fraction bits of a gate before its activation."""


def _clipped(value: Expr, least: float = LEAST, greatest: float = GREATEST) -> Expr:
    return ops.clip(value, minimum=float(least), maximum=float(greatest))


@dataclass(frozen=True)
class _Arithmetic:
    """The arithmetic of a layer. sigmoid, tanh: functions of int32 values with a number of fraction bits. quotient: divides
    int32 products of two 16-bit factors by 2 to a power. sums: dtype of products with weights. saturates: whether the product of
    the state is saturated before it is added to that of the data."""

    sigmoid: Callable[[Expr, int], Expr]
    tanh: Callable[[Expr, int], Expr]
    quotient: Callable[[Expr, int], Expr]
    sums: str
    saturates: bool


def _rounded(value: Expr, places: int) -> Expr:
    """Compute value / 2^places for int32, rounded half away from 0."""
    half = 1 << (places - 1)
    offset = ops.where(ops.less(value, scalar(0, "int32")), scalar(half - 1, "int32"), scalar(half, "int32"))
    return ops.shift_right(ops.add(value, offset), scalar(places, "int32"))


ARITHMETIC = {
    "int8": _Arithmetic(sigmoid, tanh, _rounded, "int32", False),
    "int16": _Arithmetic(
        lambda value, bits: table_sigmoid(_to_table_position(value, bits)),
        lambda value, bits: table_tanh(_to_table_position(value, bits)),
        lambda value, places: scaled(value, [2.0**-places]),
        "int64",
        True,
    ),
}
"""Arithmetic by dtype of the data."""


def _to_table_position(value: Expr, bits: int) -> Expr:
    """Convert values to positions in the table of sigmoids: 3 / 4 of the value with 14 fraction bits."""
    tripled = ops.mul(value, scalar(3, "int32"))
    if bits <= GATE_BITS:
        return ops.shift_left(tripled, scalar(GATE_BITS - bits, "int32"))
    places = bits - GATE_BITS
    return ops.shift_right(ops.add(tripled, scalar(1 << (places - 1), "int32")), scalar(places, "int32"))


def steps(node: Node, x: Expr, first: int, output: int, cell: int) -> tuple[Expr, States]:
    """Run the layer on x (time, batch, inputs). Returns (outputs of all steps, (last output, last cell)). `first`, `output` and
    `cell` are input indices: of the first weights, of the output state and of the cell state."""
    element = node.tensor(0).dtype
    arithmetic = ARITHMETIC.get(element.name)
    if arithmetic is None or node.tensor(cell).dtype.name != "int16" or node.tensor(output).dtype is not element:
        raise node.error(
            "an integer LSTM must have int8 or int16 data, an output state of the same type and an int16 cell: convert the layer "
            "so, or keep it in floats"
        )
    if any(node.has(index) for index in (*range(first + 8, first + 11), first + 15, first + 16, *range(20, 24))):
        raise node.error("integer peepholes, projections and layer norms are not supported: keep the layer in floats")
    if not node.has(first) or (len(node.intermediates) != 5 and element.bits == 8):
        raise node.error("integer coupled gates or missing intermediate scales are not supported: keep the layer in floats")
    cell_scale, _ = node.pair(node.tensor(cell))
    power = math.log2(float(cell_scale))
    if power != round(power) or not -15 <= power <= -9:
        raise node.error(f"the scale of the cell must be a power of two from 2^-15 to 2^-9, got {cell_scale}")
    bits = -round(power)
    hidden_scale, hidden_zero_point = node.pair(node.intermediates[4] if element.bits == 8 else node.tensor(output))
    data_products, state_products = _products(node, x, first, output, arithmetic)
    lowest, highest = element.limits
    limit = float(node.option("CellClip", 0.0))
    bound = min(max(int(np.float32(limit) / cell_scale), LEAST), GREATEST) if limit > 0 else GREATEST
    units = node.shape(first + 14)[0]

    def step(position: Expr, slices: States, states: States) -> tuple[Expr, States]:
        gates = _clipped(ops.add(slices[0], state_products(states[0])))
        input_gate, forget_gate, cell_gate, output_gate = (
            slice_axis(gates, 1, units * gate, units * (gate + 1)) for gate in range(4)
        )
        input_gate, forget_gate, output_gate = (
            arithmetic.sigmoid(gate, GATE_BITS) for gate in (input_gate, forget_gate, output_gate)
        )
        memory = arithmetic.quotient(ops.mul(forget_gate, ops.cast(states[1], dtype="int32")), 15)
        update = arithmetic.quotient(ops.mul(input_gate, arithmetic.tanh(cell_gate, GATE_BITS)), 30 - bits)
        total = _clipped(ops.add(memory, update))
        total = _clipped(total, -bound, bound) if limit > 0 else total
        product = ops.mul(output_gate, arithmetic.tanh(total, bits))
        result = ops.add(scaled(product, [2.0**-30 / float(hidden_scale)]), scalar(hidden_zero_point, "int32"))
        narrow = ops.cast(_clipped(result, lowest, highest), dtype=element.name)
        return narrow, (narrow, ops.cast(total, dtype="int16"))

    return run_steps(step, [data_products], (node.input(output), node.input(cell)), unrolled=1)  # a step has some 400 operators


def _products(node: Node, x: Expr, first: int, output: int, arithmetic: _Arithmetic) -> tuple[Expr, Callable[[Expr], Expr]]:
    """Return the products of all data and the gates' weights, plus biases, concatenated, as 16-bit values with 12 fraction bits.
    Also returns a function that computes the products of an output state and the recurrent weights."""
    sums = arithmetic.sums
    sums_dtype = dtype(sums).numpy

    def product(value: Expr, start: int, scale: Any, point: int, biased: bool) -> Expr:
        parts = []
        for gate in range(4):
            weights = node.array(start + gate)
            bias = np.asarray(-sums_dtype.type(point) * weights.astype(sums_dtype).sum(1, dtype=sums_dtype))
            if biased:
                bias = bias + node.array(first + 11 + gate).astype(sums_dtype)
            total = ops.matmul(value, constant(np.ascontiguousarray(weights.T)), out_dtype=sums)
            weight_scale, _ = node.pair(node.tensor(start + gate))
            factor = np.float32(weight_scale * scale) / np.float32(2.0**-GATE_BITS)
            parts.append(scaled(ops.add(total, constant(bias)), [float(factor)]))
        return ops.concat(*parts, axis=tensor_type(value).rank - 1)

    (scale, point), (state_scale, state_point) = node.pair(node.tensor(0)), node.pair(node.tensor(output))
    data_products = _clipped(product(x, first, scale, point, True))

    def state_products(value: Expr) -> Expr:
        products = product(value, first + 4, state_scale, state_point, False)
        return _clipped(products) if arithmetic.saturates else products

    return data_products, state_products
