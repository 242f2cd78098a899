"""Arrays at the border: aligned host memory, and whatever a caller hands in turned into it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlaid.artifact import ALIGNMENT
from inlaid.errors import InputError, OutOfMemory
from inlaid.types import DType

Array = np.ndarray[Any, Any]

_start: Callable[[Any], ctypes.Array[ctypes.c_char]] = (ctypes.c_char * 0).from_buffer
_address_of = ctypes.addressof
IN_PLACE = 0x101
"""numpy's flags C_CONTIGUOUS and ALIGNED."""
LARGE = 1 << 17
"""Bytes from which on C's malloc may give memory back to the system as soon as it is free."""
NUMPY_ALIGNMENT = 16
"""Bytes to which numpy aligns what it allocates, by C's malloc."""


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic] | str, alignment: int = ALIGNMENT) -> Array:
    """An uninitialised row-major array whose data starts at a multiple of `alignment` bytes, a power of two up to 64. Every kernel
    reads arrays aligned to 64 in place. Raises `OutOfMemory`."""
    try:
        if alignment <= NUMPY_ALIGNMENT:
            return np.empty(shape, dtype)
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            return np.empty(shape, dtype)
        size = math.prod(shape) * dtype.itemsize
        raw = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        raise OutOfMemory(f"no room for an array of shape {shape} and {size} bytes") from error
    return np.ndarray(shape, dtype, raw, -address(raw) % ALIGNMENT)


class Results:
    """Memory for large results, used again once nobody holds the result that lay in it: fresh memory costs a page fault for each
    4 KiB, which takes ten times as long as to write them. One piece is kept for each value of a plan and workspace."""

    def __init__(self) -> None:
        self._spare: dict[int, Array] = {}

    def empty(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised row-major array, aligned for every kernel, for value `number`. Raises `OutOfMemory`."""
        size = math.prod(shape) * dtype.itemsize
        memory = self._spare.pop(number, None)
        if memory is None or not size <= memory.size <= 2 * size:
            # Somewhat larger, for results that grow a little from run to run, as caches of keys and values do.
            memory = aligned_empty((size + size // 8,), np.uint8)
        # Arrays made of the lease keep it alive, and so do their views.
        array = np.asarray(_Lease(self._spare, number, memory, shape, dtype))
        return array if array.dtype is dtype else array.view(dtype)


class _Lease:
    """A claim on memory, which goes back to where it came from when the claim ends. It shows numpy an array of a shape there."""

    __slots__ = ("__array_interface__", "_memory", "_number", "_spare")

    def __init__(self, spare: dict[int, Array], number: int, memory: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._spare, self._number, self._memory = spare, number, memory
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (address(memory), False)}

    def __del__(self) -> None:
        self._spare[self._number] = self._memory


def address(array: Array) -> int:
    """Where an array's data starts."""
    try:
        # Four times as fast as the other way, which builds a dictionary.
        return _address_of(_start(array))
    except (TypeError, ValueError):  # read-only, or of an element type without a buffer format
        found: int = array.__array_interface__["data"][0]
        return found


def put_addresses(pointers: ctypes.Array[ctypes.c_void_p], arrays: Sequence[Array]) -> None:
    """Write where the data of arrays starts into an array of pointers that has room for them."""
    for index, array in enumerate(arrays):
        try:
            pointers[index] = _address_of(_start(array))
        except (TypeError, ValueError):
            pointers[index] = address(array)


def in_place(array: Array, alignment: int = ALIGNMENT) -> bool:
    """Whether a kernel can use the array as it lies: row-major and aligned."""
    if array.flags.num & IN_PLACE != IN_PLACE:
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

    Host objects (`dtype` None) pass as they are, but for strings, alone or in lists or arrays: they become an array of `str`.
    Raises `InputError` where the value is no array in host memory, or has elements of another type than `dtype`.
    """
    if dtype is None:
        text = _is_text(value)
        return _strings(name, np.asarray(value, None if isinstance(value, np.ndarray) else object)) if text else value
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
    if dtype.kind == "string":
        return _strings(name, array)
    wanted = dtype.numpy
    if array.dtype == wanted:
        return array
    if array.dtype.newbyteorder("=") == wanted:
        return array.astype(wanted)
    raise InputError(
        f"input {name!r} has elements of type {array.dtype.name}, the model takes {dtype.name}",
        remedy=f"convert it, such as with .astype({dtype.name!r})",
    )


def _is_text(value: Any) -> bool:
    """Whether a host object is a tensor of strings: a sequence holds arrays, and an optional an array of numbers at most."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "OSTU"
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_text, value)) and not any(isinstance(item, np.ndarray) for item in value)
    return isinstance(value, (str, bytes))


def _strings(name: str, array: Array) -> Array:
    """An array of Python strings, bytes decoded as UTF-8, which is how ONNX keeps strings. Raises `InputError` for all else."""
    remedy = "pass an array of str, or of bytes in UTF-8"
    if array.dtype.kind not in "OSTU":
        raise InputError(f"input {name!r} has elements of type {array.dtype.name}, the model takes strings", remedy=remedy)
    if array.dtype.kind in "TU":
        return array.astype(object)
    if all(type(item) is str for item in array.flat):
        return array
    found = np.empty(array.shape, object)
    for index, item in enumerate(array.flat):
        try:
            found.flat[index] = item.decode() if isinstance(item, bytes) else item
        except UnicodeDecodeError as error:
            raise InputError(f"input {name!r} holds bytes that are no UTF-8: {item!r}", remedy=remedy) from error
        if not isinstance(found.flat[index], str):
            raise InputError(f"input {name!r} holds {item!r}, the model takes strings", remedy=remedy)
    return found
