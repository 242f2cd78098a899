"""The TensorFlow Lite frontend.

Integers come out as LiteRT has them, to the last bit: sums in int32, factors in fixed point, each operator with its roundings.
"""

from __future__ import annotations

import os
from pathlib import Path

from inlay.errors import ModelImportError
from inlay.graph.ir import Module

__all__ = ["load"]


def load(model: str | os.PathLike[str] | bytes) -> Module:
    """Import a model given as a path or as bytes. `module.main` takes the model's inputs under their names; the names of its
    outputs are in the function attribute "outputs" as a JSON list. Raises `ModelImportError` for a model that is damaged, hostile
    or not supported."""
    from inlay.frontends.tflite.convert import CONVERTERS
    from inlay.frontends.tflite.importer import import_model

    file = "<model>"
    if not isinstance(model, bytes):
        path = Path(model)
        file = path.name
        try:
            model = path.read_bytes()
        except OSError as error:
            raise ModelImportError(f"cannot read {path}: {error.strerror}") from error
    return import_model(model, file, CONVERTERS)
