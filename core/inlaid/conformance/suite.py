"""All cases, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from inlaid.conformance import fresh
from inlaid.conformance.case import LEVELS, ON_DEVICE, Case, Failed, NotClaimed, Outcome, Result, Skipped
from inlaid.conformance.levels import annotations as annotations_level
from inlaid.conformance.levels import codegen, composites, models, operators, package, plugin, runtime
from inlaid.conformance.subject import Subject
from inlaid.plugins import ExpectedFailure


def expects_what_there_is(subject: Subject) -> None:
    """Every expected failure matches a case."""
    for expected in subject.conformance.expected_failures:
        if not any(matches(expected, case) for case in cases(subject)):
            raise Failed(f"the expected failure {expected.check!r} matches no case")


PART = 400
"""Cases that a process runs, at most."""
SECONDS = 10
"""What a case may take, on average."""

CASES: tuple[Case, ...] = (
    *plugin.CASES,
    Case("plugin", "expects-what-there-is", expects_what_there_is),
    *annotations_level.CASES,
    *codegen.CASES,
    *operators.CASES,
    *runtime.CASES,
    *models.CASES,
    *package.CASES,
)


def cases(subject: Subject) -> tuple[Case, ...]:
    """All cases for a target: those that are for every target, and those on its composites, beside the ones on operators."""
    own = (*CASES, *composites.cases(subject))
    return tuple(sorted(own, key=lambda case: LEVELS.index(case.level)))


def matches(expected: ExpectedFailure, case: Case) -> bool:
    """Whether an expected failure is of a case: by its id, or the start of it before an asterisk."""
    if expected.check.endswith("*"):
        return case.id.startswith(expected.check[:-1])
    return case.id == expected.check


def run_case(subject: Subject, case: Case) -> Result:
    """What comes of a case. An expected failure that passes is a failure."""
    outcome, reason, claimed = _tried(subject, case)
    if case.level in ON_DEVICE and subject.problem is None:
        expected = next((item for item in subject.conformance.expected_failures if matches(item, case)), None)
        if expected is not None and outcome is Outcome.FAILED:
            outcome, reason = Outcome.EXPECTED, f"{expected.reason} ({reason})"
        elif expected is not None and outcome is Outcome.PASSED:
            outcome, reason = Outcome.FAILED, f"it is expected to fail ({expected.reason}), and passes"
    return Result(case.id, case.level, outcome, reason, claimed)


def _tried(subject: Subject, case: Case) -> tuple[Outcome, str, bool]:
    if case.check is not plugin.loads and subject.problem is not None:
        return Outcome.SKIPPED, "the plugin cannot be used", True
    if case.level != "plugin" and case.check is not annotations_level.loads_rules and subject.unruly is not None:
        return Outcome.SKIPPED, "its rules cannot be used", True
    if case.level in ON_DEVICE and not subject.device.available:
        return Outcome.SKIPPED, f"it cannot run here: {subject.device.detail}", True
    try:
        case.check(subject)
    except NotClaimed as error:
        return Outcome.SKIPPED, str(error), False
    except Skipped as error:
        return Outcome.SKIPPED, str(error), True
    except Failed as error:
        return Outcome.FAILED, str(error), True
    except (Exception, SystemExit) as error:  # whatever a plugin raises
        return Outcome.FAILED, f"{type(error).__name__}: {error}", True
    return Outcome.PASSED, "", True


def chosen(subject: Subject, only: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases whose ids start with one of some texts; all of them without any."""
    return tuple(case for case in cases(subject) if not only or case.id.startswith(tuple(only)))


def run(subject: Subject, cases: Iterable[Case]) -> tuple[Result, ...]:
    """The results of cases, in order."""
    return tuple(run_case(subject, case) for case in cases)


def run_in_processes(
    subject: Subject, cases: Sequence[Case], jobs: int, told: Callable[[int], None] = lambda count: None
) -> tuple[Result, ...]:
    """The results of cases, in order, from processes of their own, `jobs` of them at a time: a plugin that crashes one costs the
    case that it does so in. `told` how many cases are done."""
    levels: dict[str, list[Case]] = {}
    for case in cases:
        levels.setdefault(case.level, []).append(case)
    # Long levels in parts, which take about as long each.
    parts = [group[start :: -(-len(group) // PART)] for group in levels.values() for start in range(-(-len(group) // PART))]
    found: dict[str, Result] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(_in_process, subject, part) for part in parts]):
            found.update({result.id: result for result in future.result()})
            told(len(found))
    return tuple(found[case.id] for case in cases)


def _in_process(subject: Subject, cases: Sequence[Case]) -> list[Result]:
    names = [case.id for case in cases]
    limit = fresh.LIMIT + SECONDS * len(cases)
    try:
        answer = fresh.ask(
            "run", subject.registry.modules(), limit=limit, target=subject.text, examples=subject.examples, cases=names
        )
    except Failed as error:
        if len(cases) > 1:
            middle = len(cases) // 2
            return _in_process(subject, cases[:middle]) + _in_process(subject, cases[middle:])
        return [Result(cases[0].id, cases[0].level, Outcome.FAILED, str(error))]
    return [Result(**{**item, "outcome": Outcome(item["outcome"])}) for item in answer]
