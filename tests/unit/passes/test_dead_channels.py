"""Channels that nothing needs go: results stay the same to the last bit, and what is seen to vary and is read stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid_tflite as tflite
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Expr, Function, Var, constant, function, post_order, tuple_, tuple_item, var
from inlaid.graph.verify import verify
from inlaid.passes.dead_channels import remove_dead_channels
from inlaid.passes.integer_ranges import integer_ranges
from inlaid.passes.manager import PassManager
from inlaid.passes.pipeline import CANONICAL
from inlaid_runtime.types import TensorType

ZERO = -128
"""Where the ranges of the tests' tensors begin, as after a relu: the zero point."""
VISUAL_WAKE_WORDS = Path(__file__).parents[4] / "shared" / "models" / "vww_96_int8.tflite"
Array = np.ndarray[Any, Any]


def stored(total: Expr, bias: Array, shift: int, rounding: str = "up") -> Expr:
    """Sums as bytes: one factor for each channel, or, by rows, one for all."""
    by_channel = total.type.rank == 4  # type: ignore[attr-defined]
    bias = bias.reshape((-1, 1, 1) if by_channel else (-1,)).astype(np.int32)
    multiplier = np.full(bias.size if by_channel else (), 1 << 30, np.int32)
    factors = constant(multiplier), constant(np.full_like(multiplier, -shift))
    scaled = ops.multiply_fixed(ops.add(total, constant(bias)), *factors, axis=1 if by_channel else 0, rounding=rounding)
    return ops.cast(ops.clip(ops.add(scaled, constant(np.int32(ZERO))), minimum=-128.0, maximum=127.0), dtype="int8")


def conv(x: Expr, weights: Array, bias: Array, groups: int = 1, shift: int = 5, pads: int = 0) -> Expr:
    total = ops.conv(x, constant(weights.astype(np.int8)), pads=(pads,) * 4, groups=groups, out_dtype="int32")
    return stored(total, bias, shift)


def padded(x: Expr, value: int = ZERO) -> Expr:
    return ops.pad(x, constant(np.int8(value)), pads=(0, 0, 1, 1, 0, 0, 1, 1))


def data(channels: int, size: int = 5) -> Var:
    return var("x", TensorType((1, channels, size, size), "int8"))


def products(unit: Expr) -> list[tuple[int, ...]]:
    """The shapes of the weights of all products."""
    calls = [e for e in post_order(unit) if isinstance(e, Call) and e.callee in (ops.conv, ops.matmul)]
    return [e.args[1].data.shape for e in calls if isinstance(e.args[1], Constant)]


def assert_equal(unit: Function, changed: Function, seed: int = 0) -> None:
    """Equal bytes for random inputs and for the extremes."""
    verify(changed)
    shape = unit.params[0].type.shape  # type: ignore[attr-defined]
    rng = np.random.default_rng(seed)
    every = [np.full(shape, value, np.int8) for value in (-128, 127)]
    for x in (*every, rng.integers(-128, 128, shape).astype(np.int8), rng.choice([-128, 127], shape).astype(np.int8)):
        np.testing.assert_array_equal(evaluate(changed, [x]), evaluate(unit, [x]))


def weights(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-9, 10, shape)


DEAD = -(1 << 20)


def test_a_channel_at_the_zero_point_goes_through_depthwise_and_pools() -> None:
    rng, x = np.random.default_rng(0), data(3, 8)
    a = conv(x, weights(rng, 4, 3, 1, 1), np.array([0, DEAD, 0, DEAD]), shift=1)
    b = conv(padded(a), weights(rng, 4, 1, 3, 3), np.array([0, DEAD, 9, DEAD]), groups=4)
    c = ops.max_pool(ops.transpose(ops.transpose(b, perm=(0, 2, 3, 1)), perm=(0, 3, 1, 2)), kernel=(2, 2), strides=(2, 2))
    flat = ops.reshape(ops.transpose(c, perm=(0, 2, 3, 1)), shape=(1, 64))
    rows = ops.matmul(flat, constant(weights(rng, 64, 3).astype(np.int8)), out_dtype="int32")
    unit = function([x], stored(rows, np.zeros(3), 7))
    changed = remove_dead_channels(unit)
    assert products(changed) == [(2, 3, 1, 1), (2, 1, 3, 3), (32, 3)]
    assert_equal(unit, changed)
    assert remove_dead_channels(changed) is changed


def test_a_constant_away_from_the_zero_point_moves_into_the_bias_unless_padding_joins_it() -> None:
    rng, x = np.random.default_rng(1), data(2)
    first = weights(rng, 3, 2, 1, 1)
    first[1] = 0
    a = conv(x, first, np.array([0, 1500, 0]))
    bare = function([x], conv(a, weights(rng, 2, 3, 3, 3), np.zeros(2)))
    changed = remove_dead_channels(bare)
    assert products(changed) == [(2, 2, 1, 1), (2, 2, 3, 3)]
    assert_equal(bare, changed)
    around = function([x], conv(padded(a), weights(rng, 2, 3, 3, 3), np.zeros(2)))
    assert remove_dead_channels(around) is around
    zeros = function([x], conv(a, weights(rng, 2, 3, 3, 3), np.zeros(2), pads=1))
    assert remove_dead_channels(zeros) is zeros


def test_zero_goes_with_padding_of_zeros() -> None:
    rng, x = np.random.default_rng(8), data(2)
    a = ops.maximum(conv(x, weights(rng, 3, 2, 1, 1), np.array([8192, DEAD, 8192])), constant(np.int8(0)))
    unit = function([x], conv(a, weights(rng, 2, 3, 3, 3), np.zeros(2), pads=1))
    changed = remove_dead_channels(unit)
    assert products(changed) == [(2, 2, 1, 1), (2, 2, 3, 3)]
    assert_equal(unit, changed)


def test_branches_keep_what_either_needs() -> None:
    rng, x = np.random.default_rng(2), data(2)
    bias = np.array([0, DEAD, DEAD, 0])
    a, b = conv(x, weights(rng, 4, 2, 1, 1), bias), conv(x, weights(rng, 4, 2, 1, 1), np.roll(bias, 1))
    wide = ops.add(ops.cast(a, dtype="int32"), ops.sub(ops.cast(b, dtype="int32"), constant(np.int32(ZERO))))
    total = ops.cast(ops.clip(wide, minimum=-128.0, maximum=127.0), dtype="int8")
    unit = function([x], conv(total, weights(rng, 2, 4, 1, 1), np.zeros(2)))
    changed = remove_dead_channels(unit)
    # Channel 2 alone is constant in both.
    assert products(changed) == [(3, 2, 1, 1), (3, 2, 1, 1), (2, 3, 1, 1)]
    assert_equal(unit, changed)


def test_what_leaves_the_model_or_is_read_otherwise_stays() -> None:
    rng, x = np.random.default_rng(3), data(2)
    a = conv(x, weights(rng, 3, 2, 1, 1), np.array([0, DEAD, 0]))
    b = conv(a, weights(rng, 2, 3, 1, 1), np.zeros(2))
    for result in (a, tuple_([a, b]), tuple_([ops.reduce_max(a, axes=(1,), keepdims=False), b])):
        unit = function([x], result)
        assert remove_dead_channels(unit) is unit


def test_weights_of_zero_need_no_channel_and_one_channel_always_stays() -> None:
    rng, x = np.random.default_rng(4), data(3)
    second = weights(rng, 2, 4, 1, 1)
    second[:, 2] = 0
    unit = function([x], conv(conv(x, weights(rng, 4, 3, 1, 1), np.zeros(4)), second, np.zeros(2)))
    changed = remove_dead_channels(unit)
    assert products(changed) == [(3, 3, 1, 1), (2, 3, 1, 1)]
    assert_equal(unit, changed)
    unit = function([x], conv(conv(x, weights(rng, 4, 3, 1, 1), np.full(4, DEAD)), second, np.zeros(2)))
    changed = remove_dead_channels(unit)
    assert products(changed) == [(1, 3, 1, 1), (2, 1, 1, 1)]
    assert_equal(unit, changed)


def test_vectors_stay_full() -> None:
    """Of sixteen channels, one of them dead, nothing goes for vectors of eight; with nine dead ones, eight go."""
    rng, x = np.random.default_rng(7), data(2)
    for dead, left in ((1, 16), (9, 8)):
        bias = np.where(np.arange(16) < dead, DEAD, 0)
        unit = function([x], conv(conv(x, weights(rng, 16, 2, 1, 1), bias, shift=1), weights(rng, 2, 16, 1, 1), np.zeros(2)))
        changed = remove_dead_channels(unit, lanes=8)
        assert products(changed) == [(left, 2, 1, 1), (2, left, 1, 1)]
        assert_equal(unit, changed)


def test_sums_that_wrap_are_not_taken_for_constants() -> None:
    x = data(1)
    unit = function(
        [x], conv(conv(x, np.full((2, 1, 1, 1), 100), np.array([(1 << 31) - 1, DEAD])), np.ones((1, 2, 1, 1)), np.zeros(1))
    )
    changed = remove_dead_channels(unit)
    assert products(changed) == [(1, 1, 1, 1), (1, 1, 1, 1)]
    assert_equal(unit, changed)


def test_groups_stay_or_go_whole() -> None:
    rng, x = np.random.default_rng(5), data(3)
    a = conv(x, weights(rng, 6, 3, 1, 1), np.zeros(6), shift=1)
    b = conv(padded(a), weights(rng, 9, 2, 3, 3), np.array([DEAD, DEAD, DEAD, DEAD, 0, DEAD, 0, 0, 0]), groups=3, shift=8)
    unit = function([x], conv(b, weights(rng, 2, 9, 1, 1), np.zeros(2)))
    changed = remove_dead_channels(unit)
    assert products(changed) == [(4, 3, 1, 1), (6, 2, 3, 3), (2, 6, 1, 1)]
    assert_equal(unit, changed)


def random_net(seed: int) -> Function:
    """A small network of bytes with channels that are dead, that are constant otherwise, and that nothing reads."""
    rng = np.random.default_rng(seed)
    x = data(int(rng.integers(1, 4)))
    value: Expr = x
    for _ in range(int(rng.integers(2, 7))):
        channels = value.type.shape[1]  # type: ignore[attr-defined]
        kind = rng.choice(["conv", "wide", "depthwise", "groups", "add", "pool", "last"])
        count = channels if kind in ("depthwise", "groups") else int(rng.integers(1, 7))
        bias = rng.choice([0, DEAD, -DEAD, 300, -2000], count)
        groups = {"depthwise": channels, "groups": 2 if channels % 2 == 0 else 1}.get(str(kind), 1)
        size = 1 if kind in ("conv", "add") else 3
        if kind == "pool":
            value = ops.max_pool(value, kernel=(2, 2), strides=(1, 1), pads=(1, 1, 0, 0))
            continue
        if kind == "last":
            value = ops.transpose(ops.relu(ops.transpose(value, perm=(0, 2, 3, 1))), perm=(0, 3, 1, 2))
            continue
        taps = weights(rng, count, channels // groups, size, size) * rng.integers(0, 2, (1, channels // groups, 1, 1))
        pads = int(rng.integers(0, 2)) if size == 3 else 0
        around = padded(value, int(rng.choice([ZERO, 0]))) if size == 3 and not pads else value
        output = conv(around, taps, bias, groups, int(rng.integers(3, 9)), pads)
        if kind == "add" and count == channels:
            wide = ops.add(*(ops.sub(ops.cast(item, dtype="int32"), constant(np.int32(ZERO))) for item in (value, output)))
            output = stored(wide, np.zeros(channels), 2, "away")
        value = output
    return function([x], conv(value, weights(rng, 2, value.type.shape[1], 1, 1), np.zeros(2)))  # type: ignore[attr-defined]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 20))
def test_random_networks_give_the_same_bytes(seed: int) -> None:
    unit = random_net(seed)
    assert_equal(unit, remove_dead_channels(unit), seed)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 20))
def test_ranges_hold_every_value(seed: int) -> None:
    unit = random_net(seed)
    ranges = integer_ranges(unit)
    every = [expr for expr in post_order(unit.body) if id(expr) in ranges]
    probe = function(unit.params, tuple_(every))
    rng = np.random.default_rng(seed)
    for x in (rng.integers(-128, 128, unit.params[0].type.shape), rng.choice([-128, 127], unit.params[0].type.shape)):  # type: ignore[attr-defined]
        for expr, value in zip(every, evaluate(probe, [x.astype(np.int8)]), strict=True):
            interval = ranges[id(expr)]
            assert np.all((interval.low <= value) & (value <= interval.high)), expr


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_means_of_constants_are_constants(pads: tuple[int, ...]) -> None:
    """As pools over all of an image are written: truncating division, halves away from zero."""
    rng, x = np.random.default_rng(6), data(2, 3)
    a = conv(x, weights(rng, 3, 2, 1, 1), np.array([0, DEAD, 0]))
    total = ops.conv(a, constant(np.ones((3, 1, 3, 3), np.int8)), strides=(3, 3), pads=pads, groups=3, out_dtype="int32")
    sign = ops.where(ops.less(total, constant(np.int32(0))), constant(np.int32(-1)), constant(np.int32(1)))
    rounded = ops.mul(sign, ops.div(ops.add(ops.mul(sign, total), constant(np.int32(4))), constant(np.int32(9))))
    mean = ops.cast(ops.clip(rounded, minimum=-128.0, maximum=127.0), dtype="int8")
    unit = function([x], conv(mean, weights(rng, 2, 3, 1, 1), np.zeros(2)))
    changed = remove_dead_channels(unit)
    # Padding holds 0, which is no constant of the channel.
    assert products(changed)[0] == ((3 if any(pads) else 2), 2, 1, 1)
    assert_equal(unit, changed)


@pytest.mark.skipif(not VISUAL_WAKE_WORDS.is_file(), reason="the trained models are not beside the checkout, in ../shared/models")
def test_half_of_visual_wake_words_is_dead() -> None:
    """Of 7,489,664 multiplications and 208,112 weights, those of the mean not counted."""
    canonical = PassManager(CANONICAL).run(tflite.load(VISUAL_WAKE_WORDS)).main
    unit = remove_dead_channels(canonical)
    calls = [e for e in post_order(unit) if isinstance(e, Call) and e.callee in (ops.conv, ops.matmul)]
    arrays = [e.args[1].data for e in calls if isinstance(e.args[1], Constant)]
    real = [(e.type.shape, a) for e, a in zip(calls, arrays, strict=True) if not (a == 1).all()]  # type: ignore[attr-defined]
    assert sum(a.size for _, a in real) == 29_066
    assert sum(np.prod(shape) * (a[0].size if a.ndim == 4 else a.shape[0]) for shape, a in real) == 3_727_313
    pixels = np.random.default_rng(0).integers(0, 256, (1, 96, 96, 3)).astype(np.uint8).view(np.int8)
    original = tflite.load(VISUAL_WAKE_WORDS).main
    np.testing.assert_array_equal(evaluate(unit, [pixels]), evaluate(original, [pixels]))


@pytest.mark.parametrize("several", [lambda y: ops.topk(y, k=2, axis=1), ops.unique])
def test_operators_of_several_results_read_a_product(several: Any) -> None:
    rng = np.random.default_rng(0)
    x = var("x", TensorType((2, 3), "int8"))
    total = ops.matmul(x, constant(weights(rng, 3, 4).astype(np.int8)), out_dtype="int32")
    call = several(stored(total, np.zeros(4), 3))
    unit = function([x], tuple_([tuple_item(call, 0), tuple_item(call, 1)]))
    data = rng.integers(-128, 128, (2, 3)).astype(np.int8)
    expected, results = evaluate(unit, [data]), evaluate(remove_dead_channels(unit), [data])
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, other)
