"""Decoding of ONNX messages: files, dtypes, tensors, types. All lengths are validated before use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from inlaid.ops.container import NOTHING
from inlaid_onnx.external import ExternalData
from inlaid_onnx.weights import without_weights
from inlaid_runtime.arith import Dim
from inlaid_runtime.copying import copied
from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.types import DType, OptionalType, SequenceType, TensorType, Type, dtype

if TYPE_CHECKING:
    import mmap

    import onnx

# TensorProto.DataType of onnx.proto, without the unsupported types (complex, float6).
_ELEMENTS = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2",
    26: "int2",
}  # fmt: skip
_CODES = {name: code for code, name in _ELEMENTS.items()}

_DENSE_LIMIT = 1 << 28
"""Maximum number of elements that a sparse tensor is expanded to."""

Array = np.ndarray[Any, Any]


def decode_dtype(code: int) -> DType:
    """Return the dtype for a `TensorProto.DataType`. Raises ValueError for an unsupported element type."""
    if code not in _ELEMENTS:
        raise ValueError(f"expected a supported element type, got TensorProto.DataType {code}")
    return dtype(_ELEMENTS[code])


def encode_dtype(element: DType) -> int:
    """Return the `TensorProto.DataType` of a dtype."""
    return _CODES[element.name]


def parse_model(data: bytes | mmap.mmap, file: str) -> tuple[onnx.ModelProto, Mapping[int, memoryview]]:
    """Parse a serialized model. Returns the message, which lacks the raw data of large initializers, and that data by index of the
    initializer. Raises `ModelImportError` for bytes that are not an ONNX model."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        content, weights = without_weights(memoryview(data))
    except ValueError:
        content, weights = bytes(data), {}  # damaged, or with wire types that only protobuf reads
    try:
        model.ParseFromString(content)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise ModelImportError(f"{file} is not an ONNX model, or is damaged: {error}", node=file) from error
    return model, weights


def decode_array(tensor: onnx.TensorProto, external: ExternalData, raw: memoryview | None = None) -> Array:
    """Decode a tensor to an array. `raw` is its raw data if the message lacks it; it is copied. Strings are an object array of str.

    Raises `ModelImportError` if the data does not fit the shape and dtype.
    """
    try:
        return _array(tensor, external, raw)
    except (ValueError, OverflowError) as error:
        raise ModelImportError(f"tensor {tensor.name!r}: {error}", node=f"{external.file}:{tensor.name}") from error


def _array(tensor: onnx.TensorProto, external: ExternalData, separate_data: memoryview | None) -> Array:
    element = decode_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ValueError(f"dimensions must be >= 0, got {list(shape)}")
    if tensor.HasField("segment"):
        raise ValueError("segmented tensors are not supported")
    count = math.prod(shape)
    if element.kind == "string":
        _expect(len(tensor.string_data), count, "strings", shape, element)
        strings = np.empty(count, object)
        strings[:] = [item.decode() for item in tensor.string_data]
        return strings.reshape(shape)
    size = -(-count * element.bits // 8) if element.bits < 8 and element.kind != "bool" else count * element.bytes
    raw: bytes | Array
    if tensor.data_location == tensor.EXTERNAL:
        raw = external.read(tensor, size)
    elif separate_data is not None:
        raw = copied(np.frombuffer(separate_data, np.uint8))
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
    else:
        return _from_fields(tensor, element, count).reshape(shape)
    _expect(len(raw), size, "bytes", shape, element)
    return _from_bytes(np.frombuffer(raw, np.uint8), element, count).reshape(shape)


def _expect(actual: int, expected: int, what: str, shape: tuple[int, ...], element: DType) -> None:
    if actual != expected:
        raise ValueError(f"expected {expected} {what} for shape {list(shape)} of {element}, got {actual}")


def _from_bytes(data: Array, element: DType, count: int) -> Array:
    """Decode elements from little-endian bytes. Sub-byte elements are packed, the first in the low bits."""
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
    """Decode the elements of a tensor from the repeated field that onnx.proto defines for the dtype."""
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


def decode_sparse_array(sparse: onnx.SparseTensorProto, external: ExternalData) -> Array:
    """Decode a sparse tensor to a dense array. Raises `ModelImportError`."""
    name = sparse.values.name
    values, indices = decode_array(sparse.values, external), decode_array(sparse.indices, external)
    shape = tuple(sparse.dims)
    try:
        count = math.prod(shape)
        if any(dim < 0 for dim in shape) or count > _DENSE_LIMIT:
            raise ValueError(f"expected a valid shape of at most {_DENSE_LIMIT} elements, got {list(shape)}")
        if values.ndim != 1 or indices.dtype != np.int64:
            raise ValueError("the values must have rank 1 and the indices must be int64")
        if indices.ndim == 2 and indices.shape == (len(values), len(shape)):
            if any((column < 0).any() or (column >= dim).any() for column, dim in zip(indices.T, shape, strict=True)):
                raise ValueError("the indices must be within the shape")
            indices = np.ravel_multi_index(tuple(indices.T), shape) if len(values) else np.zeros(0, np.int64)
        if indices.shape != values.shape or (indices < 0).any() or (indices >= count).any():
            raise ValueError("the shape of the indices must match the values and the dense shape")
    except ValueError as error:
        raise ModelImportError(f"sparse tensor {name!r}: {error}", node=f"{external.file}:{name}") from error
    dense = np.zeros(count, values.dtype)
    dense[indices] = values
    return dense.reshape(shape)


def decode_type(proto: onnx.TypeProto, dim: Callable[[onnx.TensorShapeProto.Dimension, int], Dim]) -> Type:
    """Decode a type. `dim(dimension, axis)` converts a dimension. Raises ValueError for unsupported types."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        if not proto.tensor_type.HasField("shape"):
            raise ValueError("expected a tensor type with a rank, got one without a shape")
        shape = tuple(dim(item, axis) for axis, item in enumerate(proto.tensor_type.shape.dim))
        return TensorType(shape, decode_dtype(proto.tensor_type.elem_type))
    if kind == "sequence_type":
        element = proto.sequence_type.elem_type
        if element.HasField("tensor_type") and not element.tensor_type.elem_type:
            return SequenceType(NOTHING)  # without an element type: an empty sequence
        return SequenceType(decode_type(element, dim))
    if kind == "optional_type":
        return OptionalType(decode_type(proto.optional_type.elem_type, dim))
    raise ValueError(f"values of ONNX's {kind or 'untyped kind'} are not supported")
