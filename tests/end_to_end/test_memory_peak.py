"""The arena of a real model is near the lower bound, and the memory of a symbolic package near that of a static one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inlaid.plugins.registry import default_registry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"

needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def command(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    run = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert run.returncode in codes, run.stdout + run.stderr
    return run.stdout


@needs_x86
@pytest.mark.slow
def test_the_arenas_of_light_models_are_near_the_lower_bound():
    assert "resnet50" in command("squeezenet", "resnet50", "shufflenet")


@needs_x86
def test_a_symbolic_decoder_takes_the_memory_of_static_ones():
    assert "4x500" in command("--symbolic", "decoder")


@needs_x86
def test_peaks_of_processes_are_printed():
    pytest.importorskip("onnxruntime")
    assert "\nsqueezenet " in command("--peak", "squeezenet", codes=(0, 1))


def test_unknown_symbolic_models_are_named():
    command("--symbolic", "decoder", "octopus", codes=(2,))
