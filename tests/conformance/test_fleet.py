"""The suite on itself: a plugin that keeps the contract passes, and each that breaks one promise is caught by the check for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.plugin_registry import REFERENCE, both_halves

from inlaid.ops.fixed_point import ROUNDINGS
from inlaid.plugins.registry import PluginRegistry
from inlaid_conformance import suite
from inlaid_conformance.case import Case, Outcome
from inlaid_conformance.suite import CASES, run, run_in_processes
from inlaid_conformance.target_under_test import TargetUnderTest

pytestmark = pytest.mark.slow

CAUGHT = {
    "wrong_api_version": "plugin/loads",
    "imports_early": "plugin/loads-lazily",
    "borrows_its_version": "plugin/states-its-version",
    "answers_for_other_targets": "plugin/leaves-others-alone",
    "moody_capabilities": "plugin/declares-targets",
    "probe_raises": "plugin/probes",
    "waives_the_binding": "plugin/declares-tolerances",
    "allows_anything": "plugin/declares-tolerances",
    "allows_any_integer": "plugin/declares-tolerances",
    "expects_unknown_case": "plugin/expects-what-there-is",
    "misspells_an_operator": "annotations/loads-rules",
    "misspells_in_a_pattern": "annotations/loads-rules",
    "leaves_a_pattern_unnamed": "annotations/loads-rules",
    "names_twice": "annotations/loads-rules",
    "rule_raises": "annotations/judges-operators",
    "fickle_rule": "annotations/judges-alike",
    "negative_cost": "annotations/predicts-sound-costs",
    "gives_a_wrong_example": "annotations/accepts-its-examples",
    "nameless_format": "codegen/artifacts-are-whole",
    "counts_compilations": "codegen/gives-the-same-again",
    "orders_by_hash": "codegen/gives-the-same-elsewhere",
    "asks_the_device": "codegen/needs-no-device",
    "claims_too_much": "codegen/compiles-what-it-claims",
    "wrong_error": "codegen/refuses-what-it-cannot",
    "expects_what_passes": "operators/agrees[add-float32]",
    "flushes_denormals": "operators/agrees[relu-float32]",
    "loses_nan": "operators/agrees[mul-float32]",
    "makes_numbers_of_nan": "operators/agrees[neg-float32]",
    "knows_one_rank": "operators/agrees[neg-float32]",
    "repeats_a_bias": "operators/composite[affine]",
    "loses_nan_in_a_bias": "operators/composite[affine]",
    "fails_on_depthwise": "operators/exercised[conv]",
    "ignores_dilations": "operators/exercised[conv]",
    "pools_wrongly": "operators/exercised[max_pool]",
    "is_wrong_for_its_example": "operators/exercised[relu]",
    "wants_what_is_not": "operators/composite[gated]",
    "takes_all_code": "runtime/checks-artifacts",
    "fails_on_damaged_code": "runtime/refuses-damaged-code",
    "composes_beyond": "runtime/keeps-to-its-buffers",
    "writes_beyond": "runtime/keeps-to-its-buffers",
    "gives_the_same_array": "runtime/gives-new-results",
    "takes_any_index": "runtime/reports-faults",
    "forgets_to_free": "runtime/counts-its-memory",
    "closes_once": "runtime/closes",
    "keeps_results": "runtime/keeps-no-memory",
    "shares_scratch": "runtime/runs-in-two-threads",
    "needs_its_compilation": "package/runs-elsewhere",
    "needs_the_compiler": "package/runs-without-the-compiler",
    "misplaces_a_tile": "operators/composite[dense]",
    "sums_in_24_bits": "operators/composite[dense]",
    "sums_in_22_bits": "operators/composite[dense]",
    "multiplies_by_16_bits": "operators/composite[dense]",
    "rounds_averages_up": "operators/composite[average]",
    "ignores_left_shifts": "operators/composite[dense]",
    "rounds_ties_up": "operators/composite[dense]",
    "drops_channels": "operators/composite[conv]",
    "drops_an_odd_channel": "operators/composite[conv]",
    "pools_densely": "operators/exercised[max_pool]",
    "flushes_half_denormals": "operators/composite[product]",
    "flips_a_coin": "runtime/gives-the-same-again",
    "keeps_weights": "runtime/runs-interleaved",
    "fills_padding": "runtime/keeps-to-its-buffers",
    "leaks_a_thread": "runtime/ends-its-threads",
    "shares_sums": "runtime/runs-in-two-threads",
}
"""The case that fails, by the plugin that it is meant for."""
CONSEQUENCES = {
    "rule_raises": ("codegen/compiles-what-it-claims", "codegen/refuses-what-it-cannot"),
    "flushes_denormals": ("operators/drawn[relu-float32]",),
    "loses_nan": ("operators/drawn[mul-float32]", "operators/exercised[mul]"),
    "makes_numbers_of_nan": ("operators/drawn[neg-float32]", "operators/composite[negated]"),
    "knows_one_rank": ("operators/drawn[neg-float32]", "operators/composite[negated]"),
    "pools_wrongly": ("runtime/keeps-to-its-buffers",),
    "repeats_a_bias": ("models/agrees[recurrent]",),
    "needs_its_compilation": ("package/runs-without-the-compiler",),
    "forgets_to_free": ("runtime/closes", "runtime/survives-collections"),
    "misplaces_a_tile": ("operators/composite[conv]",),
    "sums_in_24_bits": ("operators/composite[conv]",),
    "sums_in_22_bits": ("operators/composite[conv]",),
    "multiplies_by_16_bits": ("operators/composite[conv]",),
    "ignores_left_shifts": ("operators/composite[conv]",),
    "rounds_ties_up": ("operators/composite[conv]",),
    "flips_a_coin": (
        *("runtime/gives-new-results", "runtime/runs-interleaved", "runtime/takes-any-array", "runtime/keeps-to-its-buffers"),
        *("runtime/refuses-wrong-inputs", "runtime/runs-in-two-threads", "runtime/survives-collections"),
        *("runtime/runs-in-parallel", "runtime/closes-alone"),
    ),
    "shares_scratch": ("runtime/runs-in-parallel",),
    "shares_sums": ("runtime/runs-in-parallel",),
}
"""What may fail as well: the same check on other examples, a model that has them, or a check that needs the first to pass."""
IN_PROCESSES = {
    "plugin/loads-lazily", "codegen/gives-the-same-elsewhere", "codegen/needs-no-device", "runtime/keeps-no-memory",
    "package/runs-elsewhere", "package/runs-without-the-compiler", "package/refuses-damaged-code", "package/exports",
}  # fmt: skip
"""Cases that start processes, which takes seconds: only the plugins that are meant for one of them are put through it."""
OPERATORS = (
    *("add-float32", "mul-float32", "relu-float32", "neg-float32", "take-float32", "take-int64", "matmul-float32", "add-int64"),
    *("sin-float32", "conv-float32", "max_pool-float32", "add", "mul", "relu", "take", "sin", "conv", "max_pool"),
)
"""The operators of the fleet, and some that it refuses."""


def cases(under_test: TargetUnderTest) -> tuple[Case, ...]:
    """The suite's, without those on operators that no plugin of the fleet has a rule for."""
    every = suite.cases(under_test)
    return tuple(case for case in every if case.level != "operators" or case.name == "composite" or case.subject in OPERATORS)


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], TargetUnderTest]]:
    """`join(name)` is a target whose plugin is that module of the fleet."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def make(name: str) -> TargetUnderTest:
        return TargetUnderTest("fleet", PluginRegistry.discover([*both_halves("fleet", f"fleet.{name}"), *REFERENCE]))

    return make


def test_a_sound_plugin_passes(join: Callable[[str], TargetUnderTest]) -> None:
    under_test = join("sound")
    results = run(under_test, cases(under_test))
    assert not [result for result in results if result.outcome is Outcome.FAILED]
    passed = {result.id for result in results if result.outcome is Outcome.PASSED}
    other_cases = {"operators/composite[negated]", "models/agrees[perceptron]", "package/survives-a-file"}
    accelerator_cases = {f"operators/composite[{name}]" for name in ("dense", "conv", "average", "product")}
    assert passed >= set(CAUGHT.values()) - {CAUGHT["wants_what_is_not"]} - accelerator_cases | other_cases
    refused = {result.id: result.reason for result in results if not result.claimed}
    assert refused["operators/agrees[add-int64]"] == "it computes in float32 alone"
    assert refused["operators/agrees[sin-float32]"] == "has no rule for sin"
    assert "models/agrees[perceptron-float16]" in refused
    # What none of the pinned examples is, and the rules accept.
    assert refused["operators/agrees[conv-float32]"] == "it takes channels by fours"
    assert "operators/exercised[conv]" in passed
    assert not any(result.unexercised for result in results)


def test_a_sound_accelerator_passes(join: Callable[[str], TargetUnderTest]) -> None:
    under_test = join("accelerates")
    results = run(under_test, cases(under_test))
    assert not [result for result in results if result.outcome is Outcome.FAILED]
    passed = {result.id for result in results if result.outcome is Outcome.PASSED}
    nets = {f"models/agrees[integer-{name}-{way}]" for name in ("convolution", "perceptron") for way in ROUNDINGS}
    layers = {f"operators/composite[{name}]" for name in ("dense", "conv", "average", "product", "pool")}
    assert passed >= nets | layers | {"runtime/runs-interleaved", "runtime/ends-its-threads", "package/runs-elsewhere"}
    assert not any(result.unexercised for result in results)


def test_narrow_accumulators_that_are_declared_pass(join: Callable[[str], TargetUnderTest]) -> None:
    under_test = join("accumulates_in_24_bits")
    results = run(under_test, [case for case in cases(under_test) if case.name == "composite"])
    assert {result.id.partition("[")[2]: result.outcome for result in results} == dict.fromkeys(
        ("average]", "conv]", "dense]", "pool]", "product]"), Outcome.PASSED
    )
    assert not any(result.unexercised for result in results)


def test_composites_alone_are_run_and_packaged(join: Callable[[str], TargetUnderTest]) -> None:
    under_test = join("composes_alone")
    levels = ("codegen", "runtime", "package")
    results = run(under_test, [case for case in cases(under_test) if case.level in levels or case.name == "composite"])
    assert not [result for result in results if result.outcome is Outcome.FAILED]
    passed = {result.id for result in results if result.outcome is Outcome.PASSED}
    assert passed >= {
        "operators/composite[scaled]", "codegen/artifacts-are-whole", "runtime/keeps-to-its-buffers", "runtime/gives-new-results",
        "runtime/runs-in-two-threads", "package/runs-elsewhere", "package/runs-without-the-compiler",
    }  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_a_broken_plugin_is_caught_by_the_check_for_it(name: str, join: Callable[[str], TargetUnderTest]) -> None:
    """No other check of the same level fails: those are the ones that could take one broken promise for another."""
    failing_cases = {CAUGHT[name], *CONSEQUENCES.get(name, ())}
    level = CAUGHT[name].partition("/")[0]
    under_test = join(name)
    results = run(
        under_test,
        [case for case in cases(under_test) if case.id in failing_cases or (case.level == level and case.id not in IN_PROCESSES)],
    )
    failed = {result.id: result.reason for result in results if result.outcome is Outcome.FAILED}
    assert CAUGHT[name] in failed, failed
    assert set(failed) <= {CAUGHT[name], *CONSEQUENCES.get(name, ())}, failed


def test_a_crash_costs_one_case(join: Callable[[str], TargetUnderTest], monkeypatch: pytest.MonkeyPatch) -> None:
    selection = [
        case for case in CASES if case.id.startswith("operators/agrees") and case.subject in (*OPERATORS[:2], "take-float32")
    ]
    monkeypatch.setattr(suite, "SHARES", 1)
    requests: list[list[str]] = []
    ask = suite.fresh.ask_each

    def spy(*args: Any, **arguments: Any) -> Any:
        requests.append(arguments["cases"])
        return ask(*args, **arguments)

    monkeypatch.setattr(suite.fresh, "ask_each", spy)
    results = run_in_processes(join("crashes"), selection, jobs=1)
    names = [case.id for case in selection]
    crash = names.index("operators/agrees[mul-float32]")
    assert 0 < crash < len(names) - 1
    assert requests == [names, names[crash + 1 :]]
    assert [result.id for result in results] == names
    assert [result.outcome is Outcome.FAILED for result in results] == [name == names[crash] for name in names]
    assert "signal 6" in results[crash].reason


def test_reports_do_not_depend_on_the_number_of_jobs(
    join: Callable[[str], TargetUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "SHARES", 1)
    selection = [case for case in CASES if case.subject in OPERATORS[:2]]
    under_test = join("expects_what_passes")
    one, several = (run_in_processes(under_test, selection, jobs) for jobs in (1, 3))
    assert one == several == run(under_test, selection)


@pytest.mark.parametrize(
    ("answers", "problem", "failed"),
    [(0, "it crashed", [0]), (1, "it crashed", [1]), (2, "it crashed at its end", [1]), (2, None, [])],
)
def test_whose_fault_the_end_of_a_process_is(
    answers: int, problem: str | None, failed: list[int], join: Callable[[str], TargetUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [case for case in CASES if case.level == "annotations"][:2]
    passed = [{"id": case.id, "level": case.level, "outcome": "passed"} for case in two]
    responses = [(passed[:answers], problem), (passed[answers + 1 :], None)]
    monkeypatch.setattr(suite.fresh, "ask_each", lambda *args, **arguments: responses.pop(0))
    monkeypatch.setattr(suite, "SHARES", 1)
    results = run_in_processes(join("sound"), two, jobs=1)
    assert [number for number, result in enumerate(results) if result.outcome is Outcome.FAILED] == failed
    assert all(result.reason == problem for result in results if result.outcome is Outcome.FAILED)
