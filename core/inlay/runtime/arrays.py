"""Arrays at the border: aligned host memory, and whatever a caller hands in turned into it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from inlay.artifact import ALIGNMENT
from inlay.errors import InputError, OutOfMemory
from inlay.types import DType

Array = np.ndarray[Any, Any]

_first_byte: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


NUMPY_ALIGNMENT = 16
"""Bytes to which numpy aligns what it allocates, by C's malloc."""


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any] | str, alignment: int = ALIGNMENT) -> Array:
    """An uninitialised row-major array whose data starts at a multiple of `alignment` bytes, a power of two up to 64. Every kernel
    reads arrays aligned to 64 in place. Raises `OutOfMemory`."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    try:
        if alignment <= NUMPY_ALIGNMENT or dtype.hasobject:
            return np.empty(shape, dtype)
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise OutOfMemory(f"no room for an array of shape {shape} and {size} bytes") from error
    return np.ndarray(shape, dtype, raw, -address(raw) % ALIGNMENT)


def address(array: Array) -> int:
    """Where an array's data starts."""
    try:
        # Four times as fast as the other way, which builds a dictionary.
        return ctypes.addressof(_first_byte(array))
    except (TypeError, ValueError):  # read-only, empty, or of an element type without a buffer format
        found: int = array.__array_interface__["data"][0]
        return found


def in_place(array: Array, alignment: int = ALIGNMENT) -> bool:
    """Whether a kernel can use the array as it lies: row-major and aligned."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        return False
    return alignment == 1 or array.dtype.hasobject or address(array) % alignment == 0


def usable(array: Array, alignment: int = ALIGNMENT) -> Array:
    """The array itself where a kernel can use it as it lies, else an aligned row-major copy."""
    return array if in_place(array, alignment) else fresh_copy(array)


def fresh_copy(array: Array) -> Array:
    """An aligned row-major copy that shares memory with nothing."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def import_value(name: str, value: Any, dtype: DType | None) -> Any:
    """A caller's value as an array: numpy's own, anything that exports DLPack (torch and others, without a copy), or numbers.

    Host objects (`dtype` None) pass as they are, but for strings, which become an array of objects. Raises `InputError` where the
    value is no array in host memory, or has elements of another type than `dtype`.
    """
    if dtype is None:
        return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind in "US" else value
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__dlpack__"):
        try:
            array = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"input {name!r} cannot be read as host memory: {error}", remedy="move it to the CPU and detach it first"
            ) from error
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputError(f"input {name!r} is no array: {error}") from error
    wanted = dtype.numpy
    if array.dtype == wanted:
        return array
    if dtype.kind == "string" and array.dtype.kind in "US":
        return array.astype(object)
    if array.dtype.newbyteorder("=") == wanted:
        return array.astype(wanted)
    raise InputError(
        f"input {name!r} has elements of type {array.dtype.name}, the model takes {dtype.name}",
        remedy=f"convert it, such as with .astype({dtype.name!r})" if dtype.kind != "string" else "pass strings",
    )
