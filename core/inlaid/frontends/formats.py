"""Selection of the installed frontend that imports a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inlaid.frontends.other_formats import LFS, SAVED_MODEL, identify_format
from inlaid.plugins.frontend import HEAD_BYTES, Frontend, ModelSource
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.errors import InlaidError, InputError, ModelImportError, PluginError
from inlaid_runtime.plugins.blame import describe

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

_PACKAGE = ".inlaid"


def import_model(
    model: object,
    dims: Mapping[str, int | tuple[int, int]],
    registry: PluginRegistry,
    opened: Callable[[str], None] = lambda location: None,
    inputs: Sequence[str] = (),
) -> Module:
    """Import a model, given as the path of a file, as bytes or as an object of a library such as `onnx.ModelProto`. `dims`,
    `opened` and `inputs` are passed on in a `ModelSource`.

    The frontend is selected by the file's suffix, else by its first bytes. Raises `ModelImportError` if no installed frontend
    accepts the format, if its libraries are not installed, or if the frontend refuses the model; `InputError` for an object that is
    not a model; `PluginError` if the frontend fails.
    """
    if isinstance(model, (str, os.PathLike)):
        model = Path(model)
    frontends = registry.frontends()
    if isinstance(model, Path):
        if model.is_dir():
            raise _format_error(model, b"", registry)
        matches = [item for item in frontends if model.name.lower().endswith(item[1].suffixes)]
        if len(matches) != 1:
            content = _head(model) if model.suffix != _PACKAGE else b""
            # TensorFlow's .pb looks like ONNX: both are protocol buffers whose first field is a version.
            file_format = None if matches else identify_format(model, content)
            matches = [] if file_format in (SAVED_MODEL, LFS) else [*_recognizing(content, matches or list(frontends)), *matches]
    else:
        matches = _recognizing(model[:HEAD_BYTES] if isinstance(model, bytes) else model, list(frontends))
    if not matches:
        raise _format_error(model, _head(model) if isinstance(model, Path) and model.suffix != _PACKAGE else b"", registry)
    plugin, frontend = matches[0]
    source = ModelSource(model, dims, opened, tuple(inputs))
    if frontend.missing:
        raise ModelImportError(
            f"importing {frontend.description} models needs {', '.join(frontend.missing)}, not installed here",
            node=source.name,
            remedy=frontend.remedy,
        )
    module = _load_module(plugin, frontend, source)
    params = [param.name for param in module.main.params]
    for name in source.inputs:
        if name not in params:
            raise ModelImportError(
                f"{source.name} has no value {name!r} that a caller can override, as {frontend.description} models have none",
                remedy="leave it out of inputs",
            )
    return module


def _load_module(plugin: str, frontend: Frontend, source: ModelSource) -> Module:
    from inlaid.graph.ir import Module

    try:
        module: object = frontend.load(source)
    except InlaidError:
        raise
    except Exception as error:
        raise PluginError(f"frontend {frontend.name} failed: {describe(error)}", plugin=plugin, node=source.name) from error
    if not isinstance(module, Module):
        raise PluginError(f"frontend {frontend.name} returned {type(module).__name__}, expected Module", plugin=plugin)
    return module


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise ModelImportError(f"cannot read {path}: {error.strerror}") from error


def _recognizing(model: object, frontends: list[tuple[str, Frontend]]) -> list[tuple[str, Frontend]]:
    """Return the frontends that recognize `model`, the first bytes of a file or an object. A frontend that raises does not
    recognize it."""

    def recognizes(frontend: Frontend) -> bool:
        try:
            return frontend.recognizes(model)
        except Exception:
            return False

    return [item for item in frontends if recognizes(item[1])]


def _format_error(model: object, head: bytes, registry: PluginRegistry) -> InlaidError:
    frontends = [frontend for _, frontend in registry.frontends()]
    if not isinstance(model, (Path, bytes)):
        format_titles = " or ".join(item.title for item in frontends)
        remedy = f"give the path of a model file, {format_titles}, its bytes, or an inlaid.Module or Function"
        return InputError(f"expected a model, got an object of type {type(model).__name__}", remedy=remedy)
    if isinstance(model, Path) and model.suffix == _PACKAGE:
        return ModelImportError(f"expected a model, but {model} is a compiled package", remedy="load it with inlaid.runtime.load")
    other = identify_format(model, model[:HEAD_BYTES] if isinstance(model, bytes) else head)
    if other is not None:
        name = str(model) if isinstance(model, Path) else "the model"
        titles = ", ".join(item.title for item in frontends)
        return ModelImportError(
            f"expected a model that Inlaid imports ({titles or 'none is installed'}), but {name} is {other.description}",
            remedy=other.remedy,
        )
    hints = [f"installed formats: {', '.join(item.title for item in frontends) or 'none'}"]
    hints += [f"for {item.description}, {item.remedy}" for item in frontends if item.missing]
    hints += [f"unusable plugin {problem.plugin} ({problem.stage}: {problem.message})" for problem in registry.problems()]
    if not frontends:
        hints.append("pip install inlaid-onnx for ONNX, inlaid-tflite for TensorFlow Lite")
    what = str(model) if isinstance(model, Path) else f"a model that begins with {model[:8]!r}"
    return ModelImportError(f"no installed frontend imports {what}", remedy="; ".join(hints))
