"""Arrays between pages that must not be accessed: an access beyond either end of the pages ends the process."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_PAGE = mmap.PAGESIZE
_FILL = 0xFF
"""Byte that memory has before it is written: NaN as floats, -1 as integers."""
_NONE, _READ = 0, 1
"""PROT_NONE and PROT_READ of Linux."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FILLED = 1 << 20
"""Arrays beyond this size in bytes are not filled: they are workspaces, whose pages take no memory before they are written."""


class Guards:
    """Allocates arrays. With `after`, an array ends where the inaccessible page after it starts, as far as its alignment allows;
    otherwise it starts where the page before it ends. `allocated` has the arrays since the last call of `check`."""

    def __init__(self) -> None:
        self.after = True
        self.allocated: list[tuple[mmap.mmap, int, int]] = []

    def empty(self, shape: tuple[int, ...], dtype: Any, alignment: int = 1) -> Array:
        """Allocate a row-major array whose address is a multiple of `alignment` bytes."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            return np.empty(shape, dtype)
        size = math.prod(shape) * dtype.itemsize
        inner = -(-max(size, 1) // _PAGE) * _PAGE
        memory = mmap.mmap(-1, inner + 2 * _PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = _address(memory)
        if size <= _FILLED:
            ctypes.memset(base + _PAGE, _FILL, inner)
        _protect(base, _PAGE, _NONE)
        _protect(base + _PAGE + inner, _PAGE, _NONE)
        if size:
            first = _PAGE + ((inner - size) // alignment * alignment if self.after else 0)
        else:
            first = _PAGE + inner if self.after else 0  # every access faults
        self.allocated.append((memory, first, size))
        return np.ndarray(shape, dtype, memory, first)

    def copy(self, array: Array) -> Array:
        """Allocate a copy of an array that must not be written. An array that is not contiguous is too large to be copied. It is
        returned as it is: no run may read it."""
        if not array.flags.c_contiguous:
            return array
        guarded_copy = self.empty(array.shape, array.dtype)
        if guarded_copy.size and not array.dtype.hasobject:
            guarded_copy[...] = array
            memory, *_ = self.allocated[-1]
            _protect(_address(memory) + _PAGE, len(memory) - 2 * _PAGE, _READ)
        return array if array.dtype.hasobject else guarded_copy

    def check(self) -> str | None:
        """Describe an array beside which bytes have been written, None if there is none. Forgets the arrays."""
        problem = None
        for memory, first, size in self.allocated:
            if 0 < size <= _FILLED:
                before, after = memory[_PAGE:first], memory[first + size : len(memory) - _PAGE]
                if before.strip(bytes([_FILL])) or after.strip(bytes([_FILL])):
                    problem = f"bytes beside an array of {size} bytes have been written"
        self.allocated.clear()
        return problem


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _protect(address: int, size: int, access: int) -> None:
    if _LIBC.mprotect(address, size, access):
        raise OSError(ctypes.get_errno(), f"cannot protect {size} bytes at {address:#x}")


def guard_host_memory(guards: Guards) -> None:
    """Make the runtime allocate all host arrays by `guards`, with as many bytes as it needs. For the rest of the process."""
    from inlaid_runtime.execution import arrays, workspace

    original = arrays.aligned_empty

    def aligned_empty(shape: tuple[int, ...], dtype: Any, alignment: int = arrays.ALIGNMENT) -> Array:
        return guards.empty(shape, dtype, alignment)

    for module in [*sys.modules.values()]:
        if getattr(module, "aligned_empty", None) is original:
            module.aligned_empty = aligned_empty  # type: ignore[attr-defined]
    arrays.Results.empty = lambda self, number, shape, dtype: guards.empty(shape, dtype)  # type: ignore[method-assign]
    workspace._room = lambda memory, size: size
