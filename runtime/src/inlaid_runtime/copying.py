"""Copies of large arrays by several threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from inlaid_runtime.cores import in_threads, usable_cores

Array = np.ndarray[Any, Any]

_LARGE = 1 << 22
"""Bytes from which an array is copied by several threads."""
_PARTS = 4
"""Number of parts per thread into which an array is split."""


def contiguous(array: Array) -> Array:
    """Return a row-major array: the array itself, or a copy."""
    return np.ascontiguousarray(array) if array.flags.c_contiguous else copied(array)


def copied(array: Array) -> Array:
    """Copy an array to a row-major array."""
    if array.nbytes < _LARGE or array.dtype.hasobject:
        return array.copy()
    result = np.empty(array.shape, array.dtype)
    axis, parts = int(np.argmax(array.shape)), _PARTS * usable_cores()
    in_threads(np.copyto, *(np.array_split(operand, parts, axis) for operand in (result, array)))
    return result
