"""The Python API of the compiler. `inlay` exports it; nothing inside imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from inlay.driver import Progress, compile_module, cut
from inlay.errors import InputError, ModelImportError
from inlay.graph.ir import Function, Module

if TYPE_CHECKING:
    import onnx

    from inlay.runtime.executable import Executable

Model = Union[Module, Function, str, Path, bytes, "onnx.ModelProto"]
DimSpec = int | tuple[int, int]
"""A size that a symbolic dimension takes, or its inclusive bounds."""


_OTHERS = {
    ".inlay": "a compiled package: inlay.runtime.load loads it",
    **dict.fromkeys(
        (".tflite", ".pt", ".pth", ".pt2", ".h5", ".keras"), "of a format that Inlay does not import: convert it to ONNX"
    ),
}


def load(model: str | Path | onnx.ModelProto | bytes, dims: Mapping[str, DimSpec] | None = None) -> Module:
    """Import a model: the path of an ONNX file, or an ONNX model in memory.

    `dims` fixes symbolic dimensions of the inputs by name, or bounds them. Raises `ModelImportError`.
    """
    if isinstance(model, (str, Path)) and Path(model).suffix.lower() in _OTHERS:
        raise ModelImportError(f"{model} is {_OTHERS[Path(model).suffix.lower()]}")
    from inlay.frontends.onnx import load as load_onnx

    return load_onnx(model, dims=dims)


def compile(
    model: Model,
    targets: Sequence[str] = ("x86",),
    *,
    dims: Mapping[str, DimSpec] | None = None,
    progress: Progress | None = None,
    fusion: bool = True,
) -> Executable:
    """Compile a model for targets in order of priority, such as `["x86:threads=1"]`.

    The model is a module, a single function, or what `load` takes, to which `dims` then applies. What no target takes runs on the
    numpy target `reference`. `progress(stage, done, total)` is called as the work goes on. Without `fusion` every operator is a
    kernel of its own, which shows what fusing brings. Raises `ModelImportError`, `TargetError` or `CompileError`.
    """
    return compile_module(_module(model, dims), targets, progress=progress, fusion=fusion)


def partition(model: Model, targets: Sequence[str] = ("x86",), *, dims: Mapping[str, DimSpec] | None = None) -> Module:
    """Cut a model into regions, one target each: a module whose entry calls one function per region. Arguments as of `compile`."""
    return cut(_module(model, dims), targets)[0].module


def _module(model: Model, dims: Mapping[str, DimSpec] | None) -> Module:
    if not isinstance(model, (Module, Function)):
        return load(model, dims)
    if dims:
        raise InputError("dims applies to a model that is loaded, not to a module", remedy="give dims to inlay.load")
    return model if isinstance(model, Module) else Module({"main": model})
