"""Lets pytest run the suite: `pytest --pyargs inlaid.conformance --inlaid-target acme`, with `-k`, `-x` and pytest-xdist's `-n`.

Installed as an entry point of pytest's, so it is loaded wherever Inlaid and pytest are: it imports nothing until it is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROPERTY = "inlaid_conformance"
"""The property of a test under which its result travels, from other processes too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite's options."""
    group = parser.getgroup("inlaid", "conformance of plugins of Inlaid")
    group.addoption("--inlaid-target", metavar="TARGET", help="The target to check, such as acme or acme:cores=2.")
    group.addoption("--inlaid-report", metavar="FILE", help="Write the results as JSON, and beside it as Markdown and SVG.")


def pytest_configure(config: pytest.Config) -> None:
    """Where a report is asked for, collect it: in the process that the others report to."""
    path = config.getoption("inlaid_report")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(config.getoption("inlaid_target"), Path(path)))


class _Reporter:
    """Collects results, and writes the report at the end."""

    def __init__(self, target: str, path: Path) -> None:
        self._target = target
        self._path = path
        self._found: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of a result."""
        if report.when == "call":
            self._found += [value for name, value in report.user_properties if name == PROPERTY and isinstance(value, dict)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the report."""
        from inlaid.conformance.case import Result
        from inlaid.conformance.report import report_of, write_report
        from inlaid.conformance.suite import cases
        from inlaid.conformance.target_under_test import TargetUnderTest
        from inlaid.plugins.registry import default_registry

        found = {item["id"]: Result.of(item) for item in self._found}
        tested = TargetUnderTest(self._target, default_registry())
        every = cases(tested)
        results = [found[case.id] for case in every if case.id in found]
        report = report_of(tested, results, complete=len(results) == len(every))
        written = write_report(report, self._path)
        terminalreporter.write_line(f"wrote {', '.join(map(str, written))}")
