"""Decoding of ONNX messages: files, element types, tensors, types. Every length is checked before it is believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from inlaid.arith import Dim
from inlaid.errors import ModelImportError
from inlaid.frontends.onnx.external import ExternalData
from inlaid.ops.container import NOTHING
from inlaid.types import DType, OptionalType, SequenceType, TensorType, Type, dtype

if TYPE_CHECKING:
    import onnx

# TensorProto.DataType of onnx.proto, without the types Inlaid has none for (complex, float6).
_ELEMENTS = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2",
    26: "int2",
}  # fmt: skip
_CODES = {name: code for code, name in _ELEMENTS.items()}

_DENSE_LIMIT = 1 << 28
"""Greatest number of elements that a sparse tensor is expanded to."""

Array = np.ndarray[Any, Any]


def dtype_of(code: int) -> DType:
    """The element type of a `TensorProto.DataType`. Raises ValueError for one that Inlaid does not have."""
    if code not in _ELEMENTS:
        raise ValueError(f"element type {code} of ONNX is unknown or not supported")
    return dtype(_ELEMENTS[code])


def code_of(of: DType) -> int:
    """The `TensorProto.DataType` of an element type."""
    return _CODES[of.name]


def parse_model(data: bytes, file: str) -> onnx.ModelProto:
    """A model from its serialised form. Raises `ModelImportError` for bytes that are no ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise ModelImportError(f"{file} is not an ONNX model, or is damaged: {error}", node=file) from error
    return model


def array_of(tensor: onnx.TensorProto, external: ExternalData) -> Array:
    """A tensor as a read-only array; strings as an object array of str.

    Raises `ModelImportError` when its data does not fit its shape and type.
    """
    try:
        return _array(tensor, external)
    except (ValueError, OverflowError) as error:
        raise ModelImportError(f"tensor {tensor.name!r}: {error}", node=f"{external.file}:{tensor.name}") from error


def _array(tensor: onnx.TensorProto, external: ExternalData) -> Array:
    element = dtype_of(tensor.data_type)
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ValueError(f"it has a negative dimension: {list(shape)}")
    if tensor.HasField("segment"):
        raise ValueError("segmented tensors are not supported")
    count = math.prod(shape)
    if element.kind == "string":
        _expect(len(tensor.string_data), count, "strings", shape, element)
        strings = np.empty(count, object)
        strings[:] = [item.decode() for item in tensor.string_data]
        return strings.reshape(shape)
    size = -(-count * element.bits // 8) if element.bits < 8 and element.kind != "bool" else count * element.bytes
    if tensor.data_location == tensor.EXTERNAL:
        raw = external.read(tensor, size)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
    else:
        return _from_fields(tensor, element, count).reshape(shape)
    _expect(len(raw), size, "bytes", shape, element)
    return _from_bytes(np.frombuffer(raw, np.uint8), element, count).reshape(shape)


def _expect(found: int, wanted: int, what: str, shape: tuple[int, ...], element: DType) -> None:
    if found != wanted:
        raise ValueError(f"it holds {found} {what}, but shape {list(shape)} of {element} needs {wanted}")


def _from_bytes(data: Array, element: DType, count: int) -> Array:
    """Elements from little-endian bytes; sub-byte ones are packed, the first in the low bits."""
    if element.kind == "bool":
        return np.asarray(data != 0)
    if element.bits >= 8:
        return data.view(element.numpy.newbyteorder("<")).astype(element.numpy, copy=False)
    per_byte = 8 // element.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * element.bits
    codes = ((data[:, None] >> shifts) & ((1 << element.bits) - 1)).reshape(-1)[:count]
    if element.is_float:
        return codes.view(element.numpy)
    signed = codes.astype(np.int8)
    if element.kind == "int":
        signed = np.where(signed >= 1 << (element.bits - 1), signed - (1 << element.bits), signed).astype(np.int8)
    return signed.astype(element.numpy)


def _from_fields(tensor: onnx.TensorProto, element: DType, count: int) -> Array:
    """Elements from the repeated fields of a tensor: which field holds which type is fixed by onnx.proto."""
    shape = tuple(tensor.dims)
    direct = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
    if element.name in direct:
        values = getattr(tensor, direct[element.name])
        _expect(len(values), count, "elements", shape, element)
        return np.array(values, element.numpy)
    if element.name in ("uint32", "uint64"):
        _expect(len(tensor.uint64_data), count, "elements", shape, element)
        return np.array(tensor.uint64_data, np.uint64).astype(element.numpy)
    words = np.array(tensor.int32_data, np.int32)
    if element.bits < 8 and element.kind != "bool":
        _expect(len(words), -(-count * element.bits // 8), "packed elements", shape, element)
        return _from_bytes(words.astype(np.uint8), element, count)
    _expect(len(words), count, "elements", shape, element)
    if element.kind == "bool":
        return np.asarray(words != 0)
    if element.is_float:
        return words.astype(f"uint{element.bits}").view(element.numpy)
    return words.astype(element.numpy)


def dense_of(sparse: onnx.SparseTensorProto, external: ExternalData) -> Array:
    """A sparse tensor written out. Raises `ModelImportError`."""
    name = sparse.values.name
    values, indices = array_of(sparse.values, external), array_of(sparse.indices, external)
    shape = tuple(sparse.dims)
    try:
        count = math.prod(shape)
        if any(dim < 0 for dim in shape) or count > _DENSE_LIMIT:
            raise ValueError(f"shape {list(shape)} is not one that can be written out")
        if values.ndim != 1 or indices.dtype != np.int64:
            raise ValueError("its values must have rank 1 and its indices be int64")
        if indices.ndim == 2 and indices.shape == (len(values), len(shape)):
            if any((column < 0).any() or (column >= dim).any() for column, dim in zip(indices.T, shape, strict=True)):
                raise ValueError("an index is out of range")
            indices = np.ravel_multi_index(tuple(indices.T), shape) if len(values) else np.zeros(0, np.int64)
        if indices.shape != values.shape or (indices < 0).any() or (indices >= count).any():
            raise ValueError("its indices do not fit its values or its shape")
    except ValueError as error:
        raise ModelImportError(f"sparse tensor {name!r}: {error}", node=f"{external.file}:{name}") from error
    dense = np.zeros(count, values.dtype)
    dense[indices] = values
    return dense.reshape(shape)


def type_of(proto: onnx.TypeProto, dim: Callable[[onnx.TensorShapeProto.Dimension, int], Dim]) -> Type:
    """The type that a message declares; `dim(dimension, axis)` gives its dimensions. Raises ValueError for what has no type."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        if not proto.tensor_type.HasField("shape"):
            raise ValueError("a tensor without a declared rank cannot be typed")
        shape = tuple(dim(item, axis) for axis, item in enumerate(proto.tensor_type.shape.dim))
        return TensorType(shape, dtype_of(proto.tensor_type.elem_type))
    if kind == "sequence_type":
        element = proto.sequence_type.elem_type
        if element.HasField("tensor_type") and not element.tensor_type.elem_type:
            return SequenceType(NOTHING)  # of no element type: known to be empty
        return SequenceType(type_of(element, dim))
    if kind == "optional_type":
        return OptionalType(type_of(proto.optional_type.elem_type, dim))
    raise ValueError(f"values of ONNX's {kind or 'untyped kind'} are not supported")
