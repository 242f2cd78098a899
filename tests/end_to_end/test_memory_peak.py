"""The arena of a real model is near the lower bound."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inlaid.plugins.registry import default_registry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


@pytest.mark.slow
@pytest.mark.skipif("x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"')
def test_the_arenas_of_light_models_are_near_the_lower_bound():
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "squeezenet", "resnet50", "shufflenet"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "resnet50" in run.stdout
