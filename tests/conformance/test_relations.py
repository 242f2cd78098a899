"""Sizes that break a relation are refused, and no others: for every operator, in every way to run it.

Each symbolic size of each program is set to 0, 1, one less and one more, with buffers between inaccessible pages. The results equal
the reference's, or the sizes are refused by the statement that refuses them as static sizes (see `relations`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inlaid import ops

from .relations.census import Census, take_census
from .relations.programs import Choice, names
from .relations.runner import run_way
from .relations.statements import statements
from .relations.targets import BOUNDED, WAYS

PARTS = {"reference": 2, "x86": 4, "x86-check": 2, "opencl": 3, "cuda": 3, "library": 2}
"""Number of tests for each way."""
SHARES = {"reference": 2, "x86": 2, "x86-check": 6, "opencl": 6, "cuda": 8, "library": 6}
"""Each way runs one in so many programs, unless all are asked for."""
SHOWN = 40
"""Number of problems that an error lists."""


@pytest.fixture(scope="module", autouse=True)
def _asked_for(request: pytest.FixtureRequest) -> None:
    # Not all cases pass yet: see docs/status.md.
    if not request.config.getoption("--relations"):
        pytest.skip("run by pytest tests/conformance/test_relations.py --relations")


@pytest.fixture(scope="module")
def census() -> Census:
    """The census of all programs."""
    return take_census()


@pytest.mark.parametrize(("way", "part"), [(way, part) for way in WAYS for part in range(PARTS[way])])
def test_sizes_are_refused_or_results_are_right(
    way: str, part: int, tmp_path: Path, request: pytest.FixtureRequest, record_property: Any
) -> None:
    share = 1 if request.config.getoption("--every-program") else SHARES[way]
    report = run_way(way, Choice(None, share, part, PARTS[way], way in BOUNDED), tmp_path)
    if report.unavailable:
        pytest.skip(report.unavailable)
    numbers = {"programs": report.programs, "unsupported programs": sum(report.unsupported.values()), **report.counts}
    record_property("relations", json.dumps({"way": way, "operators": sorted(report.operators), **numbers}))
    shown = "\n".join(report.problems[:SHOWN])
    assert not report.problems, f"{len(report.problems)} problems of {way}:\n{shown}"


def test_every_operator_has_programs(census: Census) -> None:
    assert {operator.name for operator in ops.OPERATORS} <= census.programs.keys() == {*names()}


def test_static_sizes_are_refused_as_before(census: Census, golden: Any) -> None:
    """What each statement refuses is compared with a file, since a statement that is lost is lost for static sizes, too."""
    golden("relations/refusals.txt", census.table())


def test_every_statement_refuses_sizes(census: Census, record_property: Any) -> None:
    found = statements()
    numbers = {"statements": len(found), "programs": census.programs.total(), "cases accepted": census.accepted.total()}
    refused = sum(map(len, census.refused.values()))
    record_property("relations", json.dumps({"way": "inference", "operators": [*census.programs], **numbers, "refused": refused}))
    unreached = [statement for statement in found if not any(map(statement.covers, census.lines))]
    assert not unreached, "no program breaks the relation of " + "\n".join(map(str, unreached))
