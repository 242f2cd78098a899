"""Host arrays of the runtime: aligned allocation, and import of callers' values."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import InputError, OutOfMemory
from inlaid_runtime.types import DType

Array = np.ndarray[Any, Any]

_pointer_at = ctypes.c_void_p.from_address
_HEADER = object.__basicsize__
_SAMPLE = np.zeros(1)
_AS_IN_C = (
    sys.implementation.name == "cpython" and _pointer_at(id(_SAMPLE) + _HEADER).value == _SAMPLE.__array_interface__["data"][0]
)
_PLAIN = np.ndarray if _AS_IN_C else None
"""Type of arrays whose data address follows the object header in memory, as in numpy's C API; None if this does not hold here.
Reading it there takes a seventh of the time of `__array_interface__`, which builds a dictionary."""
IN_PLACE = 0x101
"""Value of numpy's flags C_CONTIGUOUS and ALIGNED combined."""
LARGE = 1 << 17
"""Size in bytes above which C's malloc may return freed memory to the operating system."""
NUMPY_ALIGNMENT = 16
"""Alignment in bytes of memory that numpy allocates through C's malloc."""


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any] | type[np.generic] | str, alignment: int = ALIGNMENT) -> Array:
    """Allocate an uninitialized row-major array aligned to `alignment` bytes, a power of two up to 64. Kernels read arrays aligned
    to 64 in place. Raises `OutOfMemory`."""
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
        raise OutOfMemory(f"cannot allocate {size} bytes for an array of shape {shape}") from error
    return np.ndarray(shape, dtype, raw, -address(raw) % ALIGNMENT)


class Results:
    """Pool of memory for large results. Memory is reused once the result in it is garbage: fresh memory costs a page fault per 4
    KiB, which takes ten times as long as writing 4 KiB. One block is kept per value of a plan and workspace."""

    def __init__(self) -> None:
        self._spare: dict[int, Array] = {}

    def empty(self, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Allocate an uninitialized row-major array for value `number`, aligned for every kernel. Raises `OutOfMemory`."""
        size = math.prod(shape) * dtype.itemsize
        memory = self._spare.pop(number, None)
        if memory is None or not size <= memory.size <= 2 * size:
            # Allocate somewhat more, for results that grow slightly from run to run, such as key-value caches.
            memory = aligned_empty((size + size // 8,), np.uint8)
        # Arrays and views created from the lease keep it alive.
        array = np.asarray(_Lease(self._spare, number, memory, shape, dtype))
        return array if array.dtype is dtype else array.view(dtype)


class _Lease:
    """Owner of pooled memory. The memory returns to the pool when the lease is garbage. numpy reads a lease as an array."""

    __slots__ = ("__array_interface__", "_memory", "_number", "_spare")

    def __init__(self, spare: dict[int, Array], number: int, memory: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._spare, self._number, self._memory = spare, number, memory
        # numpy does not read the names of element types that it lacks, such as <f1 of 8-bit floats.
        typestr = dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": typestr, "data": (address(memory), False)}

    def __del__(self) -> None:
        self._spare[self._number] = self._memory


def address(array: Array) -> int:
    """Return the address of an array's data."""
    if type(array) is _PLAIN:
        return _pointer_at(id(array) + _HEADER).value or 0
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def put_addresses(pointers: ctypes.Array[ctypes.c_void_p], arrays: Sequence[Array]) -> None:
    """Write the data addresses of arrays to an array of pointers of sufficient length."""
    for index, array in enumerate(arrays):
        pointers[index] = _pointer_at(id(array) + _HEADER) if type(array) is _PLAIN else address(array)


def in_place(array: Array, alignment: int = ALIGNMENT) -> bool:
    """Test whether a kernel can read the array in place: row-major and aligned."""
    if array.flags.num & IN_PLACE != IN_PLACE:
        return False
    return alignment == 1 or array.dtype.hasobject or address(array) % alignment == 0


def usable(array: Array, alignment: int = ALIGNMENT) -> Array:
    """Return `array` if a kernel can read it in place, otherwise an aligned row-major copy."""
    return array if in_place(array, alignment) else fresh_copy(array)


def fresh_copy(array: Array) -> Array:
    """Return an aligned row-major copy that shares no memory."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def import_value(name: str, value: Any, dtype: DType | None) -> Any:
    """Convert a caller's value to an array: a numpy array, an object that exports DLPack (zero-copy, such as a torch tensor), or
    numbers.

    Host objects (`dtype` None) pass unchanged, except strings, alone or in lists or arrays, which become an array of `str`. Raises
    `InputError` for a value that is not an array in host memory, or whose dtype is not `dtype`.
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
            raise InputError(f"input {name!r} is not an array: {error}") from error
    if dtype.kind == "string":
        return _strings(name, array)
    numpy_dtype = dtype.numpy
    if array.dtype == numpy_dtype:
        return array
    if array.dtype.newbyteorder("=") == numpy_dtype:
        return array.astype(numpy_dtype)
    raise InputError(
        f"input {name!r} must have dtype {dtype.name}, got {array.dtype.name}",
        remedy=f"convert it, such as with .astype({dtype.name!r})",
    )


def _is_text(value: Any) -> bool:
    """Test whether a host object is a tensor of strings. Other host objects are sequences, which hold arrays, and optionals."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "OSTU"
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_text, value)) and not any(isinstance(item, np.ndarray) for item in value)
    return isinstance(value, (str, bytes))


def _strings(name: str, array: Array) -> Array:
    """Convert text to an array of Python `str`, as in ONNX; bytes are decoded as UTF-8. Raises `InputError` for other values."""
    remedy = "pass an array of str, or of bytes in UTF-8"
    if array.dtype.kind not in "OSTU":
        raise InputError(f"input {name!r} must hold strings, got dtype {array.dtype.name}", remedy=remedy)
    if array.dtype.kind in "TU":
        return array.astype(object)
    if set(map(type, array.ravel().tolist())) <= {str}:
        return array
    strings = np.empty(array.shape, object)
    for index, item in enumerate(array.flat):
        try:
            strings.flat[index] = item.decode() if isinstance(item, bytes) else item
        except UnicodeDecodeError as error:
            raise InputError(f"input {name!r} holds bytes that are not UTF-8: {item!r}", remedy=remedy) from error
        if not isinstance(strings.flat[index], str):
            raise InputError(f"input {name!r} must hold strings, got {item!r}", remedy=remedy)
    return strings
