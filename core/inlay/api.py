"""The Python API of the compiler. `inlay` exports it; nothing inside imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlay.driver import Progress, compile_module, cut
from inlay.errors import ModelImportError
from inlay.graph.ir import Module

if TYPE_CHECKING:
    import onnx

    from inlay.runtime.executable import Executable

DimSpec = int | tuple[int, int]
"""A size that a symbolic dimension takes, or its inclusive bounds."""


def load(model: str | Path | onnx.ModelProto | bytes, dims: Mapping[str, DimSpec] | None = None) -> Module:
    """Import a model: the path of an ONNX file, or an ONNX model in memory.

    `dims` fixes symbolic dimensions of the inputs by name, or bounds them. Raises `ModelImportError`.
    """
    if isinstance(model, (str, Path)) and Path(model).suffix not in (".onnx", ".pb", ".onnxtxt", ".textproto"):
        raise ModelImportError(f"{model} is no model that Inlay imports", remedy="give a path that ends in .onnx")
    from inlay.frontends.onnx import load as load_onnx

    return load_onnx(model, dims=dims)


def compile(
    model: Module | str | Path | onnx.ModelProto,
    targets: Sequence[str] = ("x86",),
    *,
    dims: Mapping[str, DimSpec] | None = None,
    progress: Progress | None = None,
) -> Executable:
    """Compile a model, or the path of one, for targets in order of priority, such as `["x86:threads=1"]`.

    What no target takes runs on the numpy target `reference`. `progress(stage, done, total)` is called as the work goes on. Raises
    `ModelImportError`, `TargetError` or `CompileError`.
    """
    return compile_module(_module(model, dims), targets, progress=progress)


def partition(
    model: Module | str | Path | onnx.ModelProto, targets: Sequence[str] = ("x86",), *, dims: Mapping[str, DimSpec] | None = None
) -> Module:
    """Cut a model into regions, one target each: a module whose entry calls one function per region."""
    return cut(_module(model, dims), targets)[0].module


def _module(model: Any, dims: Mapping[str, DimSpec] | None) -> Module:
    return model if isinstance(model, Module) else load(model, dims)
