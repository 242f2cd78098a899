"""Transposes go where they move the least, and values stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, tuple_, var
from inlaid.graph.text import show
from inlaid.graph.verify import verify
from inlaid.passes.simplify import simplify
from inlaid.passes.sink_transposes import sink_transposes
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
X = var("x", TensorType((2, 3, 4, 5), "float32"))
Y = var("y", TensorType((2, 3, 4, 5), "float32"))


def first(x: Expr) -> Expr:
    return ops.transpose(x, perm=FIRST)


def last(x: Expr) -> Expr:
    return ops.transpose(x, perm=LAST)


def kernel(x: Expr) -> Expr:
    """What works channels last, and is no elementwise operator."""
    return first(ops.softmax(last(x), axis=3))


def named(unit: Function, name: str) -> list[Call]:
    return [expr for expr in post_order(unit) if isinstance(expr, Call) and expr.callee.name == name]  # type: ignore[union-attr]


def bits(unit: Function) -> int:
    """What transposes move that move more than axes of one element."""
    total = 0
    for call in named(unit, "transpose"):
        assert isinstance(call.type, TensorType)
        axes = [axis for axis, dim in zip(call.attrs.perm, call.type.shape, strict=True) if dim != 1]  # type: ignore[attr-defined]
        total += prod(call.type.shape) * call.type.dtype.bits if axes != sorted(axes) else 0  # type: ignore[type-var, operator]
    return total


def check(unit: Function) -> Function:
    """The function after the pass: well formed, of the same values, with no more to transpose."""
    changed = sink_transposes(unit)
    verify(changed)
    assert changed.type == unit.type
    rng = np.random.default_rng(1)
    inputs = [rng.integers(-9, 9, [4 if isinstance(dim, SizeVar) else dim for dim in p.type.shape]) for p in unit.params]  # type: ignore[union-attr]
    values = [value.astype(param.type.dtype.numpy) for value, param in zip(inputs, unit.params, strict=True)]  # type: ignore[union-attr]
    expected, actual = evaluate(unit, values), evaluate(changed, values)
    parts = zip(*(each if isinstance(each, tuple) else (each,) for each in (actual, expected)), strict=True)
    for one, other in parts:
        np.testing.assert_array_equal(one, other, strict=True)
    return changed


def test_a_residual_block_keeps_the_order_of_its_kernels() -> None:
    """Between kernels nothing is transposed, whatever stands there: biases, activations, the sum of two branches."""
    bias = constant(np.arange(3, dtype=np.float32).reshape(3, 1, 1))
    x = ops.relu(ops.add(kernel(X), bias))
    y = ops.relu(ops.add(kernel(x), bias))
    unit = function([X], ops.relu(ops.add(kernel(y), x)))
    changed = check(unit)
    assert len(named(unit, "transpose")) == 6 and len(named(changed, "transpose")) == 2
    assert [call.type.shape for call in named(changed, "add")] == [(2, 4, 5, 3)] * 3


def test_scales_of_channels_stay_with_their_axis() -> None:
    scales, point = constant(np.array([0.5, 1, 2], np.float32)), constant(np.int8(3))
    stored = ops.quantize(kernel(X), scales, constant(np.zeros(3, np.int8)), dtype="int8", axis=1)
    again = ops.requantize(ops.cast(stored, dtype="int32"), scales, point, dtype="int8", axis=1)
    changed = check(function([X], last(ops.dequantize(again, scales, dtype="float32", axis=1))))
    assert len(named(changed, "transpose")) == 1
    assert {named(changed, name)[0].attrs.axis for name in ("quantize", "requantize", "dequantize")} == {3}  # type: ignore[attr-defined]


def test_gates_of_one_element_are_not_transposed() -> None:
    """A gate for each channel is reshaped, which costs nothing."""
    turned = last(X)
    gate = ops.sigmoid(first(ops.reduce_sum(turned, axes=(1, 2), keepdims=True)))
    changed = check(function([X], last(ops.mul(first(ops.softmax(turned, axis=3)), gate))))
    assert len(named(changed, "transpose")) == 1


def test_sums_of_transposed_tensors_are_transposed_once() -> None:
    changed = check(function([X, Y], ops.add(ops.relu(first(X)), first(Y))))
    assert [call.callee.name for call in post_order(changed) if isinstance(call, Call)] == ["relu", "add", "transpose"]  # type: ignore[union-attr]


def test_narrow_types_are_transposed_not_wide_ones() -> None:
    """One transpose is as good as the other for the result, but not of four times the bytes."""
    narrow = var("x", TensorType((2, 3, 4, 5), "int8"))
    unit = function([narrow], ops.neg(ops.cast(first(narrow), dtype="float32")))
    assert sink_transposes(unit) is unit
    wide = function([X], last(ops.cast(first(ops.softmax(X, axis=1)), dtype="int8")))
    assert not named(check(wide), "transpose")


def test_a_result_may_be_read_in_both_orders() -> None:
    y = ops.relu(first(X))
    changed = check(function([X], tuple_([ops.softmax(y, axis=1), ops.softmax(last(y), axis=3)])))
    assert len(named(changed, "transpose")) == 1


def test_symbolic_sizes() -> None:
    x = var("x", TensorType((SizeVar("n"), 3, SizeVar("h", 1), 5), "float32"))
    assert len(named(check(function([x], ops.relu(kernel(ops.relu(kernel(x)))))), "transpose")) == 2


VECTOR = var("z", TensorType((4,), "float32"))
SCALES = constant(np.ones((2, 5, 3, 1), np.float32))


def quantize_blocks(x: Expr) -> Expr:
    stored = ops.quantize(x, SCALES, dtype="int8", axis=3, block_size=4)
    return ops.dequantize(stored, SCALES, dtype="float32", axis=3, block_size=4)


STAYS: dict[str, Callable[[], Expr]] = {
    "one transpose": lambda: ops.relu(first(X)),
    "a sum with what is not transposed": lambda: ops.add(first(X), ops.reshape(Y, shape=(2, 5, 3, 4))),
    "blocks of scales": lambda: last(quantize_blocks(first(X))),
    "a tensor of fewer axes": lambda: last(ops.add(first(X), VECTOR)),
    "nothing transposed": lambda: ops.relu(X),
}


def test_transposes_that_cut_nothing_stay() -> None:
    unit = function([X], last(ops.relu(kernel(X))))
    assert sink_transposes(unit, lambda call: call.args[0] is X) is unit
    assert sink_transposes(unit, lambda call: True) is not unit


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name: str) -> None:
    body = STAYS[name]()
    params = tuple(dict.fromkeys(expr for expr in post_order(body) if type(expr) is type(X)))
    unit = function(params, body)  # type: ignore[arg-type]
    assert sink_transposes(unit) is unit


@st.composite
def graphs(draw: st.DrawFn) -> Function:
    """Elementwise operators and kernels over tensors of three axes, transposed at will, read by any number of others."""
    shape = draw(st.permutations((1, 2, 3)))
    params = [var(f"x{n}", TensorType(tuple(shape), "float32")) for n in range(draw(st.integers(1, 3)))]
    pool: list[Expr] = list(params)
    for _ in range(draw(st.integers(1, 14))):
        x = pool[draw(st.integers(max(0, len(pool) - 4), len(pool) - 1))]
        assert isinstance(x.type, TensorType)
        alike = [y for y in pool if _broadcast(x, y)]
        match draw(st.integers(0, 7)):
            case 0 | 1 | 2:
                result = ops.transpose(x, perm=tuple(draw(st.permutations((0, 1, 2)))))
            case 3:
                result = ops.add(x, alike[draw(st.integers(0, len(alike) - 1))])
            case 4:
                axis = draw(st.integers(0, 2))
                sizes = [x.type.shape[axis], *(1 for _ in range(2 - axis))]
                result = ops.add(x, constant(np.arange(1, 1 + prod(sizes), dtype=np.float32).reshape(sizes)))  # type: ignore[type-var, arg-type]
            case 5:
                axis = draw(st.integers(0, 2))
                scales = constant(np.exp2(np.arange(x.type.shape[axis])).astype(np.float32))  # type: ignore[arg-type, call-overload]
                result = ops.dequantize(ops.quantize(x, scales, dtype="int8", axis=axis), scales, dtype="float32", axis=axis)
            case 6:
                result = ops.reduce_max(x, axes=(draw(st.integers(0, 2)),), keepdims=True)
            case _:
                result = ops.relu(x)
        pool.append(result)
    results = [pool[-1], *(pool[draw(st.integers(0, len(pool) - 1))] for _ in range(draw(st.integers(0, 2))))]
    return function(params, tuple_(results))


def _broadcast(x: Expr, y: Expr) -> bool:
    shapes = zip(x.type.shape, y.type.shape, strict=True)  # type: ignore[union-attr]
    return all(a == b or 1 in (a, b) for a, b in shapes)


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_random_graphs_keep_their_values_and_transpose_no_more(unit: Function) -> None:
    unit = simplify(unit)
    changed = check(unit)
    assert changed is unit or bits(changed) < bits(unit), show(unit)
