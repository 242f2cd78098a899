"""Branches inside regions: `If`, nested and over symbolic sizes, and versions of kernels, held to the graph's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.lowering.selection.branches import in_arms
from inlaid.passes.fuse import fuse
from inlaid.plugins import Capabilities, StaticMemory
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import Predicate
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Version
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, TensorType

from . import test_arrange as scarce
from .oracle import lowered, run

Array = np.ndarray[Any, Any]
N = SizeVar("n")
FLAG = TensorType((), "bool")


def agrees(function: ir.Function, feeds: dict[str, Array], sizes: dict[str, int] | None = None) -> None:
    """A region gives what the graph means, for all values of its flags."""
    region = lowered(function)
    flags = [name for name in feeds if feeds[name].dtype == np.bool_]
    for case in range(1 << len(flags)):
        values = feeds | {name: np.array(bool(case >> bit & 1)) for bit, name in enumerate(flags)}
        expected = evaluate(ir.Module({"main": function}), values)
        actual = run(region, [values[param.name] for param in function.params], sizes)
        for a, b in zip(actual, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_array_equal(a, b)


@st.composite
def graphs(draw: Callable[..., Any], rows: Any = 3) -> ir.Function:
    """Element-wise operators, reductions, transposes and concatenations around branches, which nest and share values."""
    flags = [ir.var(f"c{number}", FLAG) for number in range(2)]
    x = ir.var("x", TensorType((rows, 4), "float32"))
    y = ir.var("y", TensorType((rows, 4), "float32"))

    def value(operands: list[ir.Expr], depth: int) -> ir.Expr:
        pool = list(operands)
        for _ in range(draw(st.integers(0, 3))):
            a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
            kind = draw(st.integers(0, 6 if depth else 4))
            if kind == 0:
                new = ops.add(a, b)
            elif kind == 1:
                new = ops.mul(a, ops.reduce_sum(b, axes=(1,), keepdims=True))
            elif kind == 2:
                new = ops.neg(ops.transpose(ops.transpose(a, perm=(1, 0)), perm=(1, 0)))
            elif kind == 3:
                both = ops.concat(ops.neg(a), ops.exp(ops.mul(b, ops.sub(b, b))), axis=0)
                new = ops.strided_slice(both, begin=(0, 0), end=(rows, 4), strides=(1, 1))
            elif kind == 4:
                new = ops.reshape(ops.reshape(a, shape=(arith.unwrap(arith.mul(rows, 4)),)), shape=(rows, 4))
            else:
                condition = draw(st.sampled_from([*flags, ops.logical_not(flags[0])]))
                if draw(st.booleans()):
                    new = ir.if_(condition, value(pool, depth - 1), value(pool, depth - 1))
                else:
                    arms = [ir.tuple_([value(pool, depth - 1), value(pool, depth - 1)]) for _ in range(2)]
                    choice = ir.if_(condition, *arms)
                    new = ops.sub(ir.tuple_item(choice, 0), ir.tuple_item(choice, 1))
            pool.append(new)
        return pool[-1]

    results = [value([x, y], 2) for _ in range(draw(st.integers(1, 2)))]
    results = [ir.if_(flags[1], item, ops.add(item, x)) for item in results]
    return ir.function([x, y, *flags], ir.tuple_(results))


FLAGS = {"c0": np.array(False), "c1": np.array(False)}


def numbers(rows: int) -> dict[str, Array]:
    rng = np.random.default_rng(rows)
    return {name: rng.integers(-2, 3, (rows, 4)).astype(np.float32) for name in "xy"}


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_random_branches(function: ir.Function) -> None:
    agrees(function, numbers(3) | FLAGS)


@settings(max_examples=15, deadline=None)
@given(graphs(N), st.sampled_from([0, 1, 5]))
def test_random_branches_over_symbolic_sizes(function: ir.Function, rows: int) -> None:
    agrees(function, numbers(rows) | FLAGS)


@settings(max_examples=15, deadline=None)
@given(graphs())
def test_random_branches_in_scarce_memory(function: ir.Function) -> None:
    context = KernelContext(Capabilities(("float32", "bool"), memory=StaticMemory()))
    region = lower_region(RegionSource("region", fuse(function, frugal=True)), (), context)
    for case in range(4):
        values = numbers(3) | {"c0": np.array(bool(case & 1)), "c1": np.array(bool(case & 2))}
        expected = evaluate(ir.Module({"main": function}), values)
        for a, b in zip(scarce.run(region, [values[param.name] for param in function.params]), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_arms_share_memory_and_run_in_turn() -> None:
    """What only an arm reads is computed there, and memory for it is that of the larger arm."""
    x, flag = ir.var("x", TensorType((64, 64), "float32")), ir.var("c", FLAG)
    arms = []
    for sign in (1.0, -1.0):
        product = ops.matmul(ops.matmul(x, ops.mul(x, ir.constant(np.float32(sign)))), x)
        arms.append(ops.exp(product))
    function = ir.function([x, flag], ir.tuple_([ir.if_(flag, *arms)]))
    region = lowered(function)
    alone = lowered(ir.function([x], ir.tuple_([arms[0]])))
    assert region.workspace == alone.workspace
    assert {call.predicates for call in region.calls} == {(Predicate(1, True),), (Predicate(1, False),)}
    # Both arms write the result itself.
    assert all(region.kernels[call.kernel].name != "relayout" for call in region.calls)
    assert len(region.calls) == 2 * len(alone.calls)


def test_order_of_arms() -> None:
    x, flag = ir.var("x", TensorType((2,), "float32")), ir.var("c", FLAG)
    shared = ops.exp(x)
    inner = ir.if_(flag, ops.neg(shared), shared)
    outer = ir.if_(ops.logical_not(flag), ops.add(inner, x), ops.mul(x, shared))
    depths = [
        (type(expr).__name__, len(arms)) for expr, arms in in_arms(ir.in_order(ir.tuple_([outer]))) if not isinstance(expr, ir.Var)
    ]
    assert depths == [
        *(("Call", 0), ("Call", 0)),  # what both arms read, and the condition, in either order
        *(("Call", 2), ("If", 1), ("Call", 1)),
        *(("Call", 1), ("If", 0), ("Tuple", 0)),
    ]


class Versions:
    """Offers a version of everything for one row, and one for up to seven."""

    name = "versions"

    def __init__(self) -> None:
        self.built: list[str] = []

    def offer(self, program: LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        rows = program.outputs[0].shape[0]

        def schedule(label: str) -> Callable[[LoopProgram], LoopProgram]:
            def build(source: LoopProgram) -> LoopProgram:
                self.built.append(label)
                return source

            return build

        versions = (
            Version(arith.compare("==", rows, 1), schedule("one")),
            Version(arith.compare("<=", rows, 7), schedule("few")),
        )
        return Offer((ROW_MAJOR,) * len(program.params), schedule("many"), versions=versions)


def by_versions(rows: Any) -> tuple[Any, list[str]]:
    x = ir.var("x", TensorType((rows, 4), "float32"))
    function = ir.function([x], ir.tuple_([ops.exp(ops.softmax(x, axis=1))]))
    rule = Versions()
    return lowered(function, (rule,), fused=False), rule.built


@pytest.mark.parametrize(("rows", "expected"), [(1, ["one"]), (7, ["few"]), (8, ["many"]), (SizeVar("k", 2), ["few", "many"])])
def test_versions_that_sizes_decide_at_compile_time(rows: Any, expected: list[str]) -> None:
    region, built = by_versions(rows)
    assert list(dict.fromkeys(built)) == expected
    assert all(len(call.predicates) == (len(expected) > 1) for call in region.calls)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 40])
def test_versions_chosen_by_size(rows: int) -> None:
    region, built = by_versions(N)
    assert list(dict.fromkeys(built)) == ["one", "few", "many"]
    one, at_most_seven = arith.compare("==", N, 1), arith.compare("<=", N, 7)
    assert [call.predicates for call in region.calls][:3] == [
        (Predicate(one),),
        (Predicate(one, False), Predicate(at_most_seven)),
        (Predicate(one, False), Predicate(at_most_seven, False)),
    ]
    x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    exponentials = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    (actual,) = run(region, [x])
    np.testing.assert_allclose(actual, np.exp(exponentials / exponentials.sum(axis=1, keepdims=True)), rtol=1e-5)


def test_versions_inside_an_arm() -> None:
    x, flag = ir.var("x", TensorType((N, 4), "float32")), ir.var("c", FLAG)
    function = ir.function([x, flag], ir.tuple_([ir.if_(flag, ops.exp(x), ops.neg(x))]))
    region = lowered(function, (Versions(),), fused=False)
    assert [len(call.predicates) for call in region.calls] == [2, 3, 3] * 2
    for rows in (1, 5, 9):
        for value in (True, False):
            x_array = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
            (actual,) = run(region, [x_array, np.array(value)])
            np.testing.assert_allclose(actual, np.exp(x_array) if value else -x_array, rtol=1e-6)


def test_targets_without_branches_have_no_versions_that_sizes_decide() -> None:
    x = ir.var("x", TensorType((N, 4), "float32"))
    context = KernelContext(Capabilities(("float32",)))
    source = RegionSource("region", ir.function([x], ir.tuple_([ops.exp(x)])))
    region = lower_region(source, (rule := Versions(),), context)
    assert rule.built == ["many"] and not any(call.predicates for call in region.calls)
