from __future__ import annotations

import numpy as np

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, call, constant, function, if_, loop, post_order, tuple_, tuple_item, var
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.fuse import PRIMITIVE, VectorUnit, fuse
from inlaid_runtime.types import TensorType

X = var("x", TensorType((1, 2, 6, 6), "float32"))
Y = var("y", TensorType((1, 2, 6, 6), "float32"))
W = constant(np.ones((2, 2, 3, 3), np.float32))
BIAS = constant(np.arange(2, dtype=np.float32).reshape(2, 1, 1))
FLAG = var("flag", TensorType((), "bool"))
PADS = (1, 1, 1, 1)


def names(expr: Expr) -> list[str]:
    return [node.callee.name for node in post_order(expr) if isinstance(node, Call) and isinstance(node.callee, Operator)]


def groups(body: Expr, limit: int = 64, frugal: bool = False) -> list[list[str]]:
    """The names of the operators of each fused function, in order; the result is checked against the original."""
    params = [FLAG, X, Y]
    target = function(params, body)
    fused = fuse(target, limit, frugal)
    verify(fused)
    for flag in (True, False):
        inputs = [np.asarray(flag), *(np.random.default_rng(k).normal(size=(1, 2, 6, 6)).astype(np.float32) for k in range(2))]
        a, b = evaluate(target, inputs), evaluate(fused, inputs)
        for x, y in zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]:
            np.testing.assert_array_equal(x, y)
    return [names(node.body) for node in post_order(fused) if isinstance(node, Function) and PRIMITIVE in node.attrs]


def test_element_wise_chains_fuse() -> None:
    assert groups(ops.exp(ops.neg(ops.add(X, Y)))) == [["add", "neg", "exp"]]


def test_a_single_operator_stays_as_it_is() -> None:
    target = function([X], ops.neg(X))
    assert fuse(target).body is target.body


def test_a_convolution_takes_its_epilogue() -> None:
    body = ops.relu(ops.add(ops.conv(X, W, pads=PADS), BIAS))
    assert groups(body) == [["conv", "add", "relu"]]
    assert groups(ops.transpose(body, perm=(0, 2, 3, 1))) == [["conv", "add", "relu"]]
    assert groups(ops.conv(ops.exp(X), W)) == []


def test_a_diamond_fuses_and_two_convolutions_do_not() -> None:
    conv = ops.conv(X, W, pads=PADS)
    assert groups(ops.add(ops.sigmoid(conv), ops.mul(conv, Y))) == [["conv", "sigmoid", "mul", "add"]]
    residual = ops.add(conv, ops.conv(Y, W, pads=PADS))
    assert [sorted(group) for group in groups(ops.relu(residual))] == [["add", "conv", "relu"]]


def test_a_value_read_elsewhere_ends_a_group() -> None:
    conv = ops.conv(X, W, pads=PADS)
    assert groups(tuple_([ops.relu(conv), conv])) == []
    shared = ops.exp(X)
    assert groups(tuple_([ops.neg(shared), ops.abs(shared)])) == []


def test_reductions_take_what_feeds_them_and_what_follows() -> None:
    total = ops.reduce_sum(ops.exp(ops.neg(X)), axes=(3,), keepdims=True)
    assert groups(total) == [["neg", "exp", "reduce_sum"]]
    assert groups(ops.sqrt(total)) == [["neg", "exp", "reduce_sum", "sqrt"]]
    shared = ops.exp(X)
    softmax = ops.div(shared, ops.reduce_sum(shared, axes=(3,), keepdims=True))
    assert groups(softmax) == []


def test_no_way_leads_out_of_a_group_and_back() -> None:
    first = ops.exp(X)
    outside = ops.reshape(ops.cumsum(ops.reshape(first, shape=(72,)), axis=0), shape=(1, 2, 6, 6))
    assert groups(ops.add(ops.neg(first), outside)) == [["neg", "add"]]


def test_opaque_operators_and_views_stay_alone() -> None:
    assert groups(ops.neg(ops.lrn(ops.neg(X), size=3))) == []
    assert groups(ops.neg(ops.reshape(ops.neg(X), shape=(72,)))) == []
    plain = Operator("plain", lambda attrs, x: x, reference=lambda attrs, x: x, fusion=ops.neg.fusion)
    assert groups(ops.neg(plain(X))) == []


def test_what_only_widens_is_left_to_the_epilogue_that_reads_it() -> None:
    def total(x: Expr) -> Expr:
        return ops.cast(ops.cast(ops.reduce_sum(x, axes=(2,), keepdims=False), dtype="int8"), dtype="float32")

    added = ops.relu(ops.add(total(X), total(Y)))
    assert sorted(groups(added)) == sorted([["reduce_sum", "cast"], ["reduce_sum", "cast", "cast", "cast", "add", "relu"]])
    assert groups(ops.neg(ops.reshape(total(X), shape=(12,)))) == [["reduce_sum", "cast", "cast"]]


def test_a_convolution_pads_for_itself() -> None:
    around, zero = (0, 0, 1, 1, 0, 0, 1, 1), constant(np.float32(0))
    padded = ops.pad(X, zero, pads=around)
    body = ops.relu(ops.conv(padded, W))
    assert groups(body) == [["pad", "conv", "relu"]]
    assert groups(ops.conv(ops.pad(ops.exp(X), zero, pads=around), W)) == [["pad", "conv"]]
    # Its own padding, that of channels, and what is no constant stay apart.
    assert groups(ops.conv(padded, W, pads=(1, 1, 1, 1))) == []
    assert groups(ops.conv(ops.pad(X, pads=around, mode="edge"), W)) == []
    assert groups(tuple_([body, padded])) == [["conv", "relu"]]


def test_where_memory_is_scarce_a_convolution_pads_for_itself() -> None:
    padded = ops.pad(X, constant(np.float32(0)), pads=(0, 0, 1, 1, 0, 0, 1, 1))
    body = ops.relu(ops.conv(padded, W))
    assert groups(body, frugal=True) == [["pad", "conv", "relu"]]
    # What is computed stays in memory once, instead of being computed anew for each place of the window.
    assert groups(ops.conv(ops.exp(X), W), frugal=True) == []
    assert groups(tuple_([body, padded]), frugal=True) == [["conv", "relu"]]


def test_where_memory_is_scarce_transposes_are_views() -> None:
    turned = ops.transpose(ops.neg(X), perm=(0, 2, 3, 1))
    assert groups(ops.exp(turned)) == [["neg", "transpose", "exp"]]
    assert groups(ops.exp(turned), frugal=True) == []


def test_where_memory_is_scarce_what_widens_is_left_to_the_reduction() -> None:
    stored = ops.cast(ops.reduce_sum(X, axes=(2,), keepdims=True), dtype="int8")
    body = ops.reduce_sum(ops.cast(stored, dtype="float32"), axes=(3,), keepdims=True)
    assert groups(body) == [["reduce_sum", "cast", "cast"]]
    assert sorted(groups(body, frugal=True)) == [["cast", "reduce_sum"], ["reduce_sum", "cast"]]


def test_groups_are_bounded() -> None:
    expr: Expr = X
    for _ in range(100):
        expr = ops.neg(expr)
    assert sum(map(len, groups(expr, limit=8))) >= 96
    assert max(map(len, groups(expr, limit=8))) <= 8


def test_scopes_fuse_by_themselves() -> None:
    shared = ops.exp(ops.neg(X))
    i, state = var("i", TensorType((), "int64")), var("state", X.type)
    body = function([i, state], tuple_([constant(True), ops.neg(ops.add(state, shared))]))
    looped = loop(body, state=[X], trip_count=constant(np.int64(2)))
    choice = if_(FLAG, ops.relu(ops.abs(shared)), ops.abs(ops.relu(Y)))
    p = var("p", X.type)
    closure = call(function([p], ops.floor(ops.add(p, shared))), [Y])
    assert sorted(groups(ops.add(choice, closure))) == sorted([["neg", "exp"], ["abs", "relu"], ["relu", "abs"], ["add", "floor"]])
    final = groups(tuple_([choice, ops.neg(ops.tanh(tuple_item(looped, 0)))]))
    assert ["add", "neg"] in final and ["tanh", "neg"] in final


def test_fused_functions_are_left_alone() -> None:
    target = function([X, Y], ops.relu(ops.add(X, Y)))
    fused = fuse(target)
    assert fuse(fused) is fused


def test_transposes_at_a_stride_are_kernels_with_vectors() -> None:
    wide, narrow = (var("x", TensorType(shape, "float32")) for shape in ((2, 16, 40), (2, 3, 40)))
    vectors = VectorUnit(16, 1 << 20)
    for x, perm, target_vectors, is_separate in (
        (wide, (0, 2, 1), vectors, True),
        (wide, (0, 2, 1), None, False),
        (wide, (0, 2, 1), VectorUnit(16, 1 << 12), False),  # the cache does not hold it
        (wide, (1, 0, 2), vectors, False),  # rows stay contiguous
        (narrow, (0, 2, 1), vectors, False),
    ):
        target = function([x], ops.relu(ops.transpose(ops.neg(x), perm=perm)))
        fused = fuse(target, vectors=target_vectors)
        verify(fused)
        kernels = [names(node.body) for node in post_order(fused) if isinstance(node, Function) and PRIMITIVE in node.attrs]
        assert kernels == ([] if is_separate else [["neg", "transpose", "relu"]])
