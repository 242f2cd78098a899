"""Sizes that break a relation are refused, and no others: for every operator, in every way to run it.

Each symbolic size of each program is set to 0, 1, one less and one more, with buffers between inaccessible pages. The results equal
the reference's, or the sizes are refused by the statement that refuses them as static sizes (see `relations`). With `--relations`,
every program runs in every way, else a sample does.
"""

from __future__ import annotations

import dataclasses
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

PARTS = {"reference": 2, "x86": 4, "x86-check": 4, "opencl": 8, "cuda": 8, "library": 4}
"""Number of tests for each way if every program runs."""
SAMPLES = (
    ("reference", Choice(share=8)),
    ("x86", Choice(share=8)),
    *(("x86-check", Choice(share=8, part=part, parts=8)) for part in (0, 4, 6)),
    ("opencl", Choice(share=8, part=2, parts=8)),
    ("cuda", Choice(share=8, part=1, parts=8)),
    *(("library", Choice(share=8, part=part, parts=8)) for part in (3, 5, 7)),
)
"""The programs of each way otherwise: those of every operator run on `reference` and `x86`, and in one of the other ways; in those
that take longest, those of the fewest operators."""
SHOWN = 40
"""Number of problems that an error lists."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "choice" in metafunc.fixturenames:
        every = [(way, Choice(part=part, parts=PARTS[way])) for way in WAYS for part in range(PARTS[way])]
        chosen = every if metafunc.config.getoption("--relations", default=False) else SAMPLES
        metafunc.parametrize(("way", "choice"), chosen, ids=[f"{way}-{choice.part}" for way, choice in chosen])


@pytest.fixture(scope="module")
def census() -> Census:
    """The census of all programs."""
    return take_census()


@pytest.mark.slow
def test_sizes_are_refused_or_results_are_right(way: str, choice: Choice, tmp_path: Path, record_property: Any) -> None:
    report = run_way(way, dataclasses.replace(choice, bounded=way in BOUNDED), tmp_path)
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
    statement_list = statements()
    numbers = {"statements": len(statement_list), "programs": census.programs.total(), "cases accepted": census.accepted.total()}
    refused = sum(map(len, census.refused.values()))
    record_property("relations", json.dumps({"way": "inference", "operators": [*census.programs], **numbers, "refused": refused}))
    unreached = [statement for statement in statement_list if not any(map(statement.covers, census.lines))]
    assert not unreached, "no program breaks the relation of " + "\n".join(map(str, unreached))
