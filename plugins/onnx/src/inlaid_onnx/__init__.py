"""The ONNX frontend.

    module = load("model.onnx", dims={"batch": (1, 64), "sequence": 128})

`module.main` takes the model's inputs under their names and returns its output, or the tuple of its outputs, whose names are in
the function attribute "outputs" as a JSON list. Discovery of plugins imports this module, so it imports no part of the compiler.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlaid.plugins import ModelSource
from inlaid_runtime.errors import ModelImportError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from inlaid.graph.ir import Module

__all__ = ["load"]


def load(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    dims: Mapping[str, int | tuple[int, int | None]] | None = None,
    *,
    specialize: Mapping[str, np.ndarray[Any, Any]] | None = None,
    opened: Callable[[str], None] = lambda location: None,
    inputs: Sequence[str] = (),
) -> Module:
    """Import a model given as a path, as bytes or as a parsed message.

    dims
        Sizes (`name: size`) or inclusive bounds (`name: (minimum, maximum)`) of symbolic dimensions. A dimension without a name in
        the model is called `<input>_<axis>`.
    specialize
        Values of inputs, which become constants instead of parameters.
    inputs
        Names of initializers that are also inputs of the graph, and become parameters instead of constants.
    opened
        Called with the path, relative to the model's folder, of each external data file that is read.

    External data is read only from the model's folder, and not for a model given as bytes or as a message.
    Raises `ModelImportError` for a damaged, malicious or unsupported model.
    """
    from inlaid_onnx import proto
    from inlaid_onnx.convert import CONVERTERS
    from inlaid_onnx.external import ExternalData
    from inlaid_onnx.importer import Importer

    loaded = Path(model) if isinstance(model, (str, os.PathLike)) else model
    folder, source = loaded.parent if isinstance(loaded, Path) else None, ModelSource(loaded, {})
    file = source.name
    weights: Mapping[int, memoryview] = {}
    if isinstance(loaded, (Path, bytes)):
        loaded, weights = proto.parse_model(_content(source), file)
    try:
        external = ExternalData(folder, file, opened)
        return Importer(loaded, external, CONVERTERS, dims or {}, specialize or {}, weights, frozenset(inputs)).module()
    except ModelImportError:
        raise
    except Exception as error:  # a damaged message may hold any bytes, for example names that are not text
        raise ModelImportError(f"{file} is damaged: {type(error).__name__}: {error}", node=file) from error


def _content(source: ModelSource) -> bytes | mmap.mmap:
    """Map a model's file, or read it if that is impossible."""
    if isinstance(source.model, Path):
        with suppress(OSError, ValueError), source.model.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return source.read()
