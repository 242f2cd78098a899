"""Array accesses with checked indices, called at run time by the generated Python source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid.tensor.interp import values
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import DType

Array = np.ndarray[Any, Any]
OUT_OF_BOUNDS, FAULT = 1, 2
"""Flags of a suppressed access: it is outside its buffer (an error in the program), or a checked index is out of range (an error in
the data)."""


def fail(flag: int, context: str) -> None:
    """Raise the error of a flag: `KernelFault` for an error in the data, AssertionError for an error in the program."""
    if flag == FAULT:
        raise KernelFault(f"an index out of range in {context}")
    raise AssertionError(f"an index outside its buffer, or a division by zero, in {context}")


def gather(array: Array, indices: tuple[Any, ...], dtype: DType) -> tuple[Any, Any]:
    """Load elements at arrays of indices. Returns the elements and their flags: 0, or nonzero, with an arbitrary element, for an
    index out of bounds."""
    flags: Any = 0
    clamped_indices = []
    for index, extent in zip(indices, array.shape, strict=True):
        is_outside = (index < 0) | (index >= extent)
        if np.any(is_outside):
            flags = np.maximum(flags, np.where(is_outside, OUT_OF_BOUNDS, 0))
            index = np.where(is_outside, 0, index)
        clamped_indices.append(index)
    if 0 in array.shape and np.any(flags):
        return values.carrier(dtype).type(0), flags
    return values.load(array[tuple(clamped_indices)], dtype), flags


def scatter(array: Array, indices: tuple[Any, ...], value: Any, context: str) -> None:
    """Store elements at arrays of indices."""
    for index, extent in zip(indices, array.shape, strict=True):
        if np.any((index < 0) | (index >= extent)):
            fail(OUT_OF_BOUNDS, context)
    array[indices] = value


def strided(base: Array, shape: tuple[int, ...]) -> Array:
    """View a buffer at the size that its kernel computed: row-major, from the start of its memory."""
    count = int(np.prod(shape))
    assert all(extent >= 0 for extent in shape) and count <= base.size, f"a size outside its bound: {shape}"
    return base.reshape(-1)[:count].reshape(shape)


def check_index(value: Any, lower: Any, upper: Any) -> tuple[Any, Any]:
    """Check data used as an index. Returns the data and flag 0, or an index in range and a nonzero flag."""
    is_outside = (value < lower) | (value > upper)
    if np.ndim(is_outside) == 0:
        return (lower, FAULT) if is_outside else (value, 0)
    return np.where(is_outside, lower, value), np.where(is_outside, FAULT, 0)


def region(array: Array, ranges: tuple[tuple[int, int], ...], context: str) -> Array:
    """View a box of an array, given the first index and the extent of each axis."""
    for (first, extent), size in zip(ranges, array.shape, strict=True):
        if first < 0 or extent < 0 or first + extent > size:
            fail(OUT_OF_BOUNDS, context)
    slices: tuple[Any, ...] = tuple(slice(first, first + extent) for first, extent in ranges)
    return array[(*slices, ...)]


def as_int(value: Any) -> Any:
    """Convert a value to integers that Python or numpy can index with."""
    return value.astype(np.int64) if isinstance(value, np.ndarray) else int(value)


SUPPORT: Mapping[str, Any] = {
    "np": np, "values": values, "fail": fail, "gather": gather, "scatter": scatter,
    "strided": strided, "check_index": check_index, "region": region, "as_int": as_int,
}  # fmt: skip
"""The functions and modules that the generated source uses, by name."""
