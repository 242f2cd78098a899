"""The suite's cases as pytest tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest

from inlaid.plugins.registry import default_registry
from inlaid_conformance.case import Case, Outcome
from inlaid_conformance.pytest_plugin import LOG, PROPERTY
from inlaid_conformance.suite import cases, run_case
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.time_limit import CASE_LIMIT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the test with all cases."""
    target = metafunc.config.getoption("inlaid_target")
    if not target:
        raise pytest.UsageError("--inlaid-target is required, such as --inlaid-target acme")
    metafunc.parametrize("case", cases(TargetUnderTest(target, default_registry())), ids=lambda case: case.id)


@pytest.fixture(scope="session")
def under_test(request: pytest.FixtureRequest) -> TargetUnderTest:
    """The target given by --inlaid-target."""
    return TargetUnderTest(request.config.getoption("inlaid_target"), default_registry())


def test_target(
    case: Case,
    under_test: TargetUnderTest,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    """Run one case. An expected failure is reported as xfail."""
    limit = request.config.getoption("inlaid_limit") or CASE_LIMIT
    result = run_case(under_test, case, limit, request.config.stash[LOG])
    record_property(PROPERTY, asdict(result))
    if result.outcome is Outcome.FAILED:
        pytest.fail(result.reason, pytrace=False)
    if result.outcome is Outcome.EXPECTED:
        pytest.xfail(result.reason)
    if result.outcome is Outcome.SKIPPED:
        pytest.skip(result.reason)
