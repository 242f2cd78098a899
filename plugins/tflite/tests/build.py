"""TensorFlow Lite files of a few operators, and what LiteRT's own kernels make of them.

    data = single("ADD", [Tensor((2, 3), "int8", scale=0.5), Tensor((2, 3), "int8", scale=0.25)], Tensor((2, 3), "int8", scale=1.0))
    (wanted,) = litert(data, inputs)
    same(data, inputs)  # the importer's module, run by the reference, gives the same

`file` makes models of several operators and graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from inlaid.graph.interp import evaluate
from inlaid_runtime.types import dtype, from_numpy
from inlaid_tflite import load

Array = np.ndarray[Any, Any]
VERSIONS = {"BROADCAST_TO": 2}
"""Versions of operators that have no first one."""
Options = tuple[str, dict[str, Any]]
"""The table of options by its name in the schema ("Pool2DOptions"), and its fields by theirs ("strideW")."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph: a constant if it has `data`. With `sparsity`, a `SparsityParametersT` of the schema, the data are the
    stored values. `scale` and `zero_point` are numbers, or sequences along `axis`. `open` are the axes of dynamic sizes."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    data: Array | None = None
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    axis: int = 0
    name: str = ""
    variable: bool = False
    open: tuple[int, ...] = ()
    sparsity: Any = None


@dataclass(frozen=True)
class Op:
    """An operator between tensors by their numbers; -1 is an input that is left out. `intermediates` have the scales of what is
    worked out in between."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options | None = None
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A graph: its tensors, and the numbers of those that it takes and gives."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ops: tuple[Op, ...]


def single(name: str, inputs: Sequence[Tensor | None], outputs: Tensor | Sequence[Tensor], options: Options | None = None) -> bytes:
    """A file of one operator. Inputs with data are constants, the others are the model's, None is left out."""
    results = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    tensors = (*(each for each in inputs if each is not None), *results)
    numbers: list[int] = []
    for each in inputs:
        numbers.append(-1 if each is None else sum(number >= 0 for number in numbers))
    input_numbers = tuple(number for number, each in zip(numbers, inputs, strict=True) if each is not None and _is_input(each))
    last = tuple(range(len(tensors) - len(results), len(tensors)))
    return file(Graph(tensors, input_numbers, last, (Op(name, tuple(numbers), last, options),)))


def _is_input(tensor: Tensor) -> bool:
    return tensor.data is None and not tensor.variable


def file(*graphs: Graph) -> bytes:
    """The file of a model whose first graph is the entry."""
    schema = _schema()
    flatbuffers = pytest.importorskip("flatbuffers", reason='needs flatbuffers: pip install "inlaid[tflite]"')
    model = schema.ModelT(version=3, buffers=[schema.BufferT()], operatorCodes=[], subgraphs=[])
    codes: dict[str, int] = {}
    for number, graph in enumerate(graphs):
        record = schema.SubGraphT(inputs=list(graph.inputs), outputs=list(graph.outputs), name=f"graph{number}")
        record.tensors = [_tensor(schema, model, index, each) for index, each in enumerate(graph.tensors)]
        record.operators = [_operator(schema, model, codes, each) for each in graph.ops]
        model.subgraphs.append(record)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _schema() -> Any:
    return pytest.importorskip("ai_edge_litert.schema_py_generated", reason="needs LiteRT: pip install ai-edge-litert")


def _tensor(schema: Any, model: Any, index: int, tensor: Tensor) -> Any:
    record = schema.TensorT(shape=list(tensor.shape), name=tensor.name or f"t{index}", isVariable=tensor.variable)
    record.type = getattr(schema.TensorType, tensor.dtype.upper())
    record.hasRank = True
    if tensor.open:
        record.shapeSignature = [-1 if axis in tensor.open else dim for axis, dim in enumerate(tensor.shape)]
    if tensor.scale is not None:
        scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
        points = np.broadcast_to(np.asarray(tensor.zero_point, np.int64), scales.shape)
        record.quantization = schema.QuantizationParametersT(
            scale=list(map(float, scales)), zeroPoint=list(map(int, points)), quantizedDimension=tensor.axis
        )
    if tensor.data is not None:
        data = np.asarray(tensor.data, order="C")
        assert data.shape == tensor.shape or tensor.sparsity is not None, (data.shape, tensor.shape)
        record.sparsity = tensor.sparsity
        record.buffer = len(model.buffers)
        model.buffers.append(schema.BufferT(data=np.frombuffer(_packed(data, tensor.dtype), np.uint8)))
    return record


def _packed(data: Array, dtype_name: str) -> bytes:
    """The bytes of a constant; two elements share a byte where they have four bits, the first in its lower half."""
    if dtype_name != "int4":
        return data.tobytes() if dtype_name == "complex64" else data.astype(dtype(dtype_name).numpy).tobytes()
    nibbles = data.reshape(-1).astype(np.uint8) & 15
    nibbles = np.append(nibbles, np.zeros(len(nibbles) % 2, np.uint8))
    packed: bytes = (nibbles[::2] | (nibbles[1::2] << 4)).astype(np.uint8).tobytes()
    return packed


def _operator(schema: Any, model: Any, codes: dict[str, int], op: Op) -> Any:
    if op.name not in codes:
        codes[op.name] = len(codes)
        number = getattr(schema.BuiltinOperator, op.name)
        model.operatorCodes.append(
            schema.OperatorCodeT(deprecatedBuiltinCode=min(number, 127), builtinCode=number, version=VERSIONS.get(op.name, 1))
        )
    record = schema.OperatorT(opcodeIndex=codes[op.name], inputs=list(op.inputs), outputs=list(op.outputs))
    record.intermediates = list(op.intermediates) or None
    if op.options is not None:
        kind, fields = op.options
        record.builtinOptions = getattr(schema, f"{kind}T")()
        for field, value in fields.items():
            assert hasattr(record.builtinOptions, field), f"{kind} has no field {field}"
            setattr(record.builtinOptions, field, value)
        record.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
    return record


def litert(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of LiteRT's own kernels, without delegates. Raises RuntimeError for what LiteRT does not run."""
    (outputs,) = litert_runs(data, [inputs])
    return outputs


def litert_runs(data: bytes, runs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """As `litert`, of several runs one after the other: memory is kept."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT: pip install ai-edge-litert")
    resolver = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    run = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=resolver, num_threads=1)
    run.allocate_tensors()
    outputs = []
    for inputs in runs:
        for detail, value in zip(run.get_input_details(), inputs, strict=True):
            run.set_tensor(detail["index"], value)
        run.invoke()
        outputs.append([run.get_tensor(detail["index"]) for detail in run.get_output_details()])
    return outputs


def drawn(dtype_name: str, shape: tuple[int, ...], generator: np.random.Generator, scale: float = 3.0) -> Array:
    """Values of an element type: all integers of up to 16 bits alike, the extremes among them; wider ones small; floats normal."""
    element = dtype(dtype_name)
    if element.is_float:
        return (generator.normal(size=shape) * scale).astype(element.numpy)
    if element.kind == "bool":
        return np.asarray(generator.integers(0, 2, shape).astype(np.bool_))
    least, greatest = map(int, element.limits) if element.bits <= 16 else (0 if element.kind == "uint" else -1000, 1000)
    values = np.asarray(generator.integers(least, greatest, shape, endpoint=True)).astype(element.numpy)
    flat = values.reshape(-1)
    if flat.size > 3:
        flat[:2] = least, greatest
    return values


def check_litert(data: bytes, inputs: Sequence[Array], relative: float | None = None, steps: int = 0) -> list[Array]:
    """What the importer's module gives, once it is seen to be what LiteRT gives.

    Integers are equal, or `steps` apart at most; floats within `relative` (1e-5 unless told) of the greatest of them.
    """
    references = litert(data, inputs)
    module = load(data)
    outputs: Any = evaluate(module, {param.name: value for param, value in zip(module.main.params, inputs, strict=True)})
    results = [np.asarray(each) for each in (outputs if isinstance(outputs, tuple) else (outputs,))]
    for actual, reference in zip(results, references, strict=True):
        agree(actual, reference, relative, steps)
    return results


def agree(actual: Array, expected: Array, relative: float | None = None, steps: int = 0) -> None:
    """Whether two results are alike: see `check_litert`."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype, (
        f"{actual.dtype}{actual.shape} is not {expected.dtype}{expected.shape}"
    )
    if from_numpy(actual.dtype).is_float:
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
        finite = expected[np.isfinite(expected)]
        allowed = (relative or 1e-5) * float(np.abs(finite).max(initial=0)) + 1e-6
        np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed)
    elif steps:
        assert np.abs(actual.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= steps
    else:
        np.testing.assert_array_equal(actual, expected)
