"""`__cuda_array_interface__`, version 3: the protocol by which CuPy and Numba exchange arrays in device memory.

Source: Numba's documentation, "CUDA Array Interface (Version 3)".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from inlaid_runtime.errors import InputError
from inlaid_runtime.types import DTYPES

ATTRIBUTE = "__cuda_array_interface__"
STREAMS = (1, 2)
"""Stream numbers of the legacy and the per-thread default stream. Any other number is a stream handle."""


class DeviceArray(NamedTuple):
    """A row-major array. stream: the stream whose pending commands may write the array; None if no command does."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int | None


def export(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Mapping[str, object]:
    """Describe a row-major array that no command writes. Raises `AttributeError` for elements without a type code."""
    if dtype.kind not in "biufc" or dtype.isbuiltin != 1:
        raise AttributeError(f"{ATTRIBUTE} does not support elements of {dtype}")
    return {"shape": shape, "typestr": dtype.str, "data": (address, False), "strides": None, "stream": None, "version": 3}


def parse(interface: Mapping[str, Any]) -> DeviceArray:
    """Parse an interface. Raises `InputError` for masked, read-only or strided arrays, unknown types and malformed text."""
    try:
        address, read_only = interface["data"]
        shape, dtype = tuple(map(int, interface["shape"])), np.dtype(interface["typestr"])
        strides, stream = interface.get("strides"), interface.get("stream")
        dense_strides = tuple(math.prod(shape[axis + 1 :]) * dtype.itemsize for axis in range(len(shape)))
        pairs = zip(shape, dense_strides, strides or dense_strides, strict=True)
        is_dense = not math.prod(shape) or all(size == 1 or dense_stride == stride for size, dense_stride, stride in pairs)
        array = DeviceArray(int(address or 0), shape, dtype, None if stream is None else int(stream))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{ATTRIBUTE}: expected data, shape and typestr of an array, got {error!r}") from error
    if stream == 0 or dtype not in [item.numpy for item in DTYPES.values() if item.kind != "string"]:
        raise InputError(f"{ATTRIBUTE}: expected a known element type and a stream other than 0, got {dtype} and {stream}")
    if interface.get("mask") is not None or read_only or not is_dense:
        problem = "a mask" if interface.get("mask") is not None else "read-only memory" if read_only else f"strides {strides}"
        raise InputError(f"{ATTRIBUTE}: expected a row-major, writable array, got {problem}", remedy="pass a copy of it")
    return array
