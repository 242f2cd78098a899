from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.vector_products import vector_products
from inlaid.plugins import Capabilities, CostConstants
from inlaid.plugins.contract import Core
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType
from inlaid_runtime.types import dtype as type_of

CONTEXT = KernelContext(Capabilities((), vector_bits=512, core=Core(costs=CostConstants(summed_products=1))), 1, ())
BATCHES = [(), (2,), (2, 3)]


def rewritten(target: Function) -> Function:
    return vector_products(target, CONTEXT)


def tensor(name: str, *shape: int, dtype: str = "float32") -> Expr:
    return var(name, TensorType(shape, dtype))


def transposed(x: Expr) -> Expr:
    rank = x.type.rank  # type: ignore[union-attr]
    return ops.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def has_matmul(target: Function) -> bool:
    return any(isinstance(expr, Call) and expr.callee is ops.matmul for expr in post_order(target))


def check(target: Function) -> None:
    changed = rewritten(target)
    verify(changed)
    assert not has_matmul(changed)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-8, 8, param.type.shape).astype(param.type.dtype.numpy) for param in target.params]  # type: ignore[union-attr]
    result, expected = evaluate(changed, inputs), evaluate(target, inputs)
    assert result.shape == expected.shape and np.array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("batch", BATCHES)
def test_a_column(batch: tuple[int, ...], dtype: str) -> None:
    x, w = tensor("x", *batch, 4, 6, dtype=dtype), tensor("w", *batch, 6, 1, dtype=dtype)
    check(function([x, w], ops.matmul(x, w)))
    shared = tensor("w", 6, 1, dtype=dtype)
    check(function([x, shared], ops.matmul(x, shared)))


@pytest.mark.parametrize("columns", [2, 7])
@pytest.mark.parametrize("batch", BATCHES)
def test_few_columns(batch: tuple[int, ...], columns: int) -> None:
    x, w = tensor("x", *batch, 4, 6), tensor("w", *batch, 6, columns)
    check(function([x, w], ops.matmul(x, w)))
    fixed = constant(np.random.default_rng(0).integers(-8, 8, (*batch, 6, columns)).astype(np.float32))
    check(function([x], ops.matmul(x, fixed)))


@pytest.mark.parametrize("batch", BATCHES)
def test_a_row_times_a_transposed_matrix(batch: tuple[int, ...]) -> None:
    x, w = tensor("x", *batch, 1, 6), tensor("w", *batch, 4, 6)
    check(function([x, w], ops.matmul(x, transposed(w))))


def test_a_row_times_a_matrix_with_its_heads_inside() -> None:
    q, k = tensor("q", 2, 3, 1, 8), tensor("k", 2, 5, 3, 8)
    check(function([q, k], ops.matmul(q, ops.transpose(k, perm=(0, 2, 3, 1)))))


def test_symbolic_depth_and_rows() -> None:
    n, k = SizeVar("n"), SizeVar("k")
    x, w = var("x", TensorType((1, k), "float32")), var("w", TensorType((n, k), "float32"))
    changed = rewritten(function([x, w], ops.matmul(x, transposed(w))))
    verify(changed)
    assert not has_matmul(changed)


def test_products_that_share_rows_stay() -> None:
    several = [tensor("x", 2, 1, 6), tensor("w", 4, 6)]  # each row of w is read for two rows
    columns = [tensor("x", 4, 6), tensor("w", 2, 6, 1)]
    fixed = constant(np.ones((4, 6), np.float32))
    for target in (
        function(several, ops.matmul(several[0], transposed(several[1]))),
        function(columns, ops.matmul(*columns)),
        function([several[0]], ops.matmul(several[0], transposed(fixed))),
        function([x := tensor("x", 4, 6), w := tensor("w", 6, 8)], ops.matmul(x, w)),  # half of the lanes
        function([x := tensor("x", 1, 6), w := tensor("w", 6, 4)], ops.matmul(x, w)),
        function([x := tensor("x", 4, 6, dtype="int8"), w := tensor("w", 6, 1, dtype="int8")], ops.matmul(x, w, out_dtype="int32")),
    ):
        assert rewritten(target) is target


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_narrow_floats_are_rounded_once(dtype: str) -> None:
    x, w = tensor("x", 1, 64, dtype=dtype), tensor("w", 3, 64, dtype=dtype)
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(64) % 2, -300, 300)
    rows = np.stack([signs, rng.standard_normal(64), rng.standard_normal(64) * 30])
    inputs = [value.astype(type_of(dtype).numpy) for value in (np.full((1, 64), 300), rows)]
    target = function([x, w], ops.matmul(x, transposed(w)))
    assert np.array_equal(evaluate(rewritten(target), inputs), evaluate(target, inputs))
    columns = function([w, x], ops.matmul(w, ops.reshape(x, shape=(64, 1))))
    assert np.array_equal(evaluate(rewritten(columns), inputs[::-1]), evaluate(columns, inputs[::-1]))


def test_small_products_stay_one_kernel() -> None:
    x, w = tensor("x", 4, 6), tensor("w", 6, 1)
    target = function([x, w], ops.matmul(x, w))
    assert vector_products(target, replace(CONTEXT, capabilities=Capabilities((), vector_bits=512))) is target
