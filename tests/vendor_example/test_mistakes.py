"""Mistakes planted in the example: each changes a line or two, as a vendor could have written it, and a case of the suite fails.

All run with `--mistakes`, a sample without.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "acme" / "src" / "inlaid_acme"
SAMPLE = 4
"""Number of mistakes that run without `--mistakes`."""


@dataclass(frozen=True)
class Mistake:
    """`before`, which occurs once in a file of the example, becomes `after`; the case `case` fails."""

    file: str
    before: str
    after: str
    case: str


MISTAKES = {
    "swaps-the-factors-of-operands": Mistake(
        "codegen.py",
        'for side in sides]\n    return fields | {"operands"',
        'for side in reversed(sides)]\n    return fields | {"operands"',
        "operators/composite[add]",
    ),
    "pools-without-bounds": Mistake("codegen.py", "fields |= bounds(pool.output)", "pass", "operators/composite[average_pool]"),
}
"""Mistakes by name."""


def _environment(folder: Path, mistake: Mistake) -> dict[str, str]:
    """Write the example with a mistake to a folder, as it would be installed there, and return an environment that finds it."""
    shutil.copytree(EXAMPLE, folder / "inlaid_acme", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "inlaid_acme" / mistake.file
    source = path.read_text()
    assert source.count(mistake.before) == 1, "the mistake must be planted in exactly one place"
    path.write_text(source.replace(mistake.before, mistake.after))
    facts = folder / "inlaid_acme-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: inlaid-acme\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text("[inlaid.plugins]\nacme = inlaid_acme.plugin\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("mistakes") and [*MISTAKES].index(name) % -(-len(MISTAKES) // SAMPLE):
        pytest.skip("it is not in the sample: add --mistakes to run every mistake")
    mistake = MISTAKES[name]
    line = [sys.executable, "-m", "inlaid", "conformance", "--target", "acme", "--only", mistake.case, "--jobs", "1", "--json"]
    done = subprocess.run(line, env=_environment(tmp_path, mistake), capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    outcomes = {result["id"]: result["outcome"] for result in json.loads(done.stdout)["results"]}
    assert outcomes == {mistake.case: "failed"}
