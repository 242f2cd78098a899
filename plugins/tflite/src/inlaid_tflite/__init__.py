"""The TensorFlow Lite frontend.

Integer results are bit-exact with LiteRT: int32 accumulators, fixed-point factors, and the rounding mode of each operator.
Discovery of plugins imports this module, so it imports no part of the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlaid.plugins import ModelSource

if TYPE_CHECKING:
    import numpy as np

    from inlaid.frontends.dims import DimSpec
    from inlaid.graph.ir import Module

__all__ = ["first_states", "load"]


def load(model: str | os.PathLike[str] | bytes, dims: Mapping[str, DimSpec] | None = None) -> Module:
    """Import a model given as a path or as bytes.

    `module.main` takes the model's inputs by name; the names of its outputs are in the function attribute "outputs" as a JSON list.
    State that the model keeps between runs becomes inputs and outputs of equal names, after all others: see
    `first_states`. A dynamic size has the value in the file, as in LiteRT, unless `dims` sets a size or bounds by input name and
    axis: {"image_0": (1, 8)}. Raises `ModelImportError` for a damaged, malicious or unsupported model.
    """
    from inlaid_tflite.convert import CONVERTERS
    from inlaid_tflite.importer import import_model

    data, file = _read(model)
    return import_model(data, file, CONVERTERS, dims or {})


def first_states(model: str | os.PathLike[str] | bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the initial states of a model, keyed by input name of `load`'s module. Raises `ModelImportError`."""
    from inlaid_tflite.convert import CONVERTERS
    from inlaid_tflite.importer import first_states as import_first_states

    data, file = _read(model)
    return import_first_states(data, file, CONVERTERS)


def _read(model: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    source = ModelSource(model if isinstance(model, bytes) else Path(model), {})
    return source.read(), source.name
