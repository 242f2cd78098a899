"""Constants adapted to the calls that read them: bounds, weights and biases of narrow sums, and scales of biases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid_conformance.accumulators import fitted_weights, greatest_bias, is_narrow
from inlaid_conformance.values import Array
from inlaid_runtime.types import TensorType, from_numpy

BOUNDS = (ops.clip, ops.maximum, ops.minimum)
"""Operators that clamp values."""


def with_wide_bounds(
    operator: Operator, operands: list[ir.Expr], attributes: dict[str, Any]
) -> tuple[list[ir.Expr], dict[str, Any]]:
    """Return the operands and attributes of an operator that clamps integers, with bounds that keep most 8-bit values, since
    tighter bounds would hide errors in the values."""
    data = operands[0].type
    if not isinstance(data, TensorType) or not data.dtype.is_int:
        return operands, attributes
    low, high = (20, 220) if data.dtype.name == "uint8" else (-110, 100)
    if operator is ops.clip:
        return operands, {**attributes, "minimum": float(low), "maximum": float(high)}
    bound = operands[1]
    if not isinstance(bound, ir.Constant) or bound.data.size != 1 or from_numpy(bound.data.dtype) != data.dtype:
        return operands, attributes
    value = np.full_like(bound.data, low if operator is ops.maximum else high)
    return [operands[0], ir.constant(value)], attributes


class NarrowSums:
    """Sums of an example in an accumulator of `bits` bits."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._sums: dict[int, ir.Call] = {}

    def fit(self, call: ir.Call) -> ir.Call:
        """Return a sum with weights or a bias that fit the accumulator; other calls are unchanged."""
        constants = self._constants(call)
        if not constants:
            return call
        operands = (constants.get(number, operand) for number, operand in enumerate(call.args))
        call = ir.call(call.callee, tuple(operands), call.attrs)
        self._sums[id(call)] = call
        return call

    def _constants(self, call: ir.Call) -> dict[int, ir.Expr]:
        """Return new constants of a call, by number of the operand."""
        if is_narrow(call, self._bits):
            return {1: fitted_weights(call, self._bits)}
        if call.callee not in (ops.add, ops.sub) or not any(id(operand) in self._sums for operand in call.args):
            return {}
        bound = greatest_bias(self._bits)
        constants = ((number, operand) for number, operand in enumerate(call.args) if isinstance(operand, ir.Constant))
        return {number: ir.constant(constant.data.clip(-bound, bound)) for number, constant in constants}


class ProductScales:
    """Scales of products of dequantized values."""

    def __init__(self) -> None:
        self._scales: dict[int, tuple[ir.Call, Array]] = {}

    def record(self, call: ir.Call) -> None:
        """Record the scale of a call if it is a product of dequantized values."""
        scales = [operand.args[1] for operand in call.args if isinstance(operand, ir.Call) and operand.callee is ops.dequantize]
        if call.callee in (ops.conv, ops.matmul, ops.mul) and len(scales) == 2:
            first, second = (scale.data for scale in scales if isinstance(scale, ir.Constant))
            self._scales[id(call)] = call, (first * second).astype(first.dtype)

    def first(self, exprs: Iterable[ir.Expr]) -> Array | None:
        """Return the scale of the first recorded product among expressions, None without one."""
        return next((self._scales[id(expr)][1] for expr in exprs if id(expr) in self._scales), None)


def with_scale(expr: ir.Expr, step: Array) -> ir.Expr:
    """Replace the scale of a dequantization by `step`, a scalar or one scale per original scale."""
    assert isinstance(expr, ir.Call)
    scale = expr.args[1]
    if not isinstance(scale, ir.Constant) or step.size not in (1, scale.data.size):
        return expr
    constant = ir.constant(np.resize(step, scale.data.shape).astype(scale.data.dtype))
    return ir.rebuild(expr, tuple(constant if child is scale else child for child in ir.children(expr)))
