"""Products in fixed point by upper halves: the same integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Function, constant, function, post_order, var
from inlaid.passes.fixed_products import fixed_products
from inlaid_runtime.types import TensorType

LEAST, GREATEST = -(1 << 31), (1 << 31) - 1


def product(multiplier: object, shift: object, rounding: str, size: int = 3) -> Function:
    x = var("x", TensorType((400, size), "int32"))
    factors = (constant(np.array(part, np.int32)) for part in (multiplier, shift))
    return function([x], ops.multiply_fixed(x, *factors, axis=1, rounding=rounding))


def names(unit: Function) -> list[str]:
    return [expr.callee.name for expr in post_order(unit) if isinstance(expr, Call) and not isinstance(expr.callee, Function)]


def hard(generator: np.random.Generator, multiplier: int, shift: int) -> np.ndarray:
    """Numbers whose products lie next to halves, the ends of the type, and others."""
    steps = np.arange(-45, 45, dtype=np.int64) << (30 - shift)
    halves = np.clip(steps // max(multiplier, 1), LEAST, GREATEST)
    half_neighbors = np.clip(np.concatenate([halves + d for d in (-1, 0, 1)]), LEAST, GREATEST)
    ends = np.array([LEAST, LEAST + 1, -1, 0, 1, GREATEST])
    rest = generator.integers(LEAST, GREATEST, 400 - half_neighbors.size - ends.size, endpoint=True)
    return np.concatenate([half_neighbors, ends, rest]).astype(np.int32)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.lists(st.integers((1 << 30), GREATEST) | st.just(0), min_size=3, max_size=3),
    st.lists(st.integers(-31, -2), min_size=3, max_size=3) | st.just([-1] * 3),
    st.sampled_from(["up", "away"]),
    st.booleans(),
)
def test_the_same_integers(seed: int, multipliers: list[int], shifts: list[int], rounding: str, several: bool) -> None:
    unit = product(multipliers if several else multipliers[0], shifts if several else shifts[0], rounding)
    changed = fixed_products(unit)
    assert names(changed) == ["multiply_high"]
    generator = np.random.default_rng(seed)
    data = np.stack([hard(generator, m, s) for m, s in zip(multipliers, shifts, strict=True)], axis=1)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


@pytest.mark.parametrize("rounding", ["up", "away"])
@pytest.mark.parametrize("multiplier", [1 << 30, 1654321987])
@pytest.mark.parametrize("shift", [-21, -3, -1, 0, 1, 3])
def test_raised_bytes(shift: int, multiplier: int, rounding: str) -> None:
    """Shifted to the left as far as they can be; by powers of two they are only shifted, as long as no bit is lost."""
    x = var("x", TensorType((256,), "int8"))
    wide = ops.shift_left(ops.sub(ops.cast(x, dtype="int32"), constant(np.int32(-128))), constant(np.int32(20)))
    unit = function([x], ops.multiply_fixed(wide, constant(np.int32(multiplier)), constant(np.int32(shift)), rounding=rounding))
    changed = fixed_products(unit)
    power, wide_enough = multiplier == 1 << 30, shift < (3 if multiplier == 1 << 30 else 2)
    assert names(changed)[-1] == (
        "multiply_fixed" if not wide_enough else "shift_left" if power and shift > -20 else "multiply_high"
    )
    data = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


def test_what_stays() -> None:
    for unit in (
        product(1 << 30, 1, "up"),  # the sum might wrap
        product([1 << 30] * 3, [-1, -3, -2], "up"),  # another number to add for each channel
        product(-(1 << 30), -1, "up"),
        product(1 << 30, -1, "once"),
        product(1 << 30, -1, "once_away"),
    ):
        assert fixed_products(unit) is unit
