"""The option of the test of relations between sizes, and its table."""

from __future__ import annotations

import json
from collections import Counter

import pytest

PROPERTY = "relations"
"""Name of the property in which a test of relations reports numbers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--relations", action="store_true", help="run every program of the test of relations in every way, not a sample"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the numbers of operators, statements and cases by the way in which programs were run."""
    counts: dict[str, Counter[str]] = {}
    operators: dict[str, set[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "call":
                    numbers = json.loads(value)
                    way = numbers.pop("way")
                    operators.setdefault(way, set()).update(numbers.pop("operators"))
                    counts.setdefault(way, Counter()).update(numbers)
    if counts:
        terminalreporter.section("relations between sizes")
    for way, numbers in counts.items():
        listed = ", ".join(f"{count} {name}" for name, count in numbers.items() if count)
        terminalreporter.write_line(f"{way}: {len(operators[way])} operators and constructs, {listed}")
