"""Static and symbolic values of expressions at import."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.frontends.values import Values, is_natural
from inlaid.graph.ir import constant, var
from inlaid.graph.operator import NO_TRAITS, Moves, Operator, Traits
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

N, M = SizeVar("N"), SizeVar("M")


def test_constants_fold():
    values = Values()
    total = ops.add(constant(np.float32([1, 2])), constant(np.float32(3)))
    assert values.static(ops.reshape(total, shape=(2, 1))).tolist() == [[4], [5]]


def test_what_depends_on_an_input_does_not_fold():
    values = Values()
    x = var("x", TensorType((2,), "float32"))
    assert values.static(ops.add(x, constant(np.float32(1)))) is None
    assert values.static(ops.sizes(dims=(N, 2))) is None


def test_folding_is_bounded():
    values = Values()
    assert values.static(ops.full(constant(np.float32(0)), shape=(1 << 30,))) is None


def test_what_fails_at_run_time_is_not_folded():
    values = Values()
    bad = ops.take(constant(np.float32([1])), constant(np.array([7])), axis=0)
    assert values.static(bad) is None


def test_deep_chains_fold():
    expr = constant(np.int64(0))
    for _ in range(5000):
        expr = ops.add(expr, constant(np.int64(1)))
    assert Values().static(expr) == 5000


def test_shape_arithmetic_is_followed():
    values = Values()
    shape = ops.sizes(dims=(N, 3, M))
    first = ops.take(shape, constant(np.array([0, 2])), axis=0)
    assert values.dims(first) == (N, M)
    doubled = ops.mul(first, constant(np.array([2, 1])))
    joined = ops.concat(doubled, constant(np.array([-1])), axis=0)
    assert values.dims(joined) == (arith.mul(N, 2), M, -1)
    assert values.dims(ops.strided_slice(joined, begin=(1,), end=(3,), strides=(1,))) == (M, -1)
    assert values.dims(ops.reduce_prod(shape, axes=(0,), keepdims=False)) is not None


def test_elements_are_followed_through_what_moves_data():
    values = Values()
    shape = ops.sizes(dims=(N, 3, M))
    assert values.dims(ops.tile(shape, repeats=(2,))) == (N, 3, M, N, 3, M)
    assert values.dims(ops.pad(shape, constant(np.int64(1)), pads=(1, 2))) == (1, N, 3, M, 1, 1)
    assert values.dims(ops.pad(shape, ops.reshape(ops.sizes(dims=(N,)), shape=()), pads=(0, 1))) == (N, 3, M, N)
    assert values.dims(ops.take_along_axis(shape, constant(np.array([2, 2])), axis=0)) == (M, M)
    assert values.dims(ops.reshape(ops.take(shape, constant(np.int64(2)), axis=0), shape=(1,))) == (M,)
    assert values.dims(ops.take(shape, ops.sizes(dims=(N,)), axis=0)) is None
    assert values.dims(ops.take(shape, constant(np.array([5])), axis=0)) is None

    def mirror(traits):
        operator = Operator("acme.mirror", lambda attrs, x: x, reference=lambda attrs, x: x[::-1], traits=traits)
        return values.dims(operator(shape))

    assert mirror(Traits(moves=Moves())) == (M, 3, N)
    assert mirror(NO_TRAITS) is None


def test_division_and_comparison_need_known_signs():
    values = Values()
    n = ops.sizes(dims=(N,))
    assert values.dims(ops.div(n, constant(np.array([2])))) == (arith.floordiv(N, 2),)
    assert values.dims(ops.div(ops.neg(n), constant(np.array([2])))) is None
    chosen = ops.where(ops.equal(n, constant(np.array([-1]))), constant(np.array([7])), n)
    assert values.dims(chosen) == (N,)


def test_narrow_integers_and_floats_are_not_followed():
    values = Values()
    assert values.dims(ops.cast(ops.sizes(dims=(N,)), dtype="int8")) is None
    assert values.dims(ops.cast(ops.sizes(dims=(N,)), dtype="float32")) is None
    assert values.dims(ops.cast(ops.cast(ops.sizes(dims=(N,)), dtype="float32"), dtype="int64")) is None


@pytest.mark.parametrize(
    ("value", "natural"),
    [(3, True), (-1, False), (N, True), (N - 1, False), (N * M + 2, True), (N // 2, True), (arith.maximum(N - 1, 0), True)],
)
def test_is_natural(value, natural):
    assert is_natural(value) is natural


BINARY = ("add", "sub", "mul", "minimum", "maximum", "div", "mod")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(BINARY), max_size=5), st.data())
def test_followed_values_are_those_of_the_run(names, data):
    """Whatever `dims` says of an expression over N and M, evaluated at some N and M, is what the operators' references give."""
    sizes = {N: data.draw(st.integers(0, 9)), M: data.draw(st.integers(1, 9))}

    def build(leaf):
        expr = leaf
        for name in names:
            other = {0: leaf, 1: constant(np.array([2, 3]))}[drawn[len(operator_names)]]
            operator_names.append(name)
            expr = getattr(ops, name)(expr, other)
        return expr

    drawn = [data.draw(st.integers(0, 1)) if name not in ("div", "mod") else 1 for name in names]
    operator_names: list[str] = []
    symbolic = Values().dims(build(ops.sizes(dims=(N, M))))
    operator_names = []
    concrete = Values().static(build(constant(np.array([sizes[N], sizes[M]]))))
    if symbolic is not None:
        assert [arith.evaluate(dim, sizes) for dim in symbolic] == concrete.tolist()
