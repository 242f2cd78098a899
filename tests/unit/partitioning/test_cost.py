"""Placement by cost: the least predicted time, transfers included."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.graph.strategies import Program, assert_close

from inlaid import ops
from inlaid.driver.compile import candidates_for, compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.pattern import is_op, wildcard
from inlaid.partitioning import annotate, partition, verify_partition
from inlaid.partitioning.annotate import Annotated, Claim
from inlaid.partitioning.cost import CostModel
from inlaid.partitioning.flow import collect_values
from inlaid.partitioning.optimize import Solution, by_cost
from inlaid.plugins import Accept, Capabilities, Link, OpRule
from inlaid.settings import COST, Settings
from inlaid_runtime.errors import InputError, PlacementWarning
from inlaid_runtime.types import TensorType

from .fakes import Judge, make_registry
from .test_random import plan_programs, random_judges, targets

pytest.importorskip("scipy", reason='needs SciPy: pip install "inlaid[cost]"')
X = ir.var("x", TensorType((64, 64), "float32"))


def solve(function: ir.Function, judges: dict[str, Judge], **facts: Link) -> tuple[Solution, list[str], Annotated, CostModel]:
    registry = make_registry(judges, **facts)
    candidates = candidates_for(list(judges), registry)
    annotated = annotate(function, candidates)
    costs = CostModel(tuple(registry.capabilities(candidate.target) for candidate in candidates))
    solution = by_cost(annotated, costs, fallback=len(judges))
    return solution, [str(candidates[claim.target].target) for claim in solution.claims], annotated, costs


def priced(**seconds: float) -> Judge:
    """Takes operators by name, each in so many seconds."""
    return tuple(OpRule(name, name, lambda call, cost=cost: Accept(cost)) for name, cost in seconds.items())


def test_an_operator_goes_where_it_is_fastest() -> None:
    function = ir.function([X], ops.neg(ops.relu(X)))
    _, where, *_ = solve(function, {"a": priced(relu=1.0, neg=5.0), "b": priced(relu=5.0, neg=1.0)})
    assert where == ["a", "b"]


def test_a_transfer_can_cost_more_than_it_brings() -> None:
    function = ir.function([X], ops.exp(ops.neg(ops.relu(X))))
    slow = Link(latency=1.0, bandwidth=1e9)
    judges = {"a": priced(relu=1.0, neg=2.0, exp=1.0), "b": priced(relu=2.0, neg=1.0, exp=2.0)}
    solution, where, *_ = solve(function, judges, link=slow)
    assert where == ["a", "a", "a"]
    assert solution.seconds == pytest.approx(4.0 + 2 * (1.0 + 64 * 64 * 4 / 1e9)) and solution.gap == 0


def test_a_composite_that_is_faster_than_its_parts() -> None:
    rule = OpRule(is_op("neg")(is_op("relu")(wildcard())), "both", lambda solution: Accept(1.0))
    function = ir.function([X], ops.exp(ops.neg(ops.relu(X))))
    solution, where, *_ = solve(function, {"a": (rule,), "b": priced(relu=0.7, neg=0.7, exp=0.1)})
    assert where == ["a", "b"] and [len(claim.members) for claim in solution.claims] == [2, 1]
    solution, where, *_ = solve(function, {"a": (rule,), "b": priced(relu=0.4, neg=0.4, exp=0.1)})
    assert where == ["b", "b", "b"]


def test_a_roofline_stands_in_for_costs_that_plugins_do_not_give() -> None:
    a, b = (ir.var(name, TensorType((256, 256), "float32")) for name in "ab")
    function = ir.function([a, b], ops.matmul(a, b))
    costs = CostModel((Capabilities(("float32",), peak=1e9, bandwidth=1e12), Capabilities(("float32",), peak=1e15, bandwidth=1e9)))
    (call,) = (expr for expr in ir.post_order(function) if isinstance(expr, ir.Call))
    assert costs.operations(call) == 2 * 256**3
    assert costs.seconds(Claim(0, (call,), Accept())) == pytest.approx(2 * 256**3 / 1e9)
    assert costs.seconds(Claim(1, (call,), Accept())) == pytest.approx(3 * 256 * 256 * 4 / 1e9)


@settings(max_examples=40, deadline=None)
@given(plan_programs(), targets)
def test_placements_are_sound(program: Program, drawn: list[tuple[int, float]]) -> None:
    judges = random_judges(drawn)
    registry = make_registry(judges)
    candidates = candidates_for(list(judges), registry)
    costs = CostModel(tuple(registry.capabilities(candidate.target) for candidate in candidates))
    partitioning = partition(program.module, candidates, placer=lambda name, annotated: by_cost(annotated, costs).claims)
    verify_partition(program.module, partitioning)
    assert_close(evaluate(partitioning.module, program.inputs), evaluate(program.module, program.inputs))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_no_other_placement_is_predicted_to_be_faster(data: st.DataObject) -> None:
    """Against all placements of small graphs, each priced by walking over it."""
    pool: list[ir.Expr] = [X, ir.var("y", X.type)]
    params = [item for item in pool if isinstance(item, ir.Var)]
    for _ in range(data.draw(st.integers(1, 5))):
        operands = [pool[data.draw(st.integers(0, len(pool) - 1))] for _ in range(2)]
        unary = data.draw(st.booleans())
        pool.append(ops.relu(operands[0]) if unary else ops.add(*operands))
    result = data.draw(st.sampled_from(["last", "all"]))
    function = ir.function(params, pool[-1] if result == "last" else ir.tuple_(pool[2:]))
    prices = st.integers(1, 9).map(float)
    judges = {name: priced(relu=data.draw(prices), add=data.draw(prices)) for name in "ab"}
    link = Link(latency=data.draw(st.integers(0, 4)) / 2, bandwidth=1e12)
    solution, _, annotated, costs = solve(function, judges, link=link)
    options = [[c for c in annotated.claims if c.root is call and c.target < len(judges)] for call in annotated.calls]
    best = min(_price(function, chosen, costs) for chosen in itertools.product(*options))
    assert solution.seconds == pytest.approx(best, rel=1e-3)
    assert _price(function, solution.claims, costs) == pytest.approx(solution.seconds, rel=1e-6)


def _price(function: ir.Function, chosen: Sequence[Claim], costs: CostModel) -> float:
    home = {id(claim.root): claim.target for claim in chosen}
    total = sum(map(costs.seconds, chosen))
    for value in collect_values(function):
        source = None if value.source is None else home[id(value.source)]
        readers = {home[id(reader)] for reader in value.readers}
        if source is not None and (value.host or readers - {source}):
            total += costs.transfer(source, value.size)
        total += sum(costs.transfer(target, value.size) for target in readers - {source})
    return total


def test_large_models_are_placed_in_time() -> None:
    value: ir.Expr = X
    for number in range(2000):
        value = ops.relu(value) if number % 3 else ops.add(value, X)
    function = ir.function([X], value)
    solution, where, *_ = solve(function, {"a": priced(relu=1.0, add=4.0), "b": priced(relu=2.0, add=1.0)}, link=Link(0.1, 1e9))
    assert len(where) == 2000 and solution.gap <= 1e-4
    assert np.isfinite(solution.seconds)


def test_the_driver_places_by_cost() -> None:
    judges = {"a": priced(relu=1.0, neg=5.0), "b": priced(relu=5.0, neg=1.0)}
    module = ir.Module({"main": ir.function([X], ops.neg(ops.relu(X)))})
    executable = compile_module(module, list(judges), make_registry(judges), settings=Settings(placement=COST))
    assert [info.target for info in executable.regions] == ["a", "b"]
    executable = compile_module(module, list(judges), make_registry(judges))
    assert [info.target for info in executable.regions] == ["a"]
    with pytest.raises(InputError, match=r"unknown placement 'luck'.*priority, cost"):
        compile_module(module, list(judges), make_registry(judges), settings=Settings(placement="luck"))


def test_a_placement_that_may_not_be_the_best_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = make_registry({"a": priced(relu=1.0)})
    model = ir.Module({"main": ir.function([X], ops.relu(X))})
    monkeypatch.setattr("inlaid.driver.placement.by_cost", lambda *args: replace(by_cost(*args), gap=0.25))
    with pytest.warns(PlacementWarning, match="the optimal placement of main may be up to 25.0% faster"):
        compile_module(model, ["a"], registry, settings=Settings(placement=COST))
