"""Copies of large arrays by several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from inlaid.cores import usable_cores

Array = np.ndarray[Any, Any]

_LARGE = 1 << 22
"""Bytes from which an array is copied by several threads."""
_PARTS = 4
"""Parts per thread."""


def contiguous(array: Array) -> Array:
    """Return a row-major array: the array itself, or a copy."""
    if array.flags.c_contiguous or array.nbytes < _LARGE or array.dtype.hasobject:
        return np.ascontiguousarray(array)
    result = np.empty(array.shape, array.dtype)
    axis, threads = int(np.argmax(array.shape)), usable_cores()
    targets, sources = (np.array_split(whole, _PARTS * threads, axis) for whole in (result, array))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(np.copyto, targets, sources))
    return result
