"""What rules accept is found and exercised, value by value; what they claim and no example was found of is a warning."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import is_op, wildcard
from inlaid.plugins import Accept, Conformance, OpRule, Reject, Verdict
from inlaid.reference.codegen import ReferenceCodegen
from inlaid_conformance.case import Failed, Outcome, Result
from inlaid_conformance.corpus import find_entry
from inlaid_conformance.coverage import FORM, Trial, search, selected
from inlaid_conformance.levels import annotations, composites, operators
from inlaid_conformance.report import as_markdown, make_report
from inlaid_conformance.suite import cases, run_case
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.types import TensorType

from . import played

DTYPES = ("float32", "int8", "int32", "int64")
X = ir.var("x", TensorType((3, 5), "float32"))


class Twice(ReferenceCodegen):
    """Has code for one operator."""

    build_body = staticmethod(lambda x: ops.add(x, x))

    def compile(self, unit: Any, context: Any) -> Any:
        (x,) = unit.function.params
        return super().compile(dataclasses.replace(unit, function=ir.function((x,), self.build_body(x))), context)


class Squared(Twice):
    build_body = staticmethod(lambda x: ops.mul(x, x))


def under_test(
    *rules: OpRule, examples: tuple[ir.Function, ...] = (), codegen: type[ReferenceCodegen] = ReferenceCodegen
) -> TargetUnderTest:
    """A target with some rules, without booleans."""
    return played.under_test(*rules, declaration=Conformance(examples=examples), codegen=codegen, dtypes=DTYPES)


def result(target: TargetUnderTest, name: str) -> Result:
    """What comes of the case on an operator."""
    (case,) = (case for case in cases(target) if case.id == f"operators/exercised[{name}]")
    return run_case(target, case)


def values(trials: tuple[Trial, ...], name: str) -> set[str]:
    return {trial.values[name] for trial in trials if name in trial.values}


def judge_like_accelerator(call: ir.Call) -> Verdict:
    """As an int8 accelerator with blocks of 16 channels judges a convolution: plain examples meet one of five conditions."""
    data, attrs = call.args[0].type, call.attrs
    assert isinstance(data, TensorType)
    if data.dtype.name != "int8":
        return Reject("it computes in int8")
    if data.rank != 4 or data.shape[0] != 1:
        return Reject("it takes one image")
    if not isinstance(data.shape[1], int) or data.shape[1] % 16:
        return Reject("channels are not in blocks of 16")
    if not isinstance(call.args[1], ir.Constant):
        return Reject("weights are not constant")
    if len(set(attrs.strides)) > 1 or attrs.strides[0] not in (2, 3):  # type: ignore[attr-defined]
        return Reject("it takes every second or third place")
    return Accept()


def test_a_search_meets_conditions_one_after_the_other() -> None:
    entry = find_entry(ops.conv)
    assert entry is not None
    trials = search(under_test(OpRule("conv", predicate=judge_like_accelerator)), entry).trials
    assert values(trials, "strides") == {"all 2", "all 3"}
    assert values(trials, "groups") >= {"one", "several", "depthwise"}
    assert values(trials, "dilations") >= {"all 1", "all 2"}
    assert values(trials, "kernel") >= {"all 1", "all 2", "all 3", "all 7"}
    assert values(trials, FORM) == {"constants"}
    chosen = tuple(selected(trials, ()))
    for name in ("strides", "groups", "dilations", "kernel", "pads", "element type", "channels"):
        assert values(chosen, name) == values(trials, name)
    assert len(chosen) < 30


def test_a_search_finds_the_same_again() -> None:
    entry = find_entry(ops.max_pool)
    assert entry is not None
    first, second = (search(under_test(OpRule("max_pool")), entry).trials for _ in range(2))
    assert [(trial.vector, trial.values) for trial in first] == [(trial.vector, trial.values) for trial in second]


def test_a_value_is_exercised_beside_plain_ones() -> None:
    entry = find_entry(ops.max_pool)
    assert entry is not None
    trials = search(under_test(OpRule("max_pool")), entry).trials
    (dilated,) = (trial for trial in selected(trials, (), 0) if trial.values["dilations"] == "all 2")
    assert dilated.values["strides"] == "all 1"
    assert dilated.values["element type"] == "float32"


def test_what_was_exercised_already_is_not_again() -> None:
    entry = find_entry(ops.max_pool)
    assert entry is not None
    trials = search(under_test(OpRule("max_pool")), entry).trials
    assert not selected(trials, [trial.values for trial in trials])


def test_a_rule_that_accepts_nothing_is_a_warning() -> None:
    target = under_test(OpRule("exp", predicate=lambda call: Reject("the moon is full")))
    outcome = result(target, "exp")
    assert (outcome.outcome, outcome.claimed) == (Outcome.SKIPPED, True)
    (claim,) = outcome.unexercised
    assert "exp has a rule, but no example was found that it accepts: the moon is full" in claim
    report = make_report(target, [outcome], complete=True)
    assert not report.complete
    assert not report.failures
    assert claim.split(";")[0] in as_markdown(report, "acme.svg")


def test_an_operator_without_a_rule_is_not_claimed() -> None:
    outcome = result(under_test(OpRule("exp")), "sin")
    assert not outcome.claimed
    assert not outcome.unexercised
    assert make_report(under_test(OpRule("exp")), [outcome], complete=True).complete


def only_wide(call: ir.Call) -> Verdict:
    assert isinstance(call.type, TensorType)
    return Accept() if 1013 in call.type.shape else Reject("it takes rows of 1013")


def test_an_example_of_the_plugin_exercises_a_rule() -> None:
    wide = ir.var("x", TensorType((3, 1013), "float32"))
    rule, example = OpRule("exp", predicate=only_wide), ir.function((wide,), ops.exp(wide))
    assert result(under_test(rule), "exp").unexercised
    assert result(under_test(rule, examples=(example,)), "exp") == Result("operators/exercised[exp]", "operators", Outcome.PASSED)


TWICE = Operator("acme.twice", lambda attrs, type_: type_, reference=lambda attrs, x: x + x)


def test_an_operator_of_the_vendor_needs_an_example() -> None:
    outcome = result(under_test(OpRule("acme.twice")), "acme.twice")
    assert "acme.twice has a rule" in outcome.unexercised[0]
    example = ir.function((X,), TWICE(X))
    outcome = result(under_test(OpRule("acme.twice"), examples=(example,), codegen=Twice), "acme.twice")
    assert (outcome.outcome, outcome.unexercised) == (Outcome.PASSED, ())
    outcome = result(under_test(OpRule("acme.twice"), examples=(example,), codegen=Squared), "acme.twice")
    assert outcome.outcome is Outcome.FAILED
    assert "differs from the reference" in outcome.reason


def test_indices_of_an_example_have_to_be_constant() -> None:
    where = ir.var("where", TensorType((50,), "int64"))
    target = under_test(OpRule("take"), examples=(ir.function((X, where), ops.take(X, where, axis=0)),))
    assert "make indices and sizes constants" in result(target, "take").reason


@pytest.mark.parametrize("body", [ops.neg(X), ops.exp(ops.neg(X)), X])
def test_examples_are_accepted_whole(body: ir.Expr) -> None:
    target = under_test(OpRule("exp"), examples=(ir.function((X,), body),))
    with pytest.raises(Failed, match="number 0 is rejected"):
        annotations.accepts_its_examples(target)
    annotations.accepts_its_examples(under_test(OpRule("exp"), examples=(ir.function((X,), ops.exp(X)),)))


def test_a_part_of_a_pattern_that_is_always_rejected_is_a_warning() -> None:
    pattern = is_op("relu")(is_op("neg", "exp")(wildcard()))

    def without_exp(pattern_match: Any) -> Verdict:
        return Reject("not after exp") if pattern_match.root.args[0].callee is ops.exp else Accept()

    (claim,) = composites.agrees(under_test(OpRule(pattern, "rectified", without_exp)), "rectified")
    assert claim.startswith("no example of relu(exp(*)) is accepted: as rectified: not after exp")
    assert not composites.agrees(under_test(OpRule(pattern, "rectified")), "rectified")


def test_own_operators_are_cases() -> None:
    target = under_test(OpRule("acme.twice"), OpRule("exp"), OpRule("*"))
    assert [case.subject for case in operators.vendor_cases(target)] == ["acme.twice"]
