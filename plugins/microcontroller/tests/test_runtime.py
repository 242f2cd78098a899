"""Packages run without the compiler."""

from __future__ import annotations

import subprocess
import sys

from inlaid.conformance.inside import COMPILER


def test_what_runs_packages_imports_nothing_of_the_compiler() -> None:
    script = f"import sys, inlaid_microcontroller.runtime; print(*(name for name in {COMPILER} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
