"""Whatever targets take whichever operators of whatever graph: regions are sound, and outputs those of the whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.graph.strategies import F32, Generator, Program, assert_close, tensor_shape

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import is_op, tuple_item, wildcard
from inlaid.graph.text import show
from inlaid.graph.verify import verify
from inlaid.partitioning import Partitioned, partition, verify_partition
from inlaid.partitioning.explain import explain
from inlaid.plugins import Accept, OpRule, Reject, Verdict
from inlaid.plugins.contract import COMPOSITE
from inlaid_runtime.types import TensorType

from .fakes import Judge, fake_candidates, make_registry


class PlanGenerator(Generator):
    """Random graphs of what an executor runs: operators with one and several results, branches, loops, bindings, closures."""

    def step(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        kinds: list[Callable[[list[ir.Expr], int], ir.Expr]] = [self.unary, self.binary, self.binary, self.reduce, self.shape]
        kinds += [self.several, self.draw_constant, self.unary]
        if depth:
            kinds += [self.branch, self.iterate, self.binding, self.closure]
        return self.pick(kinds)(pool, depth)  # type: ignore[no-any-return]

    def several(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """One result of an operator that has two; the other may be used as well."""
        x = self.tensor(pool)
        if not tensor_shape(x) or not isinstance(tensor_shape(x)[-1], int) or tensor_shape(x)[-1] == 0:
            return ops.neg(x)
        both = ops.topk(x, k=1, axis=len(tensor_shape(x)) - 1)
        other = ops.cast(ir.tuple_item(both, 1), dtype=F32)
        # Items of one call, taken out by several expressions.
        pool += [ir.tuple_item(both, 0), other]
        return ir.tuple_item(both, self.number(0, 1) * 0)

    def draw_constant(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        return self.constant(self.pick([(), (3,), (2, 3)]))


@st.composite
def plan_programs(draw: Callable[..., Any]) -> Program:
    """A module whose main may return inputs, constants, and one value twice."""
    generator = PlanGenerator(draw)
    kinds = [TensorType((2, 3), F32), TensorType((3,), F32), TensorType((), F32)]
    params = [ir.var(name, type_) for name, type_ in zip("xyz", kinds, strict=True)]
    pool: list[ir.Expr] = list(params)
    generator.grow(pool, 2, generator.number(1, 9))
    results = [generator.pick(pool) for _ in range(generator.number(1, 4))] + [pool[-1]]
    body = results[0] if len(results) == 1 else ir.tuple_(results)
    rng = np.random.default_rng(generator.number(0, 3))
    inputs = {param.name: rng.integers(-3, 4, tensor_shape(param)).astype(np.float32) for param in params}
    return Program(ir.Module({"main": ir.function(params, body)}), inputs)


def by_chance(seed: int, share: float) -> Judge:
    """Takes calls at random, but always the same of one kind, element type and rank."""

    def judge(call: ir.Call) -> Verdict:
        assert isinstance(call.callee, Operator)
        key = f"{seed} {call.callee.name} {[arg.type for arg in call.args]!r}".encode()
        lucky = np.random.default_rng(list(key)).random() < share
        return Accept() if lucky else Reject("not today")

    return judge


targets = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.2, 0.5, 0.8, 1.0])), min_size=1, max_size=3)


BINARY = is_op("add", "sub", "mul", "maximum", "minimum")
UNARY = is_op("relu", "neg", "abs", "exp", "tanh")
PAIR = UNARY(BINARY(wildcard(), wildcard()))
COMPOSITES = (PAIR, BINARY(PAIR, wildcard()), UNARY(wildcard().optional(UNARY)), is_op("cast")(tuple_item(is_op("topk"), 1)))
"""Overlapping patterns, with constants, several operators and results of tuples in them."""


def random_judges(drawn: list[tuple[int, float]]) -> dict[str, Judge]:
    """Targets that take operators by chance; those with even seeds take some composites as well."""
    return {f"t{number}": random_rules(seed, share) for number, (seed, share) in enumerate(drawn)}


def random_rules(seed: int, share: float) -> Judge:
    single = by_chance(seed, share)
    if seed % 2:
        return single
    chosen = [pattern for number, pattern in enumerate(COMPOSITES) if seed >> 1 & 1 << number or number == seed % 3]
    return (*(OpRule(pattern, f"part{number}") for number, pattern in enumerate(chosen)), OpRule("*", "rule", single))


@settings(max_examples=60, deadline=None)
@given(plan_programs(), targets)
def test_regions_are_sound(program: Program, drawn: list[tuple[int, float]]) -> None:
    candidates = fake_candidates(random_judges(drawn))
    partitioning = partition(program.module, candidates)
    verify_partition(program.module, partitioning)
    verify(partitioning.module)
    assert partitioning.module.main.type == program.module.main.type
    check_regions(program.module.main, partitioning)
    assert_close(evaluate(partitioning.module, program.inputs), evaluate(program.module, program.inputs))
    again = partition(program.module, candidates)
    assert show(again.module, weights="hash") == show(partitioning.module, weights="hash")
    report = explain(partitioning, candidates)
    assert len(report.operators) == sum(item.operators for item in report.regions)
    assert report.to_text() and report.to_json()


def check_regions(before: ir.Function, partitioning: Partitioned) -> None:
    """Each operator is in one region of the target that takes it; regions hold one target each, and one level of scopes."""
    claims = [claim for placement in partitioning.placements for claim in placement.claims]
    calls = [call for claim in claims for call in claim.members]
    chosen = {call.callee.name: 0 for call in calls if isinstance(call.callee, Operator)}
    for name, target in partitioning.regions.items():
        for expr in ir.post_order(partitioning.module[name]):
            assert not isinstance(expr, (ir.If, ir.Loop, ir.Let, ir.GlobalVar))
            if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator):
                chosen[expr.callee.name] += 1
            elif isinstance(expr, ir.Call):
                assert isinstance(expr.callee, ir.Function) and expr.callee.attr(COMPOSITE)
        results = partitioning.module[name].body
        assert isinstance(results, ir.Tuple) and results.fields
        assert len({id(field) for field in results.fields}) == len(results.fields), "a result is handed out twice"
        assert all(isinstance(param.type, TensorType) for param in partitioning.module[name].params)
        assert target in {claim.target for claim in claims}
    expected: dict[str, int] = {}
    for call in calls:
        assert isinstance(call.callee, Operator)
        expected[call.callee.name] = expected.get(call.callee.name, 0) + 1
    assert chosen == expected
    digests = {e.digest() for e in ir.post_order(before) if isinstance(e, ir.Constant)}
    constants = [e for item in partitioning.module.functions.values() for e in ir.post_order(item) if isinstance(e, ir.Constant)]
    assert {constant.digest() for constant in constants} <= digests


@settings(max_examples=30, deadline=None)
@given(plan_programs(), targets)
def test_compiled_models_give_the_same(program: Program, drawn: list[tuple[int, float]]) -> None:
    judges = random_judges(drawn)
    executable = compile_module(program.module, list(judges), make_registry(judges))
    results = executable.run(program.inputs)
    expected = evaluate(program.module, program.inputs)
    assert_close(tuple(results.values()), expected if isinstance(expected, tuple) else (expected,))
    assert {info.target for info in executable.regions} <= {*judges, "reference"}
