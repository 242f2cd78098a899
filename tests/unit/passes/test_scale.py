"""Cost is linear in the size of the graph: a generated model of 10,000 operators, with one of 1,000 beside it."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Module, constant, function, post_order, var
from inlaid.graph.normal import to_a_normal_form, to_graph_form
from inlaid.graph.parse import parse
from inlaid.graph.text import print_module
from inlaid.graph.verify import verify
from inlaid.passes.decompose import decompose
from inlaid.passes.fuse import fuse
from inlaid.passes.manager import FunctionPass, PassManager, Timing
from inlaid.passes.pipeline import CANONICAL
from inlaid_runtime.types import TensorType


def model(count: int) -> Module:
    """A chain of products, biases, activations, normalizations and skip connections near and far."""
    rng = np.random.default_rng(0)
    x = var("x", TensorType(("n", 8), "float32"))
    w = constant(rng.normal(size=(8, 8)).astype(np.float32))
    b = constant(rng.normal(size=8).astype(np.float32))
    expr: Expr = x
    pool: list[Expr] = [x]
    for step in range(count // 8):
        skip = expr
        expr = ops.add(ops.matmul(expr, w), b)
        expr = ops.mul(ops.relu(expr), constant(np.float32(1)))
        expr = ops.add(ops.tanh(expr), skip)
        expr = ops.add(expr, pool[rng.integers(len(pool))])
        expr = ops.neg(expr)
        if step % 10 == 0:
            pool.append(expr)
    return Module({"main": function([x], expr)})


def seconds(count: int) -> tuple[float, Timing[Module]]:
    timing: Timing[Module] = Timing()
    unit = model(count)
    operators = sum(isinstance(expr, Call) for expr in post_order(unit.main))
    assert operators >= 0.95 * count
    passes = [
        *CANONICAL,
        FunctionPass("decompose", lambda target: decompose(target, lambda call: False)),
        FunctionPass("normal_form", to_a_normal_form),
        FunctionPass("graph_form_again", to_graph_form),
        FunctionPass("fuse", fuse),
    ]
    start = time.process_time()
    result = PassManager(passes, [timing]).run(unit)
    verify(result)
    text, constants = print_module(result)
    parse(text, ops.TABLE, constants)
    return time.process_time() - start, timing


@pytest.fixture
def frozen_garbage() -> None:
    """Exempt what other tests have left alive from garbage collection, for the rest of the run."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("frozen_garbage")
def test_ten_thousand_operators() -> None:
    before, _ = seconds(1_000)
    large, timing = seconds(10_000)
    after, _ = seconds(1_000)
    small = max(before, after)  # the machine may have slowed down or sped up in between
    assert large < 10, f"\n{timing}"
    assert large < 20 * small, f"{small:.2f} s for 1,000 operators, {large:.2f} s for 10,000\n{timing}"
