"""Operators run after what computes the sizes that they read, whatever pass has built them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.partitioning.fakes import make_registry, taking

from inlaid import ops
from inlaid.driver.compile import compile_module, cut
from inlaid.graph import ir
from inlaid.graph.attrs import Attrs, shown_sizes
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.unify import fresh_size
from inlaid.graph.verify import verify
from inlaid.passes.decompose import decompose
from inlaid.passes.simplify_inference import simplify_inference
from inlaid.passes.witness_sizes import hidden_sizes, witness_sizes
from inlaid.plugins import Accept, Reject, Verdict
from inlaid_conformance.corpus import CORPUS, Choices, Entry, Example, Unfit
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InlaidError, VerifyError
from inlaid_runtime.types import TensorType, TupleType, from_numpy

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint64", "bool")
EXAMPLES = 6
"""How many examples there are of an operator."""


def judge(target: str) -> Any:
    """Half of the operators, so that most of them are in a region of their own. Those that decompose are on no target."""

    def verdict(call: ir.Call) -> Verdict:
        assert isinstance(call.callee, Operator)
        home = "ab"[sum(map(ord, call.callee.name)) % 2]
        return Accept() if home == target and call.callee.decompose is None else Reject("the other target takes it")

    return verdict


TARGETS = ["a", "b"]
REGISTRY = make_registry({name: judge(name) for name in TARGETS}, DTYPES)


def with_computed_sizes(x: ir.Expr, end: ir.Expr) -> ir.Expr:
    """The tensor, with extents that only a run tells."""
    assert isinstance(x.type, TensorType)
    axes = tuple(range(x.type.rank))
    starts = ir.constant(np.zeros(len(axes), np.int64))
    return ops.dynamic_slice(x, starts, end, axes=axes, strides=(1,) * len(axes))


def examples(entry: Entry) -> Iterator[Example]:
    """Calls of an operator with tensors, of its first element type."""
    for number in range(EXAMPLES):
        try:
            example = entry.example(Choices.pinned(number), entry.dtypes[0])
        except Unfit:
            continue
        if not example.types and all(isinstance(value, np.ndarray) for value in example.inputs):
            yield example


def programs(example: Example) -> Iterator[tuple[ir.Module, dict[str, Any]]]:
    """An example with computed sizes of each operand alone and beside the first, as far as the operator allows; and its inputs."""
    count = len(example.inputs)
    for chosen in (*((number,) for number in range(count)), *((0, number) for number in range(1, count))):
        params, args, feeds = [], [], {}
        for number, value in enumerate(example.inputs):
            param = ir.var(f"x{number}", TensorType(value.shape, from_numpy(value.dtype)))
            params, args, feeds[param.name] = [*params, param], [*args, param], value
            if number in chosen and value.ndim:
                end = ir.var(f"end{number}", TensorType((value.ndim,), "int64"))
                params, args[-1], feeds[end.name] = [*params, end], with_computed_sizes(param, end), np.array(value.shape, np.int64)
        try:
            result = example.operator(*args, **example.attrs)
        except (InlaidError, ValueError):
            continue
        parts = result.type.fields if isinstance(result.type, TupleType) else (result.type,)
        if all(isinstance(part, TensorType) for part in parts):
            yield ir.Module({"main": ir.function(params, result)}), feeds


def assert_close(actual: Any, expected: Any, message: str) -> None:
    expected = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-3, atol=1e-3, err_msg=message)


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry.operator.name)
def test_every_operator_with_computed_sizes_of_any_operand(entry: Entry) -> None:
    """Two targets compute its parts in turn. An operand may show a size that a part which does not depend on it reads."""
    for example in examples(entry):
        for number, (module, feeds) in enumerate(programs(example)):
            partitioned, _ = cut(module, TARGETS, REGISTRY)
            verify(partitioned.module)
            expected = evaluate(module, feeds)
            result = evaluate(partitioned.module, feeds)
            assert_close(result if isinstance(result, tuple) else (result,), expected, str(example))
            if number == 0:
                assert_close(compile_module(module, TARGETS, REGISTRY).run(feeds).values(), expected, str(example))


@pytest.mark.parametrize("name", ["layer_norm", "conv_transpose", "attention", "lstm", "batch_norm"])
def test_parts_read_sizes_that_they_do_not_depend_on(name: str) -> None:
    """Otherwise the test above tests nothing."""
    (entry,) = (entry for entry in CORPUS if entry.operator.name == name)
    hidden = 0
    for module, _ in (program for example in examples(entry) for program in programs(example)):
        simpler = simplify_inference(decompose(module.main, lambda call: False))
        assert not any(map(hidden_sizes, ir.post_order(simpler)))
        verify(simpler)
        calls = [expr for expr in ir.post_order(simpler) if isinstance(expr, ir.Call)]
        hidden += any(call.callee is ops.after or (call.callee in (ops.iota, ops.sizes) and call.args) for call in calls)
    assert hidden


def nonzero_count(x: ir.Expr) -> tuple[ir.Expr, SizeVar]:
    """The indices of nonzero elements, and their number."""
    indices = ops.cast(ops.nonzero(x), dtype="float32")
    assert isinstance(indices.type, TensorType)
    size = indices.type.shape[1]
    assert isinstance(size, SizeVar)
    return indices, size


X, W = ir.var("x", TensorType((5,), "float32")), ir.var("w", TensorType((), "float32"))


def test_a_reader_that_stands_before_what_it_reads() -> None:
    """Its place in the graph does not matter, since a pass may have put it there."""
    indices, size = nonzero_count(X)
    reader = ops.exp(ops.broadcast_to(W, shape=(1, size)))
    function = ir.function([X, W], ops.add(reader, indices))
    with pytest.raises(VerifyError, match="is not bound in this scope"):
        verify(function)
    ordered = witness_sizes(function)
    verify(ordered)
    assert witness_sizes(ordered) is ordered
    inputs = [np.array([0, 1, 2, 0, 3], np.float32), np.array(1, np.float32)]
    np.testing.assert_allclose(evaluate(ordered, inputs), [[np.e + 1, np.e + 2, np.e + 4]], rtol=1e-6)


def test_a_size_that_is_computed_inside_of_a_loop_and_read_outside() -> None:
    """What computes it moves to its reader: it reads nothing of the loop."""
    indices, size = nonzero_count(X)
    state = ir.var("state", TensorType((), "float32"))
    step = ops.add(state, ops.reduce_sum(indices, axes=(0, 1)))
    body = ir.function([ir.var("i", TensorType((), "int64")), state], ir.tuple_([ir.constant(True), step]))
    loop = ir.loop(body, state=[W], trip_count=ir.constant(np.int64(2)))
    total = ir.tuple_item(loop, 0)
    function = ir.function([X, W], ops.add(ops.broadcast_to(total, shape=(size,)), ops.broadcast_to(W, shape=(size,))))
    ordered = witness_sizes(function)
    verify(ordered)
    inputs = [np.array([0, 1, 2, 0, 3], np.float32), np.array(1, np.float32)]
    np.testing.assert_array_equal(evaluate(ordered, inputs), [16, 16, 16])


def test_a_size_that_depends_on_its_reader() -> None:
    """No order is right."""
    size = fresh_size("size", 5)
    reader = ops.broadcast_to(W, shape=(1, size))
    vector = ops.mul(X, ops.reduce_sum(reader, axes=(0, 1)))
    indices = ir.Call(TensorType((1, size), "int64"), None, ops.nonzero, (vector,), Attrs())
    with pytest.raises(VerifyError, match="a size is computed from an operator that reads it"):
        witness_sizes(ir.function([X, W], indices))


def test_regions_take_tensors_that_show_the_sizes() -> None:
    """A target that accepts no witnesses reads a size from an input of its own."""
    indices, size = nonzero_count(X)
    module = ir.Module({"main": ir.function([X, W], ops.add(indices, ops.broadcast_to(W, shape=(1, size))))})
    registry = make_registry({"a": taking("broadcast_to")}, DTYPES)
    partitioned, _ = cut(module, ["a"], registry)
    (region,) = (name for name, number in partitioned.regions.items() if number == 0)
    assert shown_sizes(*(param.type for param in partitioned.module[region].params))
    feeds = {"x": np.array([0, 1, 2, 0, 3], np.float32), "w": np.array(1, np.float32)}
    (result,) = compile_module(module, ["a"], registry).run(feeds).values()
    np.testing.assert_array_equal(result, [[2, 3, 5]])
