"""Packages run without the compiler."""

from __future__ import annotations

import subprocess
import sys


def test_what_runs_packages_imports_nothing_of_the_compiler() -> None:
    script = (
        "import sys, inlaid_microcontroller.runtime; print(*(name for name in sys.modules if name.partition('.')[0] == 'inlaid'))"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.split() == []
