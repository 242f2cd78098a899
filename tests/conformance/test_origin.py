"""Failures say whether the plugin or the suite is at fault, and have tracebacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from inlaid.graph.pattern import is_op, wildcard
from inlaid.plugins import OpRule
from inlaid_conformance.case import Case, Outcome
from inlaid_conformance.origin import fault_text, is_internal
from inlaid_conformance.pattern_examples import calls
from inlaid_conformance.suite import cases, run_case
from inlaid_runtime.errors import PluginError, Unsupported
from inlaid_runtime.plugins.blame import blame

from .played import under_test


def in_module(name: str) -> Callable[..., Any]:
    """A check in a module of that name that raises `KeyError`."""
    namespace: dict[str, Any] = {"__name__": name}
    exec("def check(tested):\n    return {}['lane']", namespace)
    check: Callable[..., Any] = namespace["check"]
    return check


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("inlaid_conformance.levels.lanes", "a fault of the suite, not of the plugin: KeyError: 'lane'; please report it"),
        ("inlaid_acme.lanes", "KeyError: 'lane'"),
    ],
)
def test_a_fault_of_the_suite_says_so(module: str, reason: str) -> None:
    result = run_case(under_test(OpRule("add")), Case("codegen", "lanes", in_module(module)))
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith(reason)
    assert "KeyError: 'lane'" in result.trace and "Traceback" in result.trace


def composite_reason(rule: OpRule) -> str:
    target = under_test(rule)
    (case,) = (case for case in cases(target) if case.name == "composite")
    return run_case(target, case).reason


def test_a_predicate_that_raises_is_a_fault_of_the_plugin() -> None:
    def raises(expr: Any) -> bool:
        raise LookupError("no such lane")

    reason = composite_reason(OpRule(is_op("relu")(is_op("neg")(wildcard()).where(raises)), "lanes"))
    assert reason == "PluginError: the pattern of rule lanes failed: LookupError: no such lane (plugin acme)"


class OtherCodegen:
    """A code generator whose method has other parameters."""

    def compile(self, unit: object) -> None:
        pass


def test_a_call_with_other_parameters_is_a_fault_of_the_plugin() -> None:
    codegen: Any = OtherCodegen()
    with pytest.raises(PluginError) as caught, blame("acme", "the code generator"):
        codegen.compile(1, 2)
    assert not is_internal(caught.value)


def decoded(code: str) -> Any:
    try:
        return json.loads(code)
    except ValueError as error:
        raise Unsupported("the code is damaged") from error


def test_an_error_that_explains_itself_is_not_of_the_suite() -> None:
    """Such as damaged code of a plugin, in which the core finds no JSON."""
    with pytest.raises(Unsupported) as caught:
        decoded("{")
    assert fault_text(caught.value) == "Unsupported: the code is damaged"


def test_an_example_that_cannot_be_drawn_is_a_fault_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "inlaid_conformance.pattern_examples.calls"}
    exec("def with_wide_bounds(operator, operands, attributes):\n    raise OverflowError('220')", namespace)
    monkeypatch.setattr(calls, "with_wide_bounds", namespace["with_wide_bounds"])
    reason = composite_reason(OpRule(is_op("clip")(is_op("neg")(wildcard())), "lanes"))
    assert reason.startswith("a fault of the suite, not of the plugin: OverflowError: 220")
