"""Straight-line programs give the interpreter's values, and its errors."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.attrs import Attrs
from inlaid.graph.interp import Interpreter
from inlaid.graph.operator import Operator
from inlaid.reference.runtime import GraphKernel
from inlaid.reference.straight_line import straight_line
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, KernelFault
from inlaid_runtime.types import TensorType

N, M = SizeVar("n"), SizeVar("m")
X = ir.var("x", TensorType((N, M), "float32"))
WORDS = ir.var("words", TensorType((N,), "string"))


def counted(value: ir.Expr) -> ir.Function:
    """The elements that are not 0, their places and their number, in tensors of sizes that the run finds."""
    places = ops.nonzero(value)
    count = places.type.shape[1]
    numbers = ops.iota(places, shape=(count, 2), axis=0)
    return ir.function([X], ir.tuple_([places, ops.add(numbers, ops.sizes(places, dims=(count, N))), ops.neg(value)]))


def kernel(function: ir.Function) -> GraphKernel:
    return GraphKernel(Interpreter(), function)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=8))
def test_runs_of_repeated_and_new_shapes(draws):
    function = counted(ops.relu(X))
    program, region = straight_line(function), kernel(function)
    assert program is not None
    for rows, columns, seed in draws:
        x = np.random.default_rng(seed).integers(-1, 2, (rows, columns)).astype(np.float32)
        expected = Interpreter().run(function, [x])
        for actual in (program(x), region.call([x]), region.call([x])):
            for a, b in zip(actual, expected, strict=True):
                np.testing.assert_array_equal(a, b, strict=True)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.sampled_from(["the", "The", "good", "bad", ""]), max_size=5), min_size=1, max_size=6), st.booleans())
def test_words(texts, sensitive):
    kept = ops.string_normalize(WORDS, case="LOWER", case_sensitive=sensitive, stopwords=("the",))
    numbers = ops.lookup(kept, keys=("good", "bad"), values=(0, 1), default=-1, dtype="int64")
    parts = ops.string_split(WORDS, delimiter="o")
    function = ir.function([WORDS], ir.tuple_([kept, numbers, ir.tuple_item(parts, 1)]))
    region = kernel(function)
    for text in texts:
        words = np.array(text, object)
        expected = [word.lower() for word in text if (word if sensitive else word.lower()) != "the"] or [""]
        for _ in range(2):
            kept_words, found_numbers, splits = region.call([words])
            assert kept_words.tolist() == expected
            assert found_numbers.tolist() == [{"good": 0, "bad": 1}.get(word, -1) for word in expected]
            assert splits.tolist() == [len(word.split("o")) for word in text]


def test_values_that_are_read_no_more_are_freed():
    live: list[weakref.ref[np.ndarray]] = []

    def note(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        live[:] = [item for item in live if item() is not None]
        assert len(live) <= 1
        result = x + 1
        live.append(weakref.ref(result))
        return result

    step = Operator("note", lambda attrs, x: x, reference=note, inputs=("x",))
    value = X
    for _ in range(5):
        value = ir.call(step, (value,))
    program = straight_line(ir.function([X], value))
    assert program is not None
    np.testing.assert_array_equal(program(np.zeros((2, 2), np.float32))[0], np.full((2, 2), 5, np.float32))


def test_errors_are_those_of_the_interpreter():
    region = kernel(ir.function([WORDS], ops.string_cast(WORDS, dtype="float32")))
    assert region.call([np.array(["1.5", "2"], object)])[0].tolist() == [1.5, 2]
    with pytest.raises(KernelFault) as caught:
        region.call([np.array(["1.5", "two"], object)])
    assert caught.value.operator == "string_cast"
    with pytest.raises(InputError):  # of a dtype that has not been checked
        region.call([np.zeros(2, np.float32)])


def test_branches_and_conditions_on_computed_sizes_are_left_to_the_interpreter():
    choice = ir.if_(ir.constant(np.array(True)), ops.neg(X), X)
    assert straight_line(ir.function([X], choice)) is None
    places, y = ops.nonzero(X), ir.var("y", TensorType((2, 4), "int64"))
    assert straight_line(ir.function([X], ops.neg(places))) is not None
    assert straight_line(ir.function([X, y], ops.maximum(places, y))) is None
