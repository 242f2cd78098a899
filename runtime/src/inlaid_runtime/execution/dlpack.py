"""DLPack capsules through ctypes: exchange of tensors outside of numpy's memory with libraries such as PyTorch and CuPy.

The structures are the unversioned structures of DLPack's C header (`DLManagedTensor`), which every library supports. The consumer
of a capsule named "dltensor" renames it to "used_dltensor", and must then call its deleter.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid_runtime.errors import InputError
from inlaid_runtime.types import DTYPES

_FRESH, _CONSUMED = b"dltensor", b"used_dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))

_api = ctypes.pythonapi
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)(("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _api))
_drop = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", _api))


def _delete(managed: Any) -> None:
    _drop(managed.contents.context)


def _destroy(capsule: int) -> None:
    if _is_valid(capsule, _FRESH):  # it was not consumed
        managed = ctypes.cast(_pointer(capsule, _FRESH), ctypes.POINTER(_Managed))
        managed.contents.deleter(managed)


_ON_DELETE = _DELETER(_delete)
_ON_DESTROY = _DESTRUCTOR(_destroy)


class _Exported:
    """A tensor exported by a capsule, alive until the capsule's deleter is called."""

    def __init__(self, address: int, device: tuple[int, int], shape: tuple[int, ...], dtype: np.dtype[Any], owner: object) -> None:
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.owner = owner
        kind = _Type(*_dlpack_type(dtype), 1)
        sizes = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        tensor = _Tensor(address, _Device(*device), len(shape), kind, sizes, None, 0)
        self.managed = _Managed(tensor, id(self), _ON_DELETE)


def _dlpack_type(dtype: np.dtype[Any]) -> tuple[int, int]:
    """DLPack type code and bits of a dtype. Raises `BufferError` if it has none."""
    if dtype == DTYPES["bfloat16"].numpy:
        return _BFLOAT, 16
    if dtype.kind not in _CODES:
        raise BufferError(f"DLPack does not support dtype {dtype}")
    return _CODES[dtype.kind], 8 * dtype.itemsize


def export_capsule(address: int, device: tuple[int, int], shape: tuple[int, ...], dtype: np.dtype[Any], owner: object) -> object:
    """Create a capsule of a row-major tensor. `device` is DLPack's device type and number; `owner` is kept alive while the tensor
    is in use. Raises `BufferError` for unsupported dtypes."""
    exported = _Exported(address, device, shape, dtype, owner)
    capsule: object = _new(ctypes.addressof(exported.managed), _FRESH, _ON_DESTROY)
    _keep(exported)
    return capsule


@dataclass(frozen=True)
class Imported:
    """A row-major tensor of another library, with its address and DLPack device. It is released when this object is garbage."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    keep: object


def import_capsule(capsule: object) -> Imported:
    """Import the tensor of a capsule, and mark the capsule as used. Raises `InputError` for a used capsule, a tensor that is not
    row-major, or an unsupported dtype."""
    if not _is_valid(id(capsule), _FRESH):
        raise InputError("expected an unused DLPack capsule")
    managed = ctypes.cast(_pointer(id(capsule), _FRESH), ctypes.POINTER(_Managed))
    tensor = managed.contents.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
    if tensor.strides and math.prod(shape) > 1:
        strides = tuple(tensor.strides[axis] for axis in range(tensor.rank))
        expected_strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(tensor.rank))
        if any(size > 1 and stride != expected for size, stride, expected in zip(shape, strides, expected_strides, strict=True)):
            raise InputError("expected a row-major tensor", remedy="pass a contiguous copy")
    dtype = _numpy_dtype(tensor.type)
    _rename(capsule, _CONSUMED)
    keep = _ImportedOwner(managed)
    return Imported((tensor.data or 0) + tensor.offset, (tensor.device.type, tensor.device.number), shape, dtype, keep)


class _ImportedOwner:
    """Owner of another library's tensor, which is released when this object is garbage."""

    def __init__(self, managed: Any) -> None:
        if managed.contents.deleter:
            weakref.finalize(self, managed.contents.deleter, managed)


def _numpy_dtype(kind: Any) -> np.dtype[Any]:
    for candidate in DTYPES.values():
        if candidate.kind != "string":
            try:
                fits = _dlpack_type(candidate.numpy) == (kind.code, kind.bits)
            except BufferError:
                continue
            if fits and kind.lanes == 1:
                return candidate.numpy
    raise InputError(f"unsupported DLPack dtype with code {kind.code} and {kind.bits} bits")
