"""The report on a partitioned model: as text, and as data."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.graph.strategies import Program

from inlaid import ops
from inlaid.driver import cut
from inlaid.driver.report import build_report
from inlaid.graph import ir
from inlaid.graph.pattern import is_const, is_op, wildcard
from inlaid.partitioning import partition
from inlaid.partitioning.annotate import Annotated, Claim
from inlaid.partitioning.assignment import by_priority
from inlaid.partitioning.explain import explain
from inlaid.partitioning.page import page
from inlaid.partitioning.report import Report, duration
from inlaid.plugins import Accept, AcceptIf, Border, OpRule, Reject
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InlaidWarning
from inlaid_runtime.types import Layout, TensorType, Type

from .fakes import Form, fake_candidates, make_registry, taking
from .test_random import plan_programs, random_judges, targets

N = SizeVar("n", 1, 8)


def report(first: ir.Var) -> Report:
    """Of a model that a takes the most of, b a little, and the reference target the rest."""
    second = ops.neg(ops.relu(first, span=ir.Span("m.onnx", "act")), span=ir.Span("m.onnx", "turn"))
    body = ops.add(ops.exp(second, span=ir.Span("m.onnx", "exp")), ir.constant(np.float32(1)))
    module = ir.Module({"main": ir.function([first], body)})
    candidates = fake_candidates({"a": taking("relu", "add"), "b": taking("neg")})
    return explain(partition(module, candidates), candidates)


TEXT = """\
4 operators in 4 regions
  a: 2 operators
  b: 1 operator
  reference: 1 operator

region0_a on a: 1 operator, 24 bytes in, 24 bytes out
region1_b on b: 1 operator, 24 bytes in, 24 bytes out
region2_reference on reference: 1 operator, 24 bytes in, 24 bytes out
region3_a on a: 1 operator, 24 bytes in, 24 bytes out

neg at m.onnx:turn, exp at m.onnx:exp keep region0_a and region3_a apart

If a accepted neg at m.onnx:turn, exp at m.onnx:exp: 1 region instead of 4, 24 bytes instead of 96 across borders
If a accepted neg at m.onnx:turn: 3 regions instead of 4, 72 bytes instead of 96 across borders
If a accepted exp at m.onnx:exp: 3 regions instead of 4, 72 bytes instead of 96 across borders
If b accepted relu at m.onnx:act: 3 regions instead of 4, 72 bytes instead of 96 across borders
If b accepted exp at m.onnx:exp: 3 regions instead of 4, 72 bytes instead of 96 across borders

relu at m.onnx:act: a
neg at m.onnx:turn: b
    a: rejected: takes no neg
exp at m.onnx:exp: reference
    a: rejected: takes no exp
    b: rejected: takes no exp
add at ?: a"""


def test_text() -> None:
    explanation = report(ir.var("x", TensorType((2, 3), "float32")))
    assert explanation.to_text() == TEXT
    assert explanation.summary() == TEXT[: TEXT.index("\n\nneg")]


def test_data() -> None:
    record = report(ir.var("x", TensorType((N, 3), "float32"))).to_json()
    assert json.loads(json.dumps(record)) == record
    assert record["operators"][2] == {
        "number": 2,
        "node": "m.onnx:exp",
        "operator": "exp",
        "type": "Tensor[(n, 3), float32]",
        "target": "reference",
        "region": "region2_reference",
        "composite": "",
        "parts": 1,
        "root": 2,
        "reads": [1],
        "seconds": None,
        "verdicts": {"a": "rejected: takes no exp", "b": "rejected: takes no exp", "reference": "accepted"},
    }
    assert record["regions"][1] == {
        "name": "region1_b",
        "target": "b",
        "operators": 1,
        "bytes_in": None,
        "bytes_out": None,
        "condition": "",
        "seconds": None,
        "transfer": None,
        "measured": None,
        "earlier": "",
        "through": [],
        "generic": [],
    }


def test_one_operator_keeps_regions_apart() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    act = ops.gelu(ops.relu(x), approximate=False, span=ir.Span("m.onnx", "/h.3/mlp/act"))
    candidates = fake_candidates({"a": taking("relu", "add"), "b": taking("gelu")})
    explanation = explain(partition(ir.Module({"main": ir.function([x], ops.add(act, x))}), candidates), candidates)
    assert "One operator, gelu at m.onnx:/h.3/mlp/act, keeps region0_a and region2_a apart" in explanation.to_text()
    (change,) = [item for item in explanation.changes if item.target == "a"]
    assert (change.regions, change.regions_then, change.operators) == (3, 1, (1,))


def explain_rules(rules: tuple[OpRule, ...], body: ir.Expr, x: ir.Var) -> tuple[Report, dict[str, str]]:
    """The report of a function on a target with these rules, and what the target says of each operator."""
    candidates = fake_candidates({"a": rules})
    explanation = explain(partition(ir.Module({"main": ir.function([x], body)}), candidates), candidates)
    return explanation, {item.operator: dict(item.verdicts)["a"] for item in explanation.operators}


def test_a_pattern_of_one_operator_is_a_rule_for_it() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    small = OpRule(is_op("add")(wildcard().named("x"), wildcard()), "sum", lambda pattern_match: Reject("too large"))
    assert explain_rules((small,), ops.add(x, x), x)[1] == {"add": "rejected: too large"}
    constant = OpRule(is_op("add")(wildcard(), is_const()), "sum")
    assert explain_rules((constant,), ops.add(x, x), x)[1] == {
        "add": "rejected: sum does not match: expected a constant, found a var"
    }
    explanation, _ = explain_rules((OpRule(is_op("add")(wildcard(), wildcard()), "sum"),), ops.add(x, x), x)
    assert explanation.to_text().endswith("add at ?: a") and explanation.operators[0].composite == "sum"


def test_a_composite_that_does_not_take_what_it_matches() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    pair = OpRule(is_op("neg")(is_op("relu")(wildcard())), "pair", lambda pattern_match: Reject("too large"))
    alone = OpRule("neg", predicate=lambda call: Reject("never by itself"))
    body = ops.neg(ops.relu(x))
    assert explain_rules((pair,), body, x)[1] == dict.fromkeys(("relu", "neg"), "rejected: as pair: too large")
    assert explain_rules((alone, pair), body, x)[1]["neg"] == "rejected: never by itself; as pair: too large"
    explanation, words = explain_rules((OpRule(pair.pattern, "other"), pair), body, x)
    assert words == {"relu": "accepted", "neg": "accepted"} and "neg at ?: a as part of other" in explanation.to_text()


def test_what_no_type_fits_is_said_once() -> None:
    x = ir.var("x", TensorType((4,), "int8"))
    pair = OpRule(is_op("neg")(is_op("abs")(wildcard())), "pair")
    words = explain_rules((pair, OpRule("neg")), ops.neg(ops.abs(x)), x)[1]
    assert words["neg"] == "rejected: element type int8 is not among its capabilities"


def test_conversions_at_borders() -> None:
    """The report counts what is converted between regions, with the bytes that are stored."""
    x = ir.var("x", TensorType((1, 5, 4, 3), "float32"))
    judges = {"a": taking("abs", "relu"), "b": taking("neg"), "c": taking("pad", "reshape", "transpose")}
    blocked: dict[str, Form] = {"a": lambda type_: Border(Layout(((1, 4),)))}
    registry = make_registry(judges, forms=blocked)
    partitioned, candidates = cut(ir.Module({"main": ir.function([x], ops.relu(ops.neg(ops.abs(x))))}), list(judges), registry)
    explanation = build_report(partitioned, candidates, registry)
    text = explanation.to_text()
    assert text.startswith("3 operators in 3 regions, 4 conversions at their borders\n")
    assert "region0_a on a: 1 operator, 384 bytes in, 384 bytes out" in text
    assert "border0_c on c: a conversion, 240 bytes in, 384 bytes out; predicted " in text
    assert [item.operators for item in explanation.conversions] == [3, 3, 3, 3] and '"name":"border3_c"' in page(
        explanation, "model"
    )
    assert explanation.seconds > sum((region.seconds or 0) + (region.transfer or 0) for region in explanation.regions)


def test_conversions_that_are_a_part_of_a_region() -> None:
    """Their time is a part of the region's, as are the bytes that are stored."""
    x = ir.var("x", TensorType((1, 5, 4, 3), "float32"))
    judges = {"a": taking("max_pool"), "b": taking("relu", "pad", "reshape", "transpose")}
    main = ir.function([x], ops.max_pool(ops.relu(x), kernel=(2, 2)))
    reports = []
    for form in ({}, {"a": lambda type_: Border(Layout(((1, 4),)))}):
        registry = make_registry(judges, forms=form)
        partitioned, candidates = cut(ir.Module({"main": main}), list(judges), registry)
        reports.append(build_report(partitioned, candidates, registry))
    (plain, _), (merged, _) = (report.regions for report in reports)
    assert len(reports[1].conversions) == 1 and (plain.bytes_out, merged.bytes_out) == (240, 384)
    assert plain.operators == merged.operators == 1 and 0 < (plain.seconds or 0) < (merged.seconds or 0)


def test_borders_that_are_not_known() -> None:
    def fails(type_: Type) -> Border:
        raise ValueError("no driver")

    x = ir.var("x", TensorType((4,), "float32"))
    registry = make_registry({"a": taking("neg")}, forms={"a": fails})
    partitioned, candidates = cut(ir.Module({"main": ir.function([x], ops.neg(x))}), ["a"], registry)
    with pytest.warns(InlaidWarning, match="the conversions at region borders are unknown: .*no driver"):
        explanation = build_report(partitioned, candidates, registry)
    assert len(explanation.regions) == 1 and not explanation.conversions


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 ns"), (4.096e-9, "4.1 ns"), (9.996e-7, "1 us"), (1.25e-4, "125 us"), (0.0123, "12.3 ms"), (2.5, "2.5 s")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_longer_way_that_would_close_a_cycle() -> None:
    x = ir.var("x", TensorType((4,), "float32"))
    value: ir.Expr = ops.relu(x)
    for number in range(5):
        value = ops.exp(value) if number % 2 else ops.neg(value)
    candidates = fake_candidates({"a": taking("relu")})
    explanation = explain(partition(ir.Module({"main": ir.function([x], ops.relu(value))}), candidates), candidates)
    assert "region2_a would close a cycle with region0_a through neg at ?, exp at ?, neg at ? and 2 more" in explanation.to_text()


def test_nothing_is_advised_that_was_not_counted() -> None:
    """Control flow between operators: regions are not counted there."""
    x, c = ir.var("x", TensorType((4,), "float32")), ir.var("c", TensorType((), "bool"))
    body = ops.relu(ir.if_(c, ops.neg(ops.relu(x)), x))
    candidates = fake_candidates({"a": taking("relu")})
    explanation = explain(partition(ir.Module({"main": ir.function([x, c], body)}), candidates), candidates)
    assert not explanation.changes


def move_operators(moved: tuple[int, ...], target: int, name: str, annotated: Annotated) -> tuple[Claim, ...]:
    """By priority, operator by operator, but for some that go to a target."""
    homes = {id(call): claim.target for claim in by_priority(annotated) for call in claim.members}
    homes.update((id(annotated.calls[number]), target) for number in moved)
    return tuple(Claim(homes[id(call)], (call,), Accept()) for call in annotated.calls)


@settings(max_examples=40, deadline=None)
@given(plan_programs(), targets)
def test_changes_are_what_a_plugin_that_took_more_would_bring(program: Program, drawn: list[tuple[int, float]]) -> None:
    """Counted anew with a target that takes the operators of a change as well."""
    judges = random_judges(drawn)
    candidates = fake_candidates(judges)
    partitioning = partition(program.module, candidates)
    report = explain(partitioning, candidates)
    numbers = {str(candidate.target): number for number, candidate in enumerate(candidates)}
    for change in report.changes[:3]:
        then = partition(program.module, candidates, placer=partial(move_operators, change.operators, numbers[change.target]))
        assert len(then.regions) == change.regions_then


def test_nothing_to_say() -> None:
    x = ir.var("x", TensorType((2,), "float32"))
    candidates = fake_candidates({"a": taking()})
    explanation = explain(partition(ir.Module({"main": ir.function([x], x)}), candidates), candidates)
    assert explanation.to_text() == explanation.summary() == "0 operators in 0 regions"
    assert explanation.to_json() == {"operators": [], "regions": [], "changes": [], "conversions": []}


def test_conditions() -> None:
    x = ir.var("x", TensorType((N,), "float32"))
    candidates = fake_candidates({"a": lambda call: AcceptIf(arith.compare("!=", N, 5))})
    explanation = explain(partition(ir.Module({"main": ir.function([x], ops.relu(x))}), candidates), candidates)
    assert "if (n != 5); otherwise on other targets" in explanation.to_text()
    assert "a varying number of bytes in" in explanation.to_text()
