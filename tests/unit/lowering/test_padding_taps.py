from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Constant, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.padding_taps import padding_taps
from inlaid.plugins import Capabilities
from inlaid.plugins.contract import Core
from inlaid.plugins.costs import CostConstants
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType


def conv(extents: tuple[int, ...], window: tuple[int, ...], **attrs: tuple[int, ...]) -> Function:
    rng = np.random.default_rng(0)
    x = var("x", TensorType((1, 2, *extents), "int32"))
    w = constant(rng.integers(-9, 9, (3, 2, *window), np.int32))
    return function([x], ops.conv(x, w, **attrs))


def windows(target: Function) -> list[tuple[int, ...]]:
    return [
        expr.args[1].data.shape[2:]
        for expr in post_order(target)
        if isinstance(expr, Call) and expr.callee is ops.conv and isinstance(expr.args[1], Constant)
    ]


AXES = st.lists(st.tuples(*(st.integers(1, 6),) * 2, *(st.integers(1, 4),) * 2, *(st.integers(0, 5),) * 2), min_size=1, max_size=2)


CONTEXT = KernelContext(Capabilities((), vector_bits=512), 1, ())
COSTS = CostConstants(read_share=0.99, shortest_band=1, banded_products=1)
BANDED = replace(CONTEXT, capabilities=Capabilities((), core=Core(costs=COSTS)))


def rewritten(target: Function) -> Function:
    return padding_taps(target, CONTEXT)


def check(axes: list[tuple[int, ...]], context: KernelContext = CONTEXT) -> Function | None:
    """Compare a convolution before and after; None if the axes do not fit."""
    extents, window, strides, dilations, before, after = zip(*axes, strict=True)
    if any(n + p + q < (k - 1) * d + 1 for n, k, d, p, q in zip(extents, window, dilations, before, after, strict=True)):
        return None
    target = conv(extents, window, strides=strides, dilations=dilations, pads=(*before, *after))
    changed = padding_taps(target, context)
    verify(changed)
    x = np.random.default_rng(1).integers(-9, 9, (1, 2, *extents), np.int32)
    assert np.array_equal(evaluate(changed, [x]), evaluate(target, [x]))
    assert padding_taps(changed, context) is changed
    return changed


@settings(deadline=None, max_examples=200)
@given(AXES)
def test_the_result_stays(axes: list[tuple[int, ...]]) -> None:
    check(axes)


@settings(deadline=None, max_examples=200)
@given(AXES)
def test_the_result_stays_in_bands(axes: list[tuple[int, ...]]) -> None:
    check(axes, BANDED)


def test_a_dilated_window_is_computed_in_bands() -> None:
    changed = rewritten(conv((28, 28), (3, 3), dilations=(12, 12), pads=(12,) * 4))
    assert windows(changed) == [(3, 3)]  # too few products
    x = var("x", TensorType((1, 64, 28, 28), "float32"))
    w = constant(np.zeros((64, 64, 3, 3), np.float32))
    changed = rewritten(function([x], ops.conv(x, w, dilations=(12, 12), pads=(12,) * 4)))
    verify(changed)
    assert sorted(windows(changed)) == [(2, 2)] * 4 + [(2, 3)] * 2 + [(3, 2)] * 2 + [(3, 3)]


def test_taps_that_read_padding_alone_go() -> None:
    assert windows(rewritten(conv((1, 1), (3, 3), pads=(1, 1, 1, 1)))) == [(1, 1)]
    assert windows(rewritten(conv((5, 1), (3, 3), pads=(1, 1, 1, 1)))) == [(3, 1)]
    assert windows(rewritten(conv((4,), (3,), dilations=(4,), pads=(4, 4)))) == [(1,)]
    assert windows(rewritten(conv((2,), (5,), strides=(1,), pads=(3, 1)))) == [(3,)]


def test_windows_that_need_all_taps_stay() -> None:
    for target in (conv((5, 5), (3, 3), pads=(1, 1, 1, 1)), conv((5,), (3,))):
        assert padding_taps(target, CONTEXT) is target
    n = SizeVar("n")
    x = var("x", TensorType((1, 2, n, n), "float32"))
    symbolic = function([x], ops.conv(x, constant(np.zeros((3, 2, 3, 3), np.float32)), pads=(1, 1, 1, 1)))
    assert padding_taps(symbolic, CONTEXT) is symbolic


def test_taps_with_infinite_weights_stay() -> None:
    x = var("x", TensorType((1, 1, 1, 1), "float32"))
    weights = np.ones((1, 1, 3, 3), np.float32)
    weights[0, 0, 0, 0] = np.inf  # times padding, NaN
    target = function([x], ops.conv(x, constant(weights), pads=(1,) * 4))
    assert rewritten(target) is target
