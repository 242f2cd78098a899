"""Runtime kernel that runs a model on an emulated board."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inlaid_microcontroller.boards import Board
from inlaid_microcontroller.boards.emulate import Firmware, build, run
from inlaid_microcontroller.source import ModelSource
from inlaid_runtime.errors import KernelFault

Array = np.ndarray[Any, Any]


def build_firmware(source: ModelSource) -> Firmware:
    """Convert a model to the sources of a program for a board."""
    name = source.name
    inputs, outputs = (tuple((port.address, port.bytes) for port in ports) for ports in (source.inputs, source.outputs))
    before = f"static struct {name} memory;\nstatic struct {name} *const state = &memory;"
    call = f"{name}_run(state)" if source.checks else f"({name}_run(state), 0)"
    if source.unit.fast:
        before += f"\nstatic struct {name}_fast fast;"
        inputs = tuple((f"(state->fast = &fast, {address})", size) for address, size in inputs)
    return Firmware({file: text.encode() for file, text in source.files().items()}, f"{name}.h", inputs, outputs, call, before)


class BoardKernel:
    """A model built for a board. Each call starts a new run of the program under QEMU."""

    def __init__(self, source: ModelSource, board: Board) -> None:
        self._board, self._firmware = board, build_firmware(source)
        folder = Path(tempfile.mkdtemp(prefix="inlaid-board-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._program = build(self._firmware, board, folder)

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]) -> None:
        """Run the model (see `inlaid.plugins.Kernel`)."""
        result = run(self._firmware, self._program, self._board, [np.ascontiguousarray(array).tobytes() for array in inputs])
        if result.status:
            raise KernelFault("an index is out of range")
        for array, data in zip(outputs, result.outputs, strict=True):
            array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)
