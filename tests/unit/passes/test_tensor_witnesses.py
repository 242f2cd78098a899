"""Sizes that strings show are read from tensors."""

from __future__ import annotations

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.passes.tensor_witnesses import tensor_witnesses
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

WORDS = ir.var("words", TensorType((SizeVar("n"),), "string"))
CONDITION = ir.var("condition", TensorType((), "bool"))
KEPT = ops.string_normalize(WORDS, stopwords=("the",))
NUMBERS = ops.lookup(KEPT, keys=("good",), values=(1,), default=0, dtype="int64")
COUNT = ops.iota(KEPT, shape=KEPT.type.shape)


def witnesses(function: ir.Function) -> list[ir.Expr]:
    return [
        arg
        for expr in ir.post_order(function)
        if isinstance(expr, ir.Call) and expr.callee in (ops.iota, ops.sizes)
        for arg in expr.args
    ]


def check(body: ir.Expr, *params: ir.Var) -> ir.Function:
    before = ir.function([WORDS, *params], body)
    after = tensor_witnesses(before)
    rest = {"condition": np.array(True)} if params else {}
    for words in (["the", "good", "bad"], ["the"], ["good"] * 4):
        inputs = {"words": np.array(words, object), **rest}
        np.testing.assert_array_equal(evaluate(before, inputs), evaluate(after, inputs), strict=True)
    return after


def test_a_tensor_shows_the_size():
    for body in (ops.add(NUMBERS, COUNT), ops.add(COUNT, NUMBERS)):
        assert [item.type.dtype.name for item in witnesses(check(body))] == ["int64"]


def test_a_tensor_that_depends_on_the_witness_does_not():
    unchanged = ir.function([WORDS], ops.neg(COUNT))
    assert tensor_witnesses(unchanged) is unchanged


def test_strings_without_numbers_stay():
    unchanged = ir.function([WORDS], COUNT)
    assert tensor_witnesses(unchanged) is unchanged


def test_a_tensor_of_a_branch_is_not_read_outside():
    choice = ir.if_(CONDITION, ops.neg(NUMBERS), ops.after(ops.iota(KEPT, shape=KEPT.type.shape, axis=0), KEPT))
    after = check(choice, CONDITION)
    assert [item.type.dtype.name for item in witnesses(after)] == ["string"]
    after = check(ops.add(NUMBERS, choice), CONDITION)
    assert [item.type.dtype.name for item in witnesses(after)] == ["int64"]
