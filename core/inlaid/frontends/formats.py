"""Which installed frontend imports a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from inlaid.errors import InlaidError, InputError, ModelImportError, PluginError
from inlaid.frontends.foreign import LFS, SAVED_MODEL, foreign_format
from inlaid.plugins.blame import describe
from inlaid.plugins.frontend import HEAD_BYTES, Frontend, ModelSource
from inlaid.plugins.registry import PluginRegistry

if TYPE_CHECKING:
    from inlaid.graph.ir import Module

_PACKAGE = ".inlaid"


def import_model(
    model: object,
    dims: Mapping[str, int | tuple[int, int]],
    registry: PluginRegistry,
    opened: Callable[[str], None] = lambda location: None,
) -> Module:
    """Import a model by the frontend that takes it: the path of a file, bytes, or an object of a library. `dims` and `opened` as of
    `ModelSource`.

    A frontend takes files with its suffixes; where several frontends have a suffix, or none has, the first that recognises the
    first bytes. Raises `ModelImportError` for a format that nobody takes or whose libraries are not installed, and for what the
    frontend refuses; `InputError` for an object that is no model; `PluginError` for a frontend that fails.
    """
    if isinstance(model, (str, os.PathLike)):
        model = Path(model)
    frontends = registry.frontends()
    if isinstance(model, Path):
        if model.is_dir():
            raise _unknown(model, b"", registry)
        named = [item for item in frontends if model.name.lower().endswith(item[1].suffixes)]
        if len(named) != 1:
            content = _head(model) if model.suffix != _PACKAGE else b""
            # TensorFlow's .pb begins as ONNX does: both are protocol buffers whose first field is a version.
            known = None if named else foreign_format(model, content)
            named = [] if known in (SAVED_MODEL, LFS) else [*_recognising(content, named or list(frontends)), *named]
    else:
        named = _recognising(model[:HEAD_BYTES] if isinstance(model, bytes) else model, list(frontends))
    if not named:
        raise _unknown(model, _head(model) if isinstance(model, Path) and model.suffix != _PACKAGE else b"", registry)
    plugin, frontend = named[0]
    source = ModelSource(model, dims, opened)
    if frontend.missing:
        raise ModelImportError(
            f"importing {frontend.description} models needs {', '.join(frontend.missing)}, not installed here",
            node=source.name,
            remedy=frontend.remedy,
        )
    return _imported(plugin, frontend, source)


def _imported(plugin: str, frontend: Frontend, source: ModelSource) -> Module:
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


def _recognising(model: object, frontends: list[tuple[str, Frontend]]) -> list[tuple[str, Frontend]]:
    """The frontends that recognise first bytes or an object. One that raises does not, so that it stands in nobody's way."""

    def recognises(frontend: Frontend) -> bool:
        try:
            return frontend.recognises(model)
        except Exception:
            return False

    return [item for item in frontends if recognises(item[1])]


def _unknown(model: object, head: bytes, registry: PluginRegistry) -> InlaidError:
    frontends = [frontend for _, frontend in registry.frontends()]
    if not isinstance(model, (Path, bytes)):
        known = " or ".join(item.title for item in frontends)
        remedy = f"give the path of a model file, {known}, its bytes, or an inlaid.Module or Function"
        return InputError(f"an object of type {type(model).__name__} is no model", remedy=remedy)
    if isinstance(model, Path) and model.suffix == _PACKAGE:
        return ModelImportError(f"{model} is a compiled package", remedy="load it with inlaid.runtime.load")
    foreign = foreign_format(model, model[:HEAD_BYTES] if isinstance(model, bytes) else head)
    if foreign is not None:
        subject = str(model) if isinstance(model, Path) else "the model"
        titles = ", ".join(item.title for item in frontends)
        return ModelImportError(
            f"expected a model that Inlaid imports ({titles}), but {subject} is {foreign.what}", remedy=foreign.way
        )
    facts = [f"installed formats: {', '.join(item.title for item in frontends) or 'none'}"]
    facts += [f"for {item.description}, {item.remedy}" for item in frontends if item.missing]
    facts += [f"unusable plugin {problem.plugin} ({problem.stage}: {problem.message})" for problem in registry.problems()]
    if not frontends:
        facts.append("install Inlaid again: its own frontends are not registered")
    what = str(model) if isinstance(model, Path) else f"a model that begins with {model[:8]!r}"
    return ModelImportError(f"no installed frontend imports {what}", remedy="; ".join(facts))
