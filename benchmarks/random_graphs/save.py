"""Writes a random model and its inputs to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from inlaid.graph.text import print_module

from .check import Case
from .modules import ModuleCase
from .onnx_models import OnnxCase


def save(case: Case, folder: Path) -> None:
    """Write `model.onnx`, or `module.txt` with its `constants.npz`; and the arrays among the inputs of each run, `inputs0.npz` and
    following."""
    folder.mkdir(parents=True, exist_ok=True)
    match case:
        case OnnxCase(model=model):
            onnx.save(model, folder / "model.onnx")
        case ModuleCase(module=module):
            text, constants = print_module(module)
            (folder / "module.txt").write_text(text, encoding="utf-8")
            _arrays(folder / "constants.npz", constants)
    for run, inputs in enumerate(case.inputs):
        _arrays(folder / f"inputs{run}.npz", inputs)


def _arrays(path: Path, values: Mapping[str, Any]) -> None:
    """Write arrays: text with a fixed width, since objects would be pickled, and narrow element types as bytes."""
    arrays = {}
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            narrow = value.dtype.kind == "V" or value.dtype.name not in np.sctypeDict
            arrays[name] = value.astype(np.str_) if value.dtype == object else value.view(np.uint8) if narrow else value
    with path.open("wb") as file:
        np.savez(file, **arrays)
