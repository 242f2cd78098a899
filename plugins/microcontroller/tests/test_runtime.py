"""Packages run without the compiler."""

from __future__ import annotations

import subprocess
import sys

COMPILER = [f"inlaid.{name}" for name in ("graph", "ops", "passes", "schedules", "lowering", "partitioning", "frontends", "driver")]
"""Packages of the compiler, but for what prints C, which this run half does for the machine that it runs on."""


def test_what_runs_packages_imports_nothing_of_the_compiler() -> None:
    script = f"import sys, inlaid_microcontroller.runtime; print(*(name for name in {COMPILER} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
