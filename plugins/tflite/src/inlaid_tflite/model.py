"""Decoding of TensorFlow Lite files to plain data.

The file is untrusted. The generated accessors of the `tflite` package follow any offset, and raise arbitrary Python errors at the
end of the bytes. So all decoding is done here, and every defect raises `ModelImportError`. Lengths are checked against the size of
the file before they are iterated over.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import DType, TensorType, Type, dtype
from inlaid_tflite.sparsity import Level, dense, element_count

Array = np.ndarray[Any, Any]

IDENTIFIER = b"TFL3"
ELEMENTS = {
    0: "float32",
    1: "float16",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    8: "float32",  # complex: see `Tensor.is_complex`
    9: "int8",
    10: "float64",
    13: "int32",  # a variable: its handle
    12: "uint64",
    15: "uint32",
    16: "uint16",
    17: "int4",
    18: "bfloat16",
}
"""Dtypes by their number in the schema."""
COMPLEX_NUMBER, COMPLEX = 8, "complex64"
"""Complex elements: their number and name in the schema."""
LARGEST = 1 << 31
"""Maximum size of a tensor in bytes, as in LiteRT."""
MAX_AXES = 32
"""Maximum rank of a tensor. LiteRT's kernels support at most 8."""
DENSE = 1024
"""Maximum ratio of the elements of all sparse tensors to the bytes of the file."""
SHARED = 8
"""Maximum ratio of the total length of all lists to the size of the file."""


@dataclass(frozen=True)
class Quantization:
    """real = (stored - zero_point) * scale, per tensor or per index of `axis`."""

    scale: Array
    zero_point: Array
    axis: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph.

    shape
        For an operator's input, the actual shape, which may be symbolic. For a result, the shape in the file, which may be wrong if
        the user has changed sizes.
    data
        The value of a constant.
    open
        The axes with dynamic sizes.
    ranked
        Whether an empty shape means a scalar. If False, an empty shape means an unknown rank.
    variable
        Whether the tensor keeps its value between runs.
    is_complex
        Whether the elements are complex64. The values, but not `shape`, then have a trailing axis of 2, the real and the imaginary
        part.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: DType
    data: Array | None
    quantization: Quantization | None
    open: tuple[int, ...] = ()
    ranked: bool = False
    variable: bool = False
    is_complex: bool = False

    @property
    def element(self) -> str:
        """Name of the element type, as in the schema."""
        return COMPLEX if self.is_complex else self.dtype.name

    def with_type(self, type_: Type) -> Tensor:
        """Return the tensor with the shape of `type_`, the type of its value."""
        if not isinstance(type_, TensorType):
            return self
        return replace(self, shape=type_.shape[:-1] if self.is_complex else type_.shape)

    def left_open(self) -> Tensor:
        """Return the tensor with -1 for dynamic sizes."""
        return replace(self, shape=tuple(-1 if axis in self.open else dim for axis, dim in enumerate(self.shape)))

    def fits(self, type_: Type) -> bool:
        """Test whether a type matches the tensor."""
        if not isinstance(type_, TensorType) or type_.dtype is not self.dtype:
            return False
        if self.is_complex and type_.shape[-1:] != (2,):
            return False
        if not self.shape and not self.ranked:
            return True
        shape = type_.shape[:-1] if self.is_complex else type_.shape
        pairs = enumerate(zip(self.shape, shape, strict=False))
        return len(shape) == len(self.shape) and all(
            axis in self.open or not isinstance(actual, int) or actual == dim for axis, (dim, actual) in pairs
        )


@dataclass(frozen=True)
class Operation:
    """An operator: its name in the schema, the indices of its tensors (-1: omitted), and its options table. `intermediates` have
    the scales of intermediate values."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A subgraph, with the indices of its input and output tensors."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operations: tuple[Operation, ...]


def read_model(data: bytes, file: str) -> tuple[Graph, ...]:
    """Decode the subgraphs of a file, the entry point first. Raises `ModelImportError`."""
    if data[4:8] != IDENTIFIER:
        raise ModelImportError(f"{file} is not a TensorFlow Lite model: expected the identifier {IDENTIFIER.decode()}", node=file)
    try:
        return _Reader(data).graphs()
    except ModelImportError as error:
        error.node = error.node or file
        raise
    except (
        struct.error,
        LookupError,
        ValueError,
        TypeError,
        ArithmeticError,
        AttributeError,
        MemoryError,
        RecursionError,
    ) as error:
        what = error if isinstance(error, ValueError) else f"invalid offset, length or number ({error})"
        raise ModelImportError(f"{file} is damaged: {what}", node=file) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        import tflite

        self.data = data
        self.walked = self.dense = 0
        self.schema: Any = tflite
        self.model = tflite.Model.GetRootAs(data, 0)
        self.operators = {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
        self.options = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}

    def graphs(self) -> tuple[Graph, ...]:
        model = self.model
        if not self._count(model.SubgraphsLength()):
            raise ModelImportError("the model has no graph")
        return tuple(self._graph(model.Subgraphs(number)) for number in range(model.SubgraphsLength()))

    def _count(self, length: int) -> int:
        """Check the length of a list before iterating over it. Each element takes at least one byte, and lists in a valid file
        overlap only if they are shared. So a total length far beyond the file's size is an attack on time and memory."""
        self.walked += length
        if length < 0 or self.walked > SHARED * len(self.data):
            raise ValueError(f"lists are too long for {len(self.data)} bytes: {length} elements, {self.walked} in all lists")
        return length

    def _numbers(self, length: int, item: Any) -> tuple[int, ...]:
        return tuple(int(item(index)) for index in range(self._count(length)))

    def _graph(self, graph: Any) -> Graph:
        tensors = tuple(self._tensor(graph.Tensors(number)) for number in range(self._count(graph.TensorsLength())))
        decoded = Graph(
            tensors,
            self._numbers(graph.InputsLength(), graph.Inputs),
            self._numbers(graph.OutputsLength(), graph.Outputs),
            tuple(self._operation(graph.Operators(number)) for number in range(self._count(graph.OperatorsLength()))),
        )
        for number in (
            *decoded.inputs,
            *decoded.outputs,
            *(n for each in decoded.operations for n in each.outputs + each.intermediates),
        ):
            if not 0 <= number < len(tensors):
                raise ValueError(f"unknown tensor {number}")
        if any(not -1 <= number < len(tensors) for each in decoded.operations for number in each.inputs):
            raise ValueError("an operator reads an unknown tensor")
        return decoded

    def _operation(self, operator: Any) -> Operation:
        index = operator.OpcodeIndex()
        if not 0 <= index < self.model.OperatorCodesLength():
            raise ValueError(f"unknown operator code {index}")
        code = self.model.OperatorCodes(index)
        # Old files have the number in the older field, of one byte.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = self.operators.get(number)
        if name is None:
            raise ModelImportError(f"unknown built-in operator {number}")
        if name == "CUSTOM":
            custom = (code.CustomCode() or b"?").decode("utf-8", "replace")
            raise ModelImportError(f"the custom operator {custom} is not supported: use built-in operators", operator=custom)
        return Operation(
            name,
            self._numbers(operator.InputsLength(), operator.Inputs),
            self._numbers(operator.OutputsLength(), operator.Outputs),
            self._options(operator),
            self._numbers(operator.IntermediatesLength(), operator.Intermediates),
        )

    def _options(self, operator: Any) -> Any:
        table, kind = operator.BuiltinOptions(), operator.BuiltinOptionsType()
        if table is None or not kind:
            return None
        options = getattr(self.schema, self.options[kind])()
        options.Init(table.Bytes, table.Pos)
        return options

    def _tensor(self, tensor: Any) -> Tensor:
        label = tensor.Name() or b""
        name = label[: self._count(len(label))].decode("utf-8", "replace")
        shape = self._numbers(tensor.ShapeLength(), tensor.Shape)
        element_name = ELEMENTS.get(tensor.Type())
        if element_name is None:
            raise ModelImportError(f"the element type of tensor {name} is not supported: number {tensor.Type()} of the schema")
        if len(shape) > MAX_AXES:
            raise ModelImportError(f"tensor {name} must have at most {MAX_AXES} axes, got {len(shape)}")
        if any(dim < 0 for dim in shape):
            raise ModelImportError(f"tensor {name} must have a known shape, got {shape}")
        element, is_complex = dtype(element_name), tensor.Type() == COMPLEX_NUMBER
        size = element.bytes * (1 + is_complex)
        for dim in shape:
            size *= dim
        if size > LARGEST:
            raise ValueError(f"tensor {name} must have at most {LARGEST} bytes, got shape {shape}")
        signature = self._numbers(tensor.ShapeSignatureLength(), tensor.ShapeSignature)
        return Tensor(
            name,
            shape,
            element,
            self._data(tensor, name, (*shape, 2) if is_complex else shape, element),
            self._quantization(tensor, name, len(shape), element),
            tuple(axis for axis, dim in enumerate(signature) if dim < 0 and len(signature) == len(shape)),
            bool(tensor.HasRank()),
            bool(tensor.IsVariable()),
            is_complex,
        )

    def _data(self, tensor: Any, name: str, shape: tuple[int, ...], element: DType) -> Array | None:
        index = tensor.Buffer()
        if not 0 <= index < self.model.BuffersLength():
            raise ValueError(f"tensor {name} refers to an unknown buffer {index}")
        raw = self._buffer(index) if index else None
        if raw is None:
            return None
        if tensor.Sparsity() is not None:
            return self._dense(tensor.Sparsity(), raw, name, shape, element)
        packed = element.bits < 8 and element.kind != "bool"
        count = math.prod(shape)
        if len(raw) != (-(-count // 2) if packed else count * element.bytes):
            raise ModelImportError(f"the data of tensor {name} must fit {element} of shape {shape}, got {len(raw)} bytes")
        if packed:
            self._count(count)
            return _unpacked(raw, shape).astype(element.numpy)
        if raw.ctypes.data % element.bytes:
            self._count(len(raw))  # the data is copied, so that overlapping buffers add up
            raw = raw.copy()
        return raw.view(element.numpy).reshape(shape)

    def _dense(self, sparsity: Any, raw: Array, name: str, shape: tuple[int, ...], element: DType) -> Array:
        """Return the dense value of a sparse tensor."""
        if element.bits < 8 or len(raw) % element.bytes:
            raise ValueError(
                f"the sparse tensor {name} must have whole elements of at least 8 bits, got {len(raw)} bytes of {element}"
            )
        self.dense += element_count(shape, DENSE * len(self.data) - self.dense)
        order = self._numbers(sparsity.TraversalOrderLength(), sparsity.TraversalOrder)
        blocked = self._numbers(sparsity.BlockMapLength(), sparsity.BlockMap)
        levels = [self._level(sparsity.DimMetadata(number)) for number in range(self._count(sparsity.DimMetadataLength()))]
        self._count(len(raw))
        return dense(raw.copy().view(element.numpy), shape, order, blocked, levels)

    def _level(self, level: Any) -> Level:
        if level.Format() == self.schema.DimensionType.DENSE:
            return Level(int(level.DenseSize()))
        segments = self._integers(level.ArraySegmentsType(), level.ArraySegments())
        return Level(0, segments, self._integers(level.ArrayIndicesType(), level.ArrayIndices()))

    def _integers(self, kind: int, table: Any) -> Array:
        """Return a list of integers of one of several sizes."""
        vectors = {1: self.schema.Int32Vector, 2: self.schema.Uint16Vector, 3: self.schema.Uint8Vector}
        if table is None or kind not in vectors:
            raise ValueError(
                f"a compressed level of a sparse tensor must have lists of integers, found number {kind} of the schema"
            )
        vector = vectors[kind]()
        vector.Init(table.Bytes, table.Pos)
        if not self._count(vector.ValuesLength()):
            return np.zeros(0, np.int64)
        return np.asarray(vector.ValuesAsNumpy(), np.int64)

    def _buffer(self, index: int) -> Array | None:
        """Return the bytes of a buffer as a view of the file; None if it is empty. Large files have the data at the end."""
        buffer = self.model.Buffers(index)
        offset, size = buffer.Offset(), buffer.Size()
        if offset > 1:
            if offset + size > len(self.data):
                raise ValueError(f"buffer {index} must end within the file of {len(self.data)} bytes, but ends at {offset + size}")
            return np.frombuffer(self.data, np.uint8, size, offset)
        length = buffer.DataLength()
        if not 0 <= length <= len(self.data):
            raise ValueError(f"a buffer must fit the file of {len(self.data)} bytes, got {length}")
        return buffer.DataAsNumpy() if length else None

    def _quantization(self, tensor: Any, name: str, rank: int, element: DType) -> Quantization | None:
        stored = tensor.Quantization()
        if stored is None or not self._count(stored.ScaleLength()):
            return None
        scale = np.array(stored.ScaleAsNumpy(), np.float32)
        has_zero_points = self._count(stored.ZeroPointLength()) > 0
        zero_points = np.array(stored.ZeroPointAsNumpy(), np.int64) if has_zero_points else np.zeros(len(scale), np.int64)
        axis = stored.QuantizedDimension()
        if len(scale) == 1 or rank == 1:
            axis = 0  # the only axis; model converters copy the axis of the weights to a bias
        if len(zero_points) != len(scale) or not np.all(np.isfinite(scale)) or np.any(scale < 0) or (rank and not 0 <= axis < rank):
            raise ValueError(f"tensor {name} must have finite scales >= 0, as many zero points, and a valid axis")
        if element.kind in ("int", "uint") and not np.all((zero_points >= element.limits[0]) & (zero_points <= element.limits[1])):
            raise ValueError(f"the zero point of tensor {name} must be in the range of {element}")
        return Quantization(scale, zero_points, axis)


def _unpacked(raw: Array, shape: tuple[int, ...]) -> Array:
    """Unpack signed 4-bit integers, two per byte, the first in the low bits."""
    nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[: math.prod(shape)].astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).reshape(shape)
