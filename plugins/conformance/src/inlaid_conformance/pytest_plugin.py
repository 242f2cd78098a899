"""Runs the suite in pytest: `pytest --pyargs inlaid_conformance --inlaid-target acme`, with `-k`, `-x` and pytest-xdist's `-n`.

pytest always loads this module, since it is an entry point; other modules of Inlaid are imported on use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

PROPERTY = "inlaid_conformance"
"""Name of the test property that contains a result, which pytest-xdist also sends between processes."""

LOG = pytest.StashKey[int]()
"""Key of a file descriptor of standard error."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("inlaid", "conformance of Inlaid plugins")
    group.addoption("--inlaid-target", metavar="TARGET", help="The target to check, such as acme or acme:cores=2.")
    group.addoption(
        "--inlaid-report", metavar="FILE", help="Write the results to this JSON file, and next to it as Markdown and SVG."
    )
    group.addoption("--inlaid-limit", metavar="SECONDS", type=float, help="Seconds after which a case fails, 600 by default.")


def pytest_configure(config: pytest.Config) -> None:
    """Keep standard error, which pytest redirects during tests, for the traceback of a call that does not return. Register the
    reporter if a report is requested; with pytest-xdist only in the main process."""
    if config.getoption("inlaid_target"):
        config.stash[LOG] = os.dup(2)
    path = config.getoption("inlaid_report")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(config.getoption("inlaid_target"), Path(path)))


class _Reporter:
    """Collects results, and writes the report at the end."""

    def __init__(self, target: str, path: Path) -> None:
        self._target = target
        self._path = path
        self._records: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a result."""
        if report.when == "call":
            self._records += [value for name, value in report.user_properties if name == PROPERTY and isinstance(value, dict)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the report."""
        from inlaid.plugins.registry import default_registry
        from inlaid_conformance.case import Result
        from inlaid_conformance.report import make_report, write_report
        from inlaid_conformance.suite import cases
        from inlaid_conformance.target_under_test import TargetUnderTest

        results_by_id = {item["id"]: Result.from_json(item) for item in self._records}
        tested = TargetUnderTest(self._target, default_registry())
        suite_cases = cases(tested)
        results = [results_by_id[case.id] for case in suite_cases if case.id in results_by_id]
        report = make_report(tested, results, complete=len(results) == len(suite_cases))
        written = write_report(report, self._path)
        terminalreporter.write_line(f"wrote {', '.join(map(str, written))}")
