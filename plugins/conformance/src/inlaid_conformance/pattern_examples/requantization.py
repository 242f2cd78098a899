"""Factors of requantizations in examples: they scale sums to 8 bits, since saturation would hide rounding, and some sums to a value
halfway between two integers."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.ops.fixed_point import FRACTION, ROUNDINGS, SINGLE
from inlaid.plugins.contract import UP
from inlaid_conformance.factors import distinguished, tie_multipliers
from inlaid_conformance.pattern_examples.bindings import Bindings
from inlaid_conformance.pattern_examples.draws import Draw
from inlaid_conformance.values import Array
from inlaid_runtime.errors import KernelFault

REQUANTIZATIONS = (ops.multiply_fixed, ops.requantize)
"""Operators that scale sums by constants."""
RANDOM_MULTIPLIERS = 24
"""Number of random multipliers tried to find one that leaves sums halfway between integers."""
SHIFTS = (-24, 7)
"""Least and greatest shift of a factor."""
HALF = 1 << 30
"""The multiplier of a factor 1/2 without shift."""


def declared_rounding(operator: Operator, attributes: Mapping[str, Any], required: Mapping[str, object], draw: Draw) -> str | None:
    """Return a declared rounding that replaces one which the target does not declare: its rules would reject most examples with
    several factors. Returns None if the rounding stays."""
    if operator is not ops.multiply_fixed or "rounding" in required:
        return None
    roundings = [rounding for rounding in ROUNDINGS if rounding in draw.target.requantization.roundings]
    if not roundings or attributes.get("rounding", UP) in roundings:
        return None
    return roundings[draw.number % len(roundings)]


class FactorChooser:
    """Chooses factors of requantizations for the values of an example."""

    def __init__(self, draw: Draw, source: random.Random, bindings: Bindings) -> None:
        self._draw = draw
        self._random = source
        self._bindings = bindings

    def operands(self, operands: Sequence[ir.Expr], axis: int, rounding: str) -> list[ir.Expr]:
        """Return the operands of a requantization with chosen factors; the same operands if factors are no constants, or if there
        is nothing to scale."""
        total, factor, *trailing_operands = operands
        shift = operands[-1]
        if not isinstance(factor, ir.Constant) or not isinstance(shift, ir.Constant):
            return list(operands)
        sums = self._values(total)
        if sums is None or (factor.data.ndim and sums.shape[axis : axis + 1] != factor.data.shape):
            return list(operands)
        magnitude = float(np.abs(sums.astype(np.float64)).max(initial=0))
        if not magnitude:
            return list(operands)
        if factor.data.dtype == np.float32:
            return [total, _real_factor(factor.data, magnitude), *trailing_operands]
        return [total, *self._fixed_factor(sums, magnitude, factor.data, shift.data, axis, rounding)]

    def _values(self, total: ir.Expr) -> Array | None:
        """Return the sums for the example's inputs, None if the reference reports a fault."""
        try:
            return np.asarray(evaluate(ir.function(tuple(self._bindings.params), total), self._bindings.inputs))
        except KernelFault:
            return None

    def _fixed_factor(
        self, sums: Array, magnitude: float, multiplier: Array, shift: Array, axis: int, rounding: str
    ) -> tuple[ir.Constant, ir.Constant]:
        """Return multiplier and shift in place of those of an example, for sums of magnitudes up to `magnitude`."""
        requantization, draw = self._draw.target.requantization, self._draw
        least, greatest = requantization.shifts or SHIFTS
        if draw.mix == "small" and draw.aim == "roundings" and least <= 0 <= greatest:
            # Half of each sum: odd sums are ties, which larger sums times a factor of many bits are not.
            return ir.constant(np.full_like(multiplier, HALF)), ir.constant(np.zeros_like(shift))
        shifts = shift + (7 - math.frexp(magnitude)[1] - int(shift.max()))
        shifts = np.clip(shifts, max(least, SHIFTS[0]), min(greatest, SHIFTS[1])).astype(np.int32)
        broadcast = [-1 if number == axis and multiplier.ndim else 1 for number in range(sums.ndim)]

        def distinction(option: Array) -> tuple[int, int, int]:
            single = rounding in SINGLE
            modes, ties, narrow = distinguished(sums, option.reshape(broadcast), shifts.reshape(broadcast), single)
            return (narrow, modes, ties) if draw.aim == "multipliers" else (modes, ties, narrow)

        best = max(self._multipliers(sums, multiplier, int(shifts.max())), key=distinction)
        return ir.constant(best.astype(np.int32)), ir.constant(shifts)

    def _multipliers(self, sums: Array, multiplier: Array, shift: int) -> list[Array]:
        """Return the multipliers to choose from, with as many bits as those of the target: that of the example, one half, random
        ones, and those that leave a sum near a tie."""
        shape = multiplier.shape
        seeds = [self._random.randrange(1 << 16) for _ in range(RANDOM_MULTIPLIERS)]
        random_multipliers: list[Array] = [
            np.asarray(np.random.default_rng(seed).integers(HALF, 2 * HALF, shape)) for seed in seeds
        ]
        tie_options = [np.full(shape, option) for option in tie_multipliers(sums, shift)]
        unused_bits = (1 << (FRACTION - self._draw.target.requantization.multiplier_bits)) - 1
        options: list[Array] = [multiplier.astype(np.int64), np.full(shape, HALF), *random_multipliers, *tie_options]
        return [option & ~unused_bits for option in options]


def _real_factor(factor: Array, magnitude: float) -> ir.Constant:
    """Return a factor in float32, times a power of two that scales sums of magnitudes up to `magnitude` to 8 bits."""
    exponent = 7 - math.frexp(magnitude * float(factor.max()))[1]
    return ir.constant(np.ldexp(factor, exponent).astype(np.float32))
