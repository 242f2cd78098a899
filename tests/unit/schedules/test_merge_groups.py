"""Groups that fill no vectors become larger ones: the same sums, and nothing where infinities could spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.plugins import Capabilities
from inlaid.schedules.choose_convolution import choose_convolution
from inlaid.schedules.merge_groups import merge_groups
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType

TYPES = (("uint8", "int8", "int32", 4), ("bfloat16", "bfloat16", "float32", 2))
CONTEXT = KernelContext(
    Capabilities((), vector_bits=128),
    1,
    tuple(TensorIntrin(f"dot.{a}.{b}", dot_product(a, b, total, 4, group)) for a, b, total, group in TYPES),
)
RNG = np.random.default_rng(3)


def model(groups: int, inputs: int, outputs: int, kind: int = 0, size: int = 1) -> Function:
    a, b, total, _ = TYPES[kind]
    x = var("x", TensorType((2, groups * inputs, 3, 4), a))
    weights = constant(RNG.integers(-9, 10, (groups * outputs, inputs, size, size)).astype(np.int8), "int8")
    y = ops.conv(
        x,
        ops.cast(weights, dtype=b) if kind else weights,
        strides=(1, 2),
        pads=(1,) * 4,
        dilations=(1, 1),
        groups=groups,
        out_dtype=total,
    )
    return function([x], y)


def group_count(unit: Function) -> int:
    (conv,) = [expr for expr in post_order(unit) if isinstance(expr, Call) and expr.callee is ops.conv]
    return int(conv.attrs.groups)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 3, 4, 6]), st.integers(1, 6), st.integers(1, 9), st.integers(1, 2))
def test_the_same_sums(groups: int, inputs: int, outputs: int, size: int) -> None:
    unit = model(groups, inputs, outputs, size=size)
    changed = merge_groups(unit, CONTEXT)
    verify(changed)
    data = RNG.integers(0, 256, (2, groups * inputs, 3, 4)).astype(np.uint8)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "left"),
    [
        (4, 6, 6, 2),  # two groups fill vectors of four
        (4, 6, 7, 1),  # all groups together do
        (4, 5, 8, 1),
        (4, 8, 8, 4),  # a group does by itself
        (4, 1, 3, 4),  # one channel
    ],
)
def test_as_many_groups_as_fill_vectors(groups: int, inputs: int, outputs: int, left: int) -> None:
    assert group_count(merge_groups(model(groups, inputs, outputs), CONTEXT)) == left


def test_products_over_pixels_are_cheaper_than_zeros() -> None:
    x = var("x", TensorType((1, 4 * 17, 8, 8), "uint8"))
    for outputs, left in ((17, 4), (16, 4), (2, 1)):  # for two outputs, data would be packed for little
        weights = constant(RNG.integers(-9, 10, (4 * outputs, 17, 1, 1)).astype(np.int8))
        unit = function([x], ops.conv(x, weights, groups=4, out_dtype="int32"))
        assert group_count(merge_groups(unit, CONTEXT)) == left


def test_bfloat16_is_left_alone() -> None:
    unit = model(4, 6, 6, kind=1)
    assert merge_groups(unit, CONTEXT) is unit


def test_targets_without_dot_products_are_left_alone() -> None:
    unit = model(4, 6, 6)
    assert merge_groups(unit, KernelContext(Capabilities((), vector_bits=128))) is unit


def test_the_choice_of_convolutions_merges_groups() -> None:
    assert group_count(choose_convolution(model(4, 6, 6), CONTEXT)) == 2
