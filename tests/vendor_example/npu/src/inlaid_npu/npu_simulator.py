"""Simulator of the NPU in numpy, with exact integers.

Sums are int32 and wrap. The output stage converts sums to stored values: it multiplies by a float32 scale, rounds half to even,
adds a zero point and clamps. An addition converts both operands to float32 first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from inlaid_npu.isa import FIELDS, HEADER, INSTRUCTION, MAGIC, OPCODES, STORAGES, TENSOR, TYPES

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tensor:
    """Storage of a tensor. place: number of an input, output or constant, or byte offset into the arena."""

    storage: str
    dtype: np.dtype[Any]
    place: int
    shape: tuple[int, ...]


class Simulator:
    """A loaded program. Raises ValueError for malformed bytes."""

    def __init__(self, code: bytes, constants: Sequence[Array]) -> None:
        magic, tensors, instructions = HEADER.unpack_from(code.ljust(HEADER.size))
        if magic != MAGIC or len(code) != HEADER.size + tensors * TENSOR.size + instructions * INSTRUCTION.size:
            raise ValueError("expected a program of the NPU, found other bytes")
        table, words = code[HEADER.size :][: tensors * TENSOR.size], code[HEADER.size + tensors * TENSOR.size :]
        self._tensors = [
            Tensor(STORAGES[storage], np.dtype(TYPES[dtype]), place, tuple(sizes[:rank]))
            for storage, dtype, rank, place, *sizes in TENSOR.iter_unpack(table)
        ]
        self._program = [SimpleNamespace(**dict(zip(FIELDS, values, strict=True))) for values in INSTRUCTION.iter_unpack(words)]
        self._constants = constants

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: Array) -> None:
        """Run the program instruction by instruction."""
        banks = {"input": inputs, "output": outputs, "constant": self._constants}
        for word in self._program:
            x, y, w, bias, scale = (
                self._view(number, banks, workspace) for number in (word.x, word.y, word.w, word.bias, word.scale)
            )
            y[...] = UNITS[OPCODES[word.opcode]](word, y.shape, x, w, bias, scale)

    def _view(self, number: int, banks: Mapping[str, Sequence[Array]], workspace: Array) -> Array:
        if number < 0:
            return np.zeros(0, np.int8)
        tensor = self._tensors[number]
        if tensor.storage != "arena":
            return banks[tensor.storage][tensor.place].reshape(tensor.shape)
        size = int(np.prod(tensor.shape)) * tensor.dtype.itemsize
        return workspace[tensor.place : tensor.place + size].view(tensor.dtype).reshape(tensor.shape)


def _store(real: Array, word: Any, zero: Any) -> Array:
    return np.clip(np.rint(real) + np.float32(zero), word.least, word.greatest).astype(np.int8)


def _output_stage(total: Array, word: Any, bias: Array, scale: Array, axis: int) -> Array:
    """Convert int32 sums to stored values, with a bias and a scale per index along an axis, or one for all."""
    shape = [1] * total.ndim
    shape[axis] = -1
    with np.errstate(over="ignore"):
        sums = total + bias.reshape(shape)
    return _store(sums.astype(np.float32) * scale.reshape(shape), word, word.zero)


def _windows(word: Any, x: Array, rows: int, columns: int, shape: tuple[int, ...]) -> Array:
    """Return the data under the window, int32 [n, channels, y, x, rows, columns], for a result of a shape."""
    height, width = (shape[2] - 1) * word.down + rows, (shape[3] - 1) * word.right + columns
    field = np.full((*x.shape[:2], height, width), word.fill, np.int32)
    seen = x[:, :, : height - word.top, : width - word.left]
    field[:, :, word.top : word.top + seen.shape[2], word.left : word.left + seen.shape[3]] = seen
    found = np.lib.stride_tricks.sliding_window_view(field, (rows, columns), (2, 3))
    return found[:, :, :: word.down, :: word.right]


def _conv(word: Any, shape: tuple[int, ...], x: Array, w: Array, bias: Array, scale: Array) -> Array:
    """Compute a convolution; the number of groups is data channels / weight channels."""
    taps = _windows(word, x, *w.shape[2:], shape)
    groups = x.shape[1] // w.shape[1]
    each = w.astype(np.int32).reshape(groups, -1, *w.shape[1:])
    split = taps.reshape(x.shape[0], groups, w.shape[1], *taps.shape[2:])
    total = np.einsum("ngcyxrs,gocrs->ngoyx", split, each).reshape(shape)
    return _output_stage(total, word, bias, scale, 1)


def _matmul(word: Any, shape: tuple[int, ...], x: Array, w: Array, bias: Array, scale: Array) -> Array:
    return _output_stage((x.astype(np.int32) @ w.astype(np.int32)).reshape(shape), word, bias, scale, -1)


def _mean(word: Any, shape: tuple[int, ...], x: Array, w: Array, bias: Array, scale: Array) -> Array:
    return _output_stage(x.sum((2, 3), np.int32, keepdims=True), word, bias, scale, 1)


def _add(word: Any, shape: tuple[int, ...], x: Array, w: Array, bias: Array, scale: Array) -> Array:
    a, b = ((side.astype(np.int32) - zero).astype(np.float32) * step for side, zero, step in zip((x, w), bias, scale, strict=False))
    return _store((a + b) / scale[2], word, bias[2])


def _max_pool(word: Any, shape: tuple[int, ...], x: Array, w: Array, bias: Array, scale: Array) -> Array:
    return _windows(word, x, word.rows, word.columns, shape).max((4, 5)).astype(np.int8)


def _reshape(word: Any, shape: tuple[int, ...], x: Array, w: Array, bias: Array, scale: Array) -> Array:
    return x.reshape(shape)


UNITS: Mapping[str, Callable[..., Array]] = {
    "conv": _conv, "matmul": _matmul, "mean": _mean, "add": _add, "max_pool": _max_pool, "reshape": _reshape,
}  # fmt: skip
