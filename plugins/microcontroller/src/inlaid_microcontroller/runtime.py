"""Runtime module: runs a model's C code on this machine, compiled by the host's compiler, or on an emulated board."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from inlaid_microcontroller.boards import find_board
from inlaid_microcontroller.boards.emulate import missing
from inlaid_microcontroller.boards.kernel import BoardKernel
from inlaid_microcontroller.options import FORMAT, FORMAT_VERSION, MicrocontrollerOptions
from inlaid_microcontroller.source import ModelSource
from inlaid_microcontroller.unit import decode, fast_start
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.cache import DiskCache, caches, digest
from inlaid_runtime.errors import CompileError, TargetError, Unsupported
from inlaid_runtime.execution.c_source import MISSING, REGION_PARAMETERS, REGION_PRELUDE, REMEDY, find_compiler, link_shared
from inlaid_runtime.execution.host import CFunctionKernel, HostRuntime
from inlaid_runtime.execution.mapped import Mapped, open_library
from inlaid_runtime.plugins import DeviceStatus, Loaded

NAME = "model"
FLAGS = ("-std=c99", "-O0", "-ffp-contract=off", "-fno-strict-aliasing", "-I.")
ENTRY = "inlaid_region"


class MicrocontrollerRuntime(HostRuntime):
    """Compiles and loads a model's C code. Each run copies inputs into the model's arena and outputs out of it."""

    def __init__(self, options: MicrocontrollerOptions) -> None:
        super().__init__(FORMAT, FORMAT_VERSION)
        self._options = options

    def check(self, artifact: Artifact) -> str | None:
        """Return why the artifact cannot run here; None if its format fits and a C compiler is installed."""
        return super().check(artifact) or (None if (status := probe(self._options)).available else status.detail)

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Compile and load a region. Raises `Unsupported` on failure."""
        try:
            source = model_source(artifact, constants)
            if (board := find_board(self._options.board)) is not None:
                return Loaded(BoardKernel(source, board), alignment=1)
            library = _library(source, caches().objects)
        except (ValueError, CompileError, TargetError, OSError) as error:
            raise Unsupported(f"the C of region {artifact.symbol} cannot be loaded: {error}", remedy="compile it again") from error
        return CFunctionKernel(artifact, library.addresses[ENTRY], list(constants.values()), (self, library)).loaded(alignment=1)


def probe(options: MicrocontrollerOptions) -> DeviceStatus:
    """Report whether models can run on this machine."""
    board = find_board(options.board)
    if board is not None:
        problem = missing(board)
        return DeviceStatus(problem is None, problem or f"emulated by {board.emulator}")
    compiler = find_compiler()
    return DeviceStatus(compiler is not None, f"compiled by {compiler}" if compiler else f"{MISSING}: {REMEDY}")


def model_source(artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> ModelSource:
    """Convert a region to a separate model."""
    signature = artifact.signature
    inputs, outputs = ([spec.name for spec in side] for side in (signature.inputs, signature.outputs))
    return ModelSource(NAME, decode(artifact.code), signature, inputs, outputs, constants)


def _library(source: ModelSource, store: DiskCache) -> Mapped:
    """Build the model as a shared library, or load it from the cache."""
    texts = {"model.h": source.header(), "model_weights.h": _constants(source), "model.c": source.code(), "entry.c": _entry(source)}
    compiler = find_compiler() or ""
    key = digest(compiler, *FLAGS, *texts.values())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        library = folder / "model.so"
        cached = store.get(key)
        if cached is None:
            for name, text in texts.items():
                (folder / name).write_text(text)
            link_shared(["entry.c"], library, folder, FLAGS)
            store.put(key, library.read_bytes())
        else:
            library.write_bytes(cached)
        return open_library(str(library), (ENTRY,))


def _constants(source: ModelSource) -> str:
    """Return declarations of the weights that the caller passes."""
    return "".join(
        f"static const {source.kinds[number]} *{source.name}_{source.weights[number]};\n" for number in range(len(source.arrays))
    )


def _entry(source: ModelSource) -> str:
    """Return the C ABI wrapper of the model. Each call of it sets the weight pointers, to the same values."""
    copies_in = "".join(f"    memcpy({p.address}, inputs[{n}], {p.bytes});\n" for n, p in enumerate(source.inputs))
    copies_out = "".join(f"    memcpy(outputs[{n}], {p.address}, {p.bytes});\n" for n, p in enumerate(source.outputs))
    weights = "".join(f"    {source.name}_{name} = constants[{number}];\n" for number, name in source.weights.items())
    run = f"{source.name}_run(state)"
    fast = f"    state->fast = (void *)((char *)workspace + {fast_start(source.unit.arena)});\n" if source.unit.fast else ""
    called = (
        f'    if ({run}) {{\n        memcpy(context->message, "an index is out of range", 25);\n        return 1;\n    }}\n'
        if source.checks
        else f"    {run};\n"
    )
    return f"""{REGION_PRELUDE}#include <string.h>
#include "model.c"
int32_t {ENTRY}({REGION_PARAMETERS}) {{
    struct {source.name} *state = workspace;
    (void)inputs, (void)outputs, (void)constants, (void)dims, (void)context;
{fast}{weights}{copies_in}{called}{copies_out}    return 0;
}}
"""
