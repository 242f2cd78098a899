"""A TensorFlow Lite file, decoded: plain data in place of offsets into bytes.

Nothing in the file is believed. The generated accessors of the `tflite` package read wherever an offset leads, and fail with errors
of Python at the end of the bytes; so all decoding happens here, and whatever goes wrong is one `ModelImportError`. Lengths are
compared with the size of the file before anything is walked.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid.errors import ModelImportError
from inlaid.types import DType, TensorType, Type, dtype

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
    9: "int8",
    10: "float64",
    13: "int32",  # a variable: its handle
    12: "uint64",
    15: "uint32",
    16: "uint16",
    17: "int4",
    18: "bfloat16",
}
"""Element types by their numbers in the schema."""
LARGEST = 1 << 31
"""Bytes that a tensor may have, as in LiteRT."""
MOST_AXES = 32
"""Axes that a tensor may have. LiteRT's kernels take eight at most."""
SHARED = 8
"""How much larger than the file all lists in it may be together."""


@dataclass(frozen=True)
class Quantisation:
    """real = (stored - zero_point) * scale, with one pair for the tensor, or one for each index along `axis`."""

    scale: Array
    zero_point: Array
    axis: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph.

    shape
        Of an input of an operator, the sizes that it has: expressions, where the user left sizes open. Of a result, the sizes that
        the file tells, which may be wrong for a model whose sizes the user has changed.
    data
        The value of a constant.
    open
        The axes whose sizes the file leaves open.
    ranked
        Whether an empty shape is that of a single value; else nothing is known of it.
    variable
        Whether it keeps its value from one run to the next.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: DType
    data: Array | None
    quantisation: Quantisation | None
    open: tuple[int, ...] = ()
    ranked: bool = False
    variable: bool = False

    def of(self, type_: Type) -> Tensor:
        """The tensor with the shape that its value has."""
        return replace(self, shape=type_.shape) if isinstance(type_, TensorType) else self

    def left_open(self) -> Tensor:
        """The tensor with sizes of -1 where they are open."""
        return replace(self, shape=tuple(-1 if axis in self.open else dim for axis, dim in enumerate(self.shape)))

    def fits(self, type_: Type) -> bool:
        """Whether a value of a type may be the tensor's."""
        if not isinstance(type_, TensorType) or type_.dtype is not self.dtype:
            return False
        if not self.shape and not self.ranked:
            return True
        told = enumerate(zip(self.shape, type_.shape, strict=False))
        return type_.rank == len(self.shape) and all(
            axis in self.open or not isinstance(found, int) or found == dim for axis, (dim, found) in told
        )


@dataclass(frozen=True)
class Operation:
    """One operator: its name in the schema, the numbers of its tensors (-1: left out), its table of options. `intermediates` have
    the scales of what is worked out in between."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A subgraph, with the numbers of the tensors that it takes and gives."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operations: tuple[Operation, ...]


def read_model(data: bytes, file: str) -> tuple[Graph, ...]:
    """The subgraphs of a file, the entry first. Raises `ModelImportError`."""
    if data[4:8] != IDENTIFIER:
        raise ModelImportError(f"{file} is no TensorFlow Lite model: it lacks the mark {IDENTIFIER.decode()}", node=file)
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
        what = error if isinstance(error, ValueError) else f"an offset, a length or a number in it makes no sense ({error})"
        raise ModelImportError(f"{file} is damaged: {what}", node=file) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        import tflite

        self.data = data
        self.walked = 0
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
        """A number of elements that are walked over, each of which takes a byte at least. Lists of a sound file do not overlap, but
        for those that equal ones share: what goes far beyond the file's size is an attack on our time and memory."""
        self.walked += length
        if length < 0 or self.walked > SHARED * len(self.data):
            raise ValueError(f"a list of {length} elements in {len(self.data)} bytes, {self.walked} in all")
        return length

    def _numbers(self, length: int, item: Any) -> tuple[int, ...]:
        return tuple(int(item(index)) for index in range(self._count(length)))

    def _graph(self, graph: Any) -> Graph:
        tensors = tuple(self._tensor(graph.Tensors(number)) for number in range(self._count(graph.TensorsLength())))
        found = Graph(
            tensors,
            self._numbers(graph.InputsLength(), graph.Inputs),
            self._numbers(graph.OutputsLength(), graph.Outputs),
            tuple(self._operation(graph.Operators(number)) for number in range(self._count(graph.OperatorsLength()))),
        )
        for number in (*found.inputs, *found.outputs, *(n for each in found.operations for n in each.outputs + each.intermediates)):
            if not 0 <= number < len(tensors):
                raise ValueError(f"there is no tensor {number}")
        if any(not -1 <= number < len(tensors) for each in found.operations for number in each.inputs):
            raise ValueError("an operator reads a tensor that there is not")
        return found

    def _operation(self, operator: Any) -> Operation:
        index = operator.OpcodeIndex()
        if not 0 <= index < self.model.OperatorCodesLength():
            raise ValueError(f"there is no operator code {index}")
        code = self.model.OperatorCodes(index)
        # Files from before the numbers grew past a byte have them in the older field.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = self.operators.get(number)
        if name is None:
            raise ModelImportError(f"there is no built-in operator {number}")
        if name == "CUSTOM":
            custom = (code.CustomCode() or b"?").decode("utf-8", "replace")
            raise ModelImportError(f"{custom} is a custom operator, which only its author's runtime knows", operator=custom)
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
        found = getattr(self.schema, self.options[kind])()
        found.Init(table.Bytes, table.Pos)
        return found

    def _tensor(self, tensor: Any) -> Tensor:
        label = tensor.Name() or b""
        name = label[: self._count(len(label))].decode("utf-8", "replace")
        shape = self._numbers(tensor.ShapeLength(), tensor.Shape)
        of = ELEMENTS.get(tensor.Type())
        if of is None:
            raise ModelImportError(f"tensor {name} has an element type that is not supported: number {tensor.Type()} of the schema")
        if len(shape) > MOST_AXES:
            raise ModelImportError(f"tensor {name} has {len(shape)} axes")
        if any(dim < 0 for dim in shape):
            raise ModelImportError(f"tensor {name} has a shape that is not known: {shape}")
        element = dtype(of)
        size = element.bytes
        for dim in shape:
            size *= dim
        if size > LARGEST:
            raise ValueError(f"tensor {name} of shape {shape} is too large")
        signature = self._numbers(tensor.ShapeSignatureLength(), tensor.ShapeSignature)
        return Tensor(
            name,
            shape,
            element,
            self._data(tensor, name, shape, element),
            self._quantisation(tensor, name, len(shape), element),
            tuple(axis for axis, dim in enumerate(signature) if dim < 0 and len(signature) == len(shape)),
            bool(tensor.HasRank()),
            bool(tensor.IsVariable()),
        )

    def _data(self, tensor: Any, name: str, shape: tuple[int, ...], element: DType) -> Array | None:
        index = tensor.Buffer()
        if not 0 <= index < self.model.BuffersLength():
            raise ValueError(f"tensor {name} is in buffer {index}, which there is not")
        raw = self._buffer(index) if index else None
        if raw is None:
            return None
        if tensor.Sparsity() is not None:
            raise ModelImportError(f"tensor {name} is stored sparsely, which is not supported: convert the model without sparsity")
        packed = element.bits < 8 and element.kind != "bool"
        count = math.prod(shape)
        if len(raw) != (-(-count // 2) if packed else count * element.bytes):
            raise ModelImportError(f"tensor {name} of {element} and shape {shape} has {len(raw)} bytes of data")
        if packed:
            self._count(count)
            return _unpacked(raw, shape).astype(element.numpy)
        if raw.ctypes.data % element.bytes:
            self._count(len(raw))  # it is copied: what lies over one another in the file may not
            raw = raw.copy()
        return raw.view(element.numpy).reshape(shape)

    def _buffer(self, index: int) -> Array | None:
        """The bytes of a buffer, where they lie in the file; None for no bytes. Large files have them behind everything else."""
        buffer = self.model.Buffers(index)
        offset, size = buffer.Offset(), buffer.Size()
        if offset > 1:
            if offset + size > len(self.data):
                raise ValueError(f"buffer {index} ends at byte {offset + size} of {len(self.data)}")
            return np.frombuffer(self.data, np.uint8, size, offset)
        length = buffer.DataLength()
        if not 0 <= length <= len(self.data):
            raise ValueError(f"a buffer of {length} bytes")
        return buffer.DataAsNumpy() if length else None

    def _quantisation(self, tensor: Any, name: str, rank: int, element: DType) -> Quantisation | None:
        found = tensor.Quantization()
        if found is None or not self._count(found.ScaleLength()):
            return None
        scale = np.array([found.Scale(index) for index in range(found.ScaleLength())], np.float32)
        points = [found.ZeroPoint(index) for index in range(self._count(found.ZeroPointLength()))] or [0] * len(scale)
        axis = found.QuantizedDimension()
        if len(points) != len(scale) or not np.all(np.isfinite(scale)) or np.any(scale < 0) or (rank and not 0 <= axis < rank):
            raise ValueError(f"the quantisation of tensor {name} makes no sense")
        if element.kind in ("int", "uint") and not all(element.limits[0] <= point <= element.limits[1] for point in points):
            raise ValueError(f"the zero point of tensor {name} is no {element}")
        return Quantisation(scale, np.array(points, np.int64), axis)


def _unpacked(raw: Array, shape: tuple[int, ...]) -> Array:
    """Signed integers of 4 bits, two to a byte, the first in its lower half."""
    halves = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[: math.prod(shape)].astype(np.int8)
    return np.where(halves > 7, halves - 16, halves).reshape(shape)
