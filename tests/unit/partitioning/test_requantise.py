"""Composites of integers: types inside of them are derived, and targets that lack their requantisation do not take them."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.ops.composites import quantised_matmul
from inlaid.partitioning.annotate import Candidate, annotate
from inlaid.plugins import OpRule, Quantisation, Reject, Target
from inlaid.types import TensorType

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


def verdict(body: ir.Expr, having: Quantisation | None = None, dtypes: tuple[str, ...] = ("int8",)) -> str:
    """What a target says of the last operator: "" where it takes the layer."""
    candidate = Candidate(
        Target("a"), (OpRule(quantised_matmul(), "product"),), frozenset(dtypes), quantisation=having or Quantisation()
    )
    found = annotate(ir.function([X], body), (candidate,))
    last = found.verdicts[id(found.calls[-1])][0]
    return last.reason if isinstance(last, Reject) else ""


@pytest.mark.parametrize("rounding", ["half_even", "up", "away", "once", "once_away"])
def test_a_target_lists_what_it_stores(rounding: str) -> None:
    assert verdict(layer(rounding)) == ""
    assert "element type int8 is not among" in verdict(layer(rounding), dtypes=("int32", "float32"))


def test_weights_are_stored_too() -> None:
    assert verdict(layer("up", weights="int16")) == "as product: element type int16 is not among its capabilities"


FIXED = Quantisation(("up", "once"), multiplier_bits=31, shifts=(-8, 0), per_channel=False)


@pytest.mark.parametrize(
    ("body", "having", "reason"),
    [
        (layer("up"), FIXED, ""),
        (layer("half_even"), FIXED, "rounding half_even, but the target supports up and once"),
        (layer("away"), FIXED, "rounding away, but the target supports up and once"),
        (layer("up", shifts=(-4, -3, -4)), FIXED, "requantises per channel, but the target supports only one factor per tensor"),
        (layer("up", shifts=(-4, -4, -4)), FIXED, ""),
        (layer("up", shifts=(-9,)), FIXED, "shifts from -9 to -9, but the target supports -8 to 0"),
        (layer("up"), Quantisation(("up",), 16), "31-bit multipliers, but the target supports 16 bits"),
        (layer("up", 0x5A5A << 16), Quantisation(("up",), 16), ""),
        (layer("once", 0x5A5A, (12,)), Quantisation(("once",), 16, (-8, 0)), ""),
        (layer("once", 1 << 30), Quantisation(("once",), 1), ""),
        (layer("once_away", 0x5A5A, (12,)), Quantisation(("once_away",), 16, (-8, 0)), ""),
        (layer("once_away"), Quantisation(("once",)), "rounding once_away, but the target supports once"),
        (layer("once", 1 << 29, (-7,)), Quantisation(("once",), 1, (-7, 0)), "2-bit multipliers, but the target supports 1 bits"),
    ],
)
def test_a_target_takes_the_requantisation_that_it_has(body: ir.Expr, having: Quantisation, reason: str) -> None:
    found = verdict(body, having)
    assert found == ("" if not reason else found) and reason in found and bool(found) == bool(reason)


def test_the_composites_reason_stands_alone_for_all_of_its_operators() -> None:
    body = layer("away")
    candidate = Candidate(Target("a"), (OpRule(quantised_matmul(), "product"),), frozenset(["int8"]), quantisation=FIXED)
    found = annotate(ir.function([X], body), (candidate,))
    reasons = {found.verdicts[id(call)][0].reason for call in found.calls}  # type: ignore[union-attr]
    assert reasons == {"as product: it requantises with rounding away, but the target supports up and once"}
