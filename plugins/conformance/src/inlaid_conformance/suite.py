"""Lists all cases of the suite, and runs them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial

from inlaid.plugins import ExpectedFailure
from inlaid_conformance import fresh
from inlaid_conformance.case import LEVELS, ON_DEVICE, Case, Failed, NotClaimed, Outcome, Result, Skipped, Unexercised
from inlaid_conformance.levels import annotations as annotations_level
from inlaid_conformance.levels import chains, codegen, composites, devices, models, neighbors, operators, package, plugin, runtime
from inlaid_conformance.origin import fault_text
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.time_limit import CASE_LIMIT, GRACE, TimedOut, limited


def expects_what_there_is(tested: TargetUnderTest) -> None:
    """Check that every expected failure matches a case."""
    for expected in tested.conformance.expected_failures:
        if not any(matches(expected, case) for case in cases(tested)):
            raise Failed(f"the expected failure {expected.check!r} matches no case")


PART = 400
"""Greatest number of cases per process."""
SHARES = 4
"""Least number of parts of the suite per parallel process, for load balance. Starting a process takes a second."""
SECONDS = 10
"""Seconds by which each case extends the time limit of a process."""

CASES: tuple[Case, ...] = (
    *plugin.CASES,
    Case("plugin", "expects-what-there-is", expects_what_there_is),
    *annotations_level.CASES,
    *codegen.CASES,
    *operators.CASES,
    *neighbors.CASES,
    *runtime.CASES,
    *devices.CASES,
    *models.CASES,
    *package.CASES,
)


def cases(tested: TargetUnderTest) -> tuple[Case, ...]:
    """Return all cases for a target: the common cases, and cases for the target's composites and its vendor's operators."""
    target_cases = (*CASES, *operators.vendor_cases(tested), *composites.cases(tested), *chains.cases(tested))
    return tuple(sorted(target_cases, key=lambda case: LEVELS.index(case.level)))


def matches(expected: ExpectedFailure, case: Case) -> bool:
    """Test whether an expected failure matches a case, by id or by a prefix with an asterisk."""
    if expected.check.endswith("*"):
        return case.id.startswith(expected.check[:-1])
    return case.id == expected.check


def run_case(tested: TargetUnderTest, case: Case, limit: float = CASE_LIMIT, log: int | None = None) -> Result:
    """Run a case for at most `limit` seconds. An expected failure that passes counts as a failure. If a call outside Python does
    not return in time, the process ends, with a traceback in the file descriptor `log`; without `log`, it keeps waiting."""
    result = _unadjusted_result(tested, case, limit, log)
    outcome, reason = result.outcome, result.reason
    if case.level in ON_DEVICE and tested.problem is None:
        expected = next((item for item in tested.conformance.expected_failures if matches(item, case)), None)
        if expected is not None and outcome is Outcome.FAILED:
            outcome, reason = Outcome.EXPECTED, f"{expected.reason} ({reason})"
        elif expected is not None and outcome is Outcome.PASSED:
            outcome, reason = Outcome.FAILED, f"expected to fail ({expected.reason}), but passed"
    return replace(result, outcome=outcome, reason=reason)


def _unadjusted_result(tested: TargetUnderTest, case: Case, limit: float, log: int | None) -> Result:
    result = partial(Result, case.id, case.level)
    if case.check is not plugin.loads and tested.problem is not None:
        return result(Outcome.SKIPPED, "the plugin is unusable")
    if case.level != "plugin" and case.check is not annotations_level.loads_rules and tested.unruly is not None:
        return result(Outcome.SKIPPED, "its rules are unusable")
    if case.level in ON_DEVICE and not tested.device.available:
        return result(Outcome.SKIPPED, f"it cannot run here: {tested.device.detail}")
    try:
        with limited(case.id, limit, log):
            unexercised = case.check(tested) or ()
    except NotClaimed as error:
        return result(Outcome.SKIPPED, str(error), False)
    except Unexercised as error:
        return result(Outcome.SKIPPED, str(error), unexercised=(str(error),))
    except Skipped as error:
        return result(Outcome.SKIPPED, str(error))
    except (Failed, TimedOut) as error:
        return result(Outcome.FAILED, str(error), trace=_trace(error))
    except (Exception, SystemExit) as error:  # whatever a plugin raises
        return result(Outcome.FAILED, fault_text(error), trace=_trace(error))
    return result(Outcome.PASSED, unexercised=tuple(unexercised))


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def chosen(tested: TargetUnderTest, only: Sequence[str] = ()) -> tuple[Case, ...]:
    """Return the cases whose ids start with one of the prefixes `only`; all cases if `only` is empty."""
    return tuple(case for case in cases(tested) if not only or case.id.startswith(tuple(only)))


def run(tested: TargetUnderTest, cases: Iterable[Case]) -> tuple[Result, ...]:
    """Run cases in order and return their results."""
    return tuple(run_case(tested, case) for case in cases)


def run_in_processes(
    tested: TargetUnderTest,
    cases: Sequence[Case],
    jobs: int,
    report_progress: Callable[[int], None] = lambda count: None,
    limit: float = CASE_LIMIT,
) -> tuple[Result, ...]:
    """Run cases in new processes, `jobs` in parallel, each case for at most `limit` seconds, and return their results in order. A
    plugin that crashes or blocks a process fails only the current case. `report_progress` is called with the number of finished
    cases."""
    size = max(min(PART, -(-len(cases) // (SHARES * jobs))), 1)
    parts = [cases[start : start + size] for start in range(0, len(cases), size)]
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(jobs) as pool:
        # The last cases take the longest.
        for future in as_completed([pool.submit(_in_process, tested, part, limit) for part in reversed(parts)]):
            results.update({result.id: result for result in future.result()})
            report_progress(len(results))
    return tuple(results[case.id] for case in cases)


def _in_process(tested: TargetUnderTest, cases: Sequence[Case], limit: float) -> list[Result]:
    """Run cases in a process. If a case ends the process, run the remaining cases in a new process."""
    results: list[Result] = []
    while len(results) < len(cases):
        remaining_cases = cases[len(results) :]
        answers, problem = fresh.ask_each(
            "run",
            tested.registry.plugin_modules(),
            limit=limit + GRACE + SECONDS * len(remaining_cases),
            target=tested.text,
            examples=tested.examples,
            cases=[case.id for case in remaining_cases],
            case_limit=limit,
        )
        results += [Result.from_json(item) for item in answers if isinstance(item, dict)]
        if problem is not None:
            # If a process has finished its last case and then fails to exit, that case failed.
            blamed = cases[min(len(results), len(cases) - 1)]
            results = [*results[: len(cases) - 1], Result(blamed.id, blamed.level, Outcome.FAILED, problem)]
    return results
