"""Recognition of equal arrays, without hashing them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SAMPLE = 1024
"""Number of elements by which arrays are compared first."""


class DistinctArrays:
    """Numbers arrays by content: arrays of equal dtype, shape and bytes share a number. Most different arrays differ in a sample of
    their elements, so few are compared whole."""

    def __init__(self) -> None:
        self._arrays: list[Array] = []
        self._alike: dict[object, list[int]] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, array: Array) -> int:
        """Return the number of an equal array that was added before, else the next number."""
        alike = self._alike.setdefault(_sample(array), [])
        for number in alike:
            if _equal(array, self._arrays[number]):
                return number
        alike.append(len(self._arrays))
        self._arrays.append(array)
        return alike[-1]


def _sample(array: Array) -> object:
    """Return a key that equal arrays share: some elements, or all elements of an array of strings."""
    if array.dtype.hasobject:
        return array.shape, tuple(map(repr, array.flat))
    return array.dtype, array.shape, array.flat[:: max(array.size // _SAMPLE, 1)].tobytes()


def _equal(a: Array, b: Array) -> bool:
    """Compare arrays with equal samples. Bytes are compared, since NaN differs from itself and 0.0 equals -0.0."""
    if a.dtype.hasobject or (a.ctypes.data == b.ctypes.data and a.strides == b.strides):
        return True
    bits = f"u{a.itemsize}"
    return np.array_equal(a.view(bits), b.view(bits))
