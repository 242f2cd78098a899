"""Composites of integers: types inside of them are derived, and targets that lack their requantization do not take them."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Match, is_op, wildcard
from inlaid.ops.composites import quantized_matmul, quantized_mean
from inlaid.partitioning.accumulate import magnitudes, overflow
from inlaid.partitioning.annotate import Candidate, annotate
from inlaid.plugins import OpRule, Reject, Requantization, Target
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

X = ir.var("x", TensorType((4, 7), "int8"))


def layer(rounding: str, multiplier: int = 1_234_567_891, shifts: tuple[int, ...] = (-4,), weights: str = "int8") -> ir.Expr:
    total = ops.matmul(X, ir.constant(np.ones((7, 3), weights)), out_dtype="int32")
    total = ops.add(total, ir.constant(np.arange(3, dtype=np.int32)))
    if rounding == "half_even":
        scale = ir.constant(np.float32(multiplier * 2.0 ** (shifts[0] - 31)))
        return ops.requantize(total, scale, ir.constant(np.int8(3)), dtype="int8")
    places = np.array(shifts, np.int32) if len(shifts) > 1 else np.int32(shifts[0])
    factor = np.broadcast_to(np.int32(multiplier), np.shape(places))
    moved = ops.multiply_fixed(total, ir.constant(np.array(factor)), ir.constant(places), axis=1, rounding=rounding)
    return ops.cast(ops.clip(moved, minimum=-128.0, maximum=127.0), dtype="int8")


def verdict(body: ir.Expr, having: Requantization | None = None, dtypes: tuple[str, ...] = ("int8",)) -> str:
    """What a target says of the last operator: "" where it takes the layer."""
    candidate = Candidate(
        Target("a"), (OpRule(quantized_matmul(), "product"),), frozenset(dtypes), requantization=having or Requantization()
    )
    annotations = annotate(ir.function([X], body), (candidate,))
    last = annotations.verdicts[id(annotations.calls[-1])][0]
    return last.reason if isinstance(last, Reject) else ""


@pytest.mark.parametrize("rounding", ["half_even", "up", "away", "once", "once_away"])
def test_a_target_lists_what_it_stores(rounding: str) -> None:
    assert verdict(layer(rounding)) == ""
    assert "element type int8 is not among" in verdict(layer(rounding), dtypes=("int32", "float32"))


def test_weights_are_stored_too() -> None:
    assert verdict(layer("up", weights="int16")) == "as product: element type int16 is not among its capabilities"


FIXED = Requantization(("up", "once"), multiplier_bits=31, shifts=(-8, 0), per_channel=False)


@pytest.mark.parametrize(
    ("body", "having", "reason"),
    [
        (layer("up"), FIXED, ""),
        (layer("half_even"), FIXED, "rounding half_even, but the target supports up and once"),
        (layer("away"), FIXED, "rounding away, but the target supports up and once"),
        (layer("up", shifts=(-4, -3, -4)), FIXED, "requantizes per channel, but the target supports only one factor per tensor"),
        (layer("up", shifts=(-4, -4, -4)), FIXED, ""),
        (layer("up", shifts=(-9,)), FIXED, "shifts from -9 to -9, but the target supports -8 to 0"),
        (layer("up"), Requantization(("up",), 16), "31-bit multipliers, but the target supports 16 bits"),
        (layer("up", 0x5A5A << 16), Requantization(("up",), 16), ""),
        (layer("once", 0x5A5A, (12,)), Requantization(("once",), 16, (-8, 0)), ""),
        (layer("once", 1 << 30), Requantization(("once",), 1), ""),
        (layer("once_away", 0x5A5A, (12,)), Requantization(("once_away",), 16, (-8, 0)), ""),
        (layer("once_away"), Requantization(("once",)), "rounding once_away, but the target supports once"),
        (layer("once", 1 << 29, (-7,)), Requantization(("once",), 1, (-7, 0)), "2-bit multipliers, but the target supports 1 bits"),
    ],
)
def test_a_target_takes_the_requantization_that_it_has(body: ir.Expr, having: Requantization, reason: str) -> None:
    actual = verdict(body, having)
    assert actual == ("" if not reason else actual) and reason in actual and bool(actual) == bool(reason)


def test_the_composites_reason_stands_alone_for_all_of_its_operators() -> None:
    body = layer("away")
    candidate = Candidate(Target("a"), (OpRule(quantized_matmul(), "product"),), frozenset(["int8"]), requantization=FIXED)
    annotations = annotate(ir.function([X], body), (candidate,))
    reasons = {annotations.verdicts[id(call)][0].reason for call in annotations.calls}  # type: ignore[union-attr]
    assert reasons == {"as product: it requantizes with rounding away, but the target supports up and once"}


def summed(weights: np.ndarray, bias: int, dtype: str = "int8", rounding: str = "up") -> ir.Expr:
    """A layer whose product has these weights and this bias."""
    x = ir.var("x", TensorType((4, len(weights)), dtype))
    total = ops.add(ops.matmul(x, ir.constant(weights), out_dtype="int32"), ir.constant(np.int32(bias)))
    if rounding == "shift":
        total = ops.shift_right(ops.add(total, ir.constant(np.int32(1 << 9))), ir.constant(np.int32(10)))
    else:
        total = ops.multiply_fixed(total, ir.constant(np.int32(1 << 30)), ir.constant(np.int32(-4)), axis=1, rounding=rounding)
    return ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8")


def column(*weights: int) -> np.ndarray:
    """Weights with a second output channel of smaller sums."""
    return np.array([weights, [1] * len(weights)], np.int8).T


def image_mean(shape: tuple[object, ...], center: int = 0) -> ir.Expr:
    wide = ops.cast(ir.var("x", TensorType(shape, "int8")), dtype="int32")
    if center:
        wide = ops.sub(wide, ir.constant(np.int32(center)))
    total = ops.multiply_fixed(
        ops.reduce_sum(wide, axes=(2, 3)), ir.constant(np.int32(1 << 30)), ir.constant(np.int32(-4)), rounding="up"
    )
    return ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8")


def both_computed(depth: object) -> ir.Expr:
    a, b = ir.var("a", TensorType((3, depth), "int8")), ir.var("b", TensorType((depth, 2), "int8"))
    return ops.cast(ops.matmul(a, b, out_dtype="int32"), dtype="int8")


PATTERNS = (
    quantized_matmul(),
    quantized_mean(),
    is_op("cast")(is_op("matmul")(wildcard(), wildcard())),
)


def refused(body: ir.Expr, bits: int, roundings: tuple[str, ...] = ()) -> str:
    """What a target with accumulators of some width says of a composite."""
    rules = tuple(OpRule(pattern, f"rule{number}") for number, pattern in enumerate(PATTERNS))
    having = Requantization(roundings, accumulator_bits=bits)
    params = [expr for expr in ir.post_order(body) if isinstance(expr, ir.Var)]
    annotations = annotate(
        ir.function(params, body), (Candidate(Target("a"), rules, frozenset(["int8", "uint8"]), requantization=having),)
    )
    last = annotations.verdicts[id(annotations.calls[-1])][0]
    return last.reason if isinstance(last, Reject) else ""


@pytest.mark.parametrize(
    ("body", "bits"),
    [
        (summed(column(127, -128), 0), 16),  # 32,640
        (summed(column(127, -128), 127), 16),  # 32,767
        (summed(column(127, -128), -128), 17),  # 32,768
        (summed(column(127, -1), 128, "uint8"), 17),  # 32,768, as 255 is the greatest
        (summed(column(127, -1), 127, "uint8"), 16),
        (summed(column(127, -128), 127, rounding="shift"), 16),  # without the half that rounds
        (image_mean((1, 3, 16, 15)), 16),  # 240 * 128
        (image_mean((1, 3, 16, 16)), 17),  # 256 * 128
        (image_mean((1, 3, 16, 15), -9), 17),
        (image_mean((1, 3, SizeVar("n", 1, 16), 16)), 17),
        (both_computed(SizeVar("n", 1, 511)), 24),
        (both_computed(512), 25),
    ],
)
def test_sums_fit_the_accumulator(body: ir.Expr, bits: int) -> None:
    assert refused(body, bits) == ""
    assert f"its sums need {bits} bits, but the target accumulates in {bits - 1}" in refused(body, bits - 1)


def test_biases_count_wherever_they_are_added() -> None:
    """Behind a reshape, and to a sum that another operator reads first."""
    x, big = ir.var("x", TensorType((4, 8), "int8")), ir.constant(np.int32(1 << 26))
    total = ops.matmul(x, ir.constant(np.ones((8, 2), np.int8)), out_dtype="int32")
    reshaped = ops.add(ops.reshape(total, shape=(2, 4)), big)
    for body in (reshaped, ops.maximum(ops.relu(total), ops.add(total, big))):
        calls = tuple(expr for expr in reversed([*ir.post_order(body)]) if isinstance(expr, ir.Call))
        assert overflow(Match(body, {}, calls), 24) == "its sums need 28 bits, but the target accumulates in 24"
        assert overflow(Match(body, {}, calls), 28) is None


CASES = [(ops.conv, 1), (ops.conv, 2), (ops.conv_transpose, 1), (ops.conv_transpose, 2), (ops.matmul, 1)]


@pytest.mark.parametrize(("operator", "groups"), CASES)
def test_sums_are_bounded_by_those_of_magnitudes(operator: Operator, groups: int) -> None:
    rng, images = np.random.default_rng(groups), operator is not ops.matmul
    x = ir.var("x", TensorType((1, 4, 3, 3) if images else (3, 4), "int8"))
    shape = (6, 4 // groups) if operator is ops.conv else (4, 6)
    weights = rng.integers(-128, 128, (*shape, 3, 3) if images else shape).astype(np.int8)
    attrs = {"groups": groups} if images else {}
    call = operator(x, ir.constant(weights), out_dtype="int32", **attrs)
    # Every weight takes part in the sum of the middle pixel.
    sizes = operator(x, ir.constant(np.abs(weights.astype(np.int32))), out_dtype="int32", **attrs)
    extremes = np.abs(evaluate(ir.function([x], sizes), [np.full(x.type.shape, -128, np.int8)]))
    middle = extremes.max((0, *range(2, extremes.ndim))) if images else extremes.max(0)
    bound = magnitudes(call)
    assert bound is not None and bound.reshape(-1).tolist() == middle.tolist()


def test_a_sum_of_unknown_length_does_not_fit() -> None:
    assert "the number of terms of its sums has no upper bound" in refused(both_computed(SizeVar("n", 1)), 31)
    assert refused(both_computed(SizeVar("n", 1)), 32) == ""


def test_sums_and_roundings_are_both_checked() -> None:
    body = summed(column(1, 1), 0, rounding="away")
    assert "its sums need 10 bits" in refused(body, 9, ("up",))
    assert "rounding away" in refused(body, 10, ("up",))
    assert refused(body, 10, ("away",)) == ""
