"""The TensorFlow Lite frontend.

Integers come out as LiteRT has them, to the last bit: sums in int32, factors in fixed point, each operator with its roundings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.frontends.dims import DimSpec
from inlaid.graph.ir import Module
from inlaid.plugins import ModelSource

__all__ = ["first_states", "load"]


def load(model: str | os.PathLike[str] | bytes, dims: Mapping[str, DimSpec] | None = None) -> Module:
    """Import a model given as a path or as bytes.

    `module.main` takes the model's inputs under their names; the names of its outputs are in the function attribute "outputs" as a
    JSON list. What the model keeps from one run to the next are further inputs and outputs of equal names, behind the others: see
    `first_states`. A size that the file leaves open is the one that it was written with, as in LiteRT, unless `dims` gives another,
    or bounds, under the name of the input and the axis: {"image_0": (1, 8)}. Raises `ModelImportError` for a model that is damaged,
    hostile or not supported.
    """
    from inlaid.frontends.tflite.convert import CONVERTERS
    from inlaid.frontends.tflite.importer import import_model

    data, file = _read(model)
    return import_model(data, file, CONVERTERS, dims or {})


def first_states(model: str | os.PathLike[str] | bytes) -> dict[str, np.ndarray[Any, Any]]:
    """What a model with memory holds before its first run, by the names of inputs of `load`'s module. Raises `ModelImportError`."""
    from inlaid.frontends.tflite.convert import CONVERTERS
    from inlaid.frontends.tflite.importer import first_states as found

    data, file = _read(model)
    return found(data, file, CONVERTERS)


def _read(model: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    source = ModelSource(model if isinstance(model, bytes) else Path(model), {})
    return source.read(), source.name
