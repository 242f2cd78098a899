"""The suite under pytest, as a vendor runs it: the plugin is found by its entry point, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
RUN = (sys.executable, "-m", "pytest", "-p", "inlaid_conformance.pytest_plugin", "--pyargs", "inlaid_conformance", "-q")
"""Without `-p`, pytest finds the options by Inlaid's entry point; it may be named all the same."""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite in an empty folder, where a distribution provides `fleet.expects_what_passes`."""
    facts = folder / "fleet-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: fleet\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"[{group}]\nfleet = fleet.expects_what_passes\n" for group in ("inlaid.plugins", "inlaid.runtimes"))
    (facts / "entry_points.txt").write_text(points, encoding="utf-8")
    paths = os.pathsep.join(filter(None, (str(folder), str(FOLDER), *sys.path)))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run([*RUN, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False)


def test_cases_are_tests(tmp_path: Path) -> None:
    chosen = "declares-tolerances or add-float32 or add-int64"
    process = run(tmp_path, "--inlaid-target", "fleet", "--inlaid-report", "fleet.json", "-k", chosen)
    assert process.returncode == 1, process.stdout + process.stderr
    assert "2 passed, 2 skipped" in process.stdout.replace("1 failed, ", "")
    assert "expected to fail (it was wrong once), but passed" in process.stdout
    report = json.loads((tmp_path / "fleet.json").read_text(encoding="utf-8"))
    outcomes = {item["id"]: item["outcome"] for item in report["results"]}
    assert outcomes["operators/agrees[add-float32]"] == "failed"
    assert outcomes["operators/drawn[add-float32]"] == "passed"
    assert outcomes["operators/agrees[add-int64]"] == "skipped"
    assert (report["plugin"]["distribution"], report["plugin"]["version"]) == ("fleet", "1.0")
    assert (report["conforms"], report["complete"]) == (False, False)


def test_a_target_has_to_be_named(tmp_path: Path) -> None:
    process = run(tmp_path)
    assert process.returncode != 0
    assert "--inlaid-target is required" in process.stdout
