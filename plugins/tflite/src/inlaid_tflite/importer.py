"""Conversion of a TensorFlow Lite model to a graph module."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from inlaid.frontends.dims import DimSpec, identifier
from inlaid.frontends.finish import Finisher
from inlaid.frontends.limits import MAX_DEPTH, NestedTooDeep, node_limit
from inlaid.frontends.relations import Constraints, Relations
from inlaid.frontends.values import Values
from inlaid.graph.ir import Expr, Function, Module, Span, Var, constant, function, tuple_, var
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import InlaidError, ModelImportError
from inlaid_runtime.types import TensorType, from_numpy
from inlaid_tflite.convert.spectrum import by_parts
from inlaid_tflite.model import COMPLEX, Array, Graph, Operation, Tensor, read_model
from inlaid_tflite.node import Converter, Node, Typed, Updated


def import_model(data: bytes, file: str, converters: Mapping[str, Converter], dims: Mapping[str, DimSpec]) -> Module:
    """Convert a model to a module whose `main` takes its inputs by name. Raises `ModelImportError`."""
    return _imported(data, file, converters, dims).module


def first_states(data: bytes, file: str, converters: Mapping[str, Converter]) -> dict[str, Array]:
    """Return the initial states of a model. Raises `ModelImportError`."""
    return {name: np.array(value) for name, value in _imported(data, file, converters, {}).first.items()}


def _imported(data: bytes, file: str, converters: Mapping[str, Converter], dims: Mapping[str, DimSpec]) -> Importer:
    graphs = read_model(data, file)
    mutable: set[str] = set()
    while True:
        try:
            return Importer(graphs, file, converters, dims, mutable)
        except _AssignedAfterAll as error:
            mutable.add(error.name)


class _AssignedAfterAll(Exception):
    """Raised if a variable that was treated as a constant is assigned later."""

    def __init__(self, name: str) -> None:
        self.name = name


class Importer:
    """The import of one model. Implements `node.Scope` for converters.

    The model's *states*, which it keeps between runs, are parameters of `main` after the inputs and results after the outputs.
    `first` has their initial values. `mutable` are the names of the variables that are known to be states.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        file: str,
        converters: Mapping[str, Converter],
        dims: Mapping[str, DimSpec],
        mutable: set[str],
    ) -> None:
        self.file = file
        self.first: dict[str, Array] = {}
        self._graphs = graphs
        self._converters = converters
        self._dims = dims
        self._mutable = mutable
        self._values = Values()
        self._finisher = Finisher(self._values)
        self._relations = Relations()
        self._params: dict[str, Var] = {}
        self._handles: list[str] = []
        self._initial: dict[str, Array] = {}
        self._current: dict[str, Expr] = {}
        self._state_params: dict[str, str] = {}
        self._depth = self._guarded = self._count = 0
        self._initializing = False
        self._limit = node_limit(sum(len(graph.operations) for graph in graphs))
        self.module = Module({"main": self._main(graphs[0])})

    def _main(self, graph: Graph) -> Function:
        sizes: dict[str, Dim] = {}
        names = _distinct([graph.tensors[number].name for number in graph.inputs])
        inputs = []
        for number, name in zip(graph.inputs, names, strict=True):
            tensor = graph.tensors[number]
            self._check_real(tensor, "input")
            inputs.append(var(name, TensorType(self._shape(name, tensor, sizes), tensor.dtype)))
            self._params[name] = inputs[-1]
            self._values.add_input(inputs[-1])
        for name in self._dims:
            if name not in sizes:
                size_names = ", ".join(sizes) or "none"
                raise ModelImportError(
                    f"{self.file}: the model has no dynamic size {name!r}", remedy=f"its dynamic sizes are: {size_names}"
                )
        results, constraints = self._scope(lambda: (*self._run(0, inputs), *(self._current[key] for key in self._state_params)))
        for number in graph.outputs:
            self._check_real(graph.tensors[number], "output")
        names = [graph.tensors[number].name for number in graph.outputs]
        state_names = list(self._state_params.values())
        attrs = [("outputs", json.dumps(_distinct([*names, *state_names])))]
        params = [*inputs, *(self._params[name] for name in state_names)]
        body = results[0] if len(results) == 1 else tuple_(results)
        return function(params, body, tuple(attrs), constraints=constraints)

    def _check_real(self, tensor: Tensor, side: str) -> None:
        if tensor.is_complex:
            raise ModelImportError(
                f"{self.file}: the {side} {tensor.name} of the model is {COMPLEX}, which only values inside of it may be",
                remedy=f"make the real and the imaginary part two {side}s",
            )

    def _shape(self, name: str, tensor: Tensor, sizes: dict[str, Dim]) -> tuple[Dim, ...]:
        """Return the shape of an input. A dynamic size has the value in the file unless the caller sets it."""
        shape: list[Dim] = list(tensor.shape)
        for axis in tensor.open:
            label = f"{identifier(name)}_{axis}"
            spec = self._dims.get(label, shape[axis])
            shape[axis] = sizes[label] = SizeVar(label, *spec) if isinstance(spec, tuple) else spec
        return tuple(shape)

    def _scope(self, build: Callable[[], tuple[Expr, ...]]) -> tuple[tuple[Expr, ...], Constraints]:
        """Return the results of a function or branch, which `build` makes, and its constraints."""
        with self._relations.scope():
            results = build()
            return results, self._relations.collect(results)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def _run(self, number: int, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        """Convert a graph applied to its inputs. Returns the outputs."""
        if not 0 <= number < len(self._graphs):
            raise ValueError(f"unknown graph {number}")
        if self._depth > MAX_DEPTH:
            raise NestedTooDeep
        graph = self._graphs[number]
        if len(arguments) != len(graph.inputs):
            raise ValueError(f"graph {number} must have {len(graph.inputs)} inputs, got {len(arguments)}")
        self._depth += 1
        values = dict(zip(graph.inputs, arguments, strict=True))
        for index, operation in enumerate(graph.operations):
            self._operation(graph, values, index, operation)
        self._depth -= 1
        return tuple(self._value(graph, values, each, Span(self.file, f"output {each}")) for each in graph.outputs)

    def _value(self, graph: Graph, values: dict[int, Expr], index: int, span: Span) -> Expr:
        """Return the value of a tensor that the operator at `span` reads."""
        if index not in values:
            tensor = graph.tensors[index]
            shape = (*tensor.shape, 2) if tensor.is_complex else tensor.shape
            data = np.empty(shape, tensor.dtype.numpy) if 0 in shape else tensor.data
            if data is None:
                raise ModelImportError(f"no previous operator computes its input {tensor.name}", node=str(span))
            values[index] = constant(data)
        return values[index]

    def _operation(self, graph: Graph, values: dict[int, Expr], index: int, operation: Operation) -> None:
        self._count += 1
        results = tuple(graph.tensors[output] for output in operation.outputs)
        span = Span(self.file, results[0].name if results and results[0].name else f"{operation.name}{index}")
        if self._count > self._limit:
            raise ModelImportError(f"the called graphs must have at most {self._limit} operators", node=str(span))
        for input_number in operation.inputs:
            tensor = graph.tensors[input_number] if input_number >= 0 else None
            if tensor is not None and input_number not in values and tensor.data is None and tensor.variable:
                if self._depth > 1:
                    raise ModelImportError(f"{tensor.name} is a state of a called graph, which is not supported", node=str(span))
                self._check_real(tensor, "state")
                values[input_number] = self._state(f"tensor {input_number}", tensor.name, _zeros(tensor))
        inputs = tuple(
            self._value(graph, values, input_number, span) if input_number >= 0 else None for input_number in operation.inputs
        )
        tensors = tuple(
            None if value is None else graph.tensors[input_number].with_type(value.type)
            for input_number, value in zip(operation.inputs, inputs, strict=True)
        )
        if self._dims:
            results = tuple(each.left_open() for each in results)
        scale_tensors = tuple(graph.tensors[number] for number in operation.intermediates)
        node = Node(operation.name, operation.options, inputs, tensors, results, span, self, scale_tensors)
        updated = self._convert(node)
        outputs = []
        for output, tensor, value in zip(operation.outputs, results, updated.outputs, strict=True):
            outputs.append(self._finished(value, span))
            values[output] = outputs[-1]
            if not tensor.fits(value.type):
                raise node.error(f"its result must be {tensor.dtype}{tensor.shape} as declared, got {value.type!r}")
        for position, value in updated.variables.items():
            number = operation.inputs[position]
            outputs.append(self._finished(value, span))
            values[number] = self._current[f"tensor {number}"] = outputs[-1]
        self._relations.add(outputs, node.stated)

    def _convert(self, node: Node) -> Updated:
        converter = self._converters.get(node.name)
        if converter is None:
            raise node.error(f"{node.name} is not supported: docs/tflite.md lists the supported operators and replacements")
        try:
            with np.errstate(all="ignore"):  # scales may be invalid
                result = by_parts(converter, node) if node.is_complex and not isinstance(converter, Typed) else converter(node)
        except ModelImportError:
            raise
        except (InlaidError, ValueError, ArithmeticError, MemoryError) as error:
            raise node.error(f"invalid inputs or options: {error}") from error
        except (TypeError, LookupError, AttributeError, AssertionError, RuntimeError, struct.error) as error:
            input_types = ", ".join("none" if value is None else repr(value.type) for value in node.values) or "none"
            lacking = ", and it has no options" * (node.options is None)
            raise node.error(f"invalid inputs or options: the inputs are {input_types}{lacking} ({error})") from error
        if not isinstance(result, Updated):
            result = Updated(result if isinstance(result, tuple) else (result,))
        if len(result.outputs) != len(node.results):
            raise node.error(f"expected {len(node.results)} outputs as declared, got {len(result.outputs)}")
        return result

    def _finished(self, result: Expr, span: Span) -> Expr:
        """Finish a converter's result. A result whose size depends only on data known at import is replaced by its value."""
        result = self._finisher.finish(result, span)
        if isinstance(result.type, TensorType) and not result.type.is_static:
            value = self._values.static(result)
            if value is not None:
                return constant(value, span=span)
        return result

    # --- states -------------------------------------------------------------------------------------------------------

    def _state(self, key: str, name: str, first: Array) -> Expr:
        """Return the value of a state at the start of a run."""
        unique_name = name
        while unique_name in self._params:
            unique_name += "_"
        self._params[unique_name] = var(unique_name, TensorType(first.shape, from_numpy(first.dtype)))
        self._state_params[key] = unique_name
        self.first[unique_name] = first
        self._current[key] = self._params[unique_name]
        return self._params[unique_name]

    # --- services to converters ---------------------------------------------------------------------------------------

    def static(self, expr: Expr) -> Array | None:
        return self._values.static(expr)

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        return self._values.dims(expr)

    def call(self, graph: int, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        return self._run(graph, arguments)

    def guarded(self, build: Callable[[], tuple[Expr, ...]]) -> tuple[tuple[Expr, ...], Constraints]:
        self._guarded += 1
        results = self._scope(build)
        self._guarded -= 1
        return results

    def initialize(self, graph: int) -> None:
        self._initializing = True
        self._run(graph, ())
        self._initializing = False

    def handle(self, name: str) -> Array:
        if name not in self._handles:
            self._handles.append(name)
        return np.array(self._handles.index(name), np.int32)

    def read(self, handle: int) -> Expr:
        name = self._handles[handle]
        if name not in self._current:
            if name not in self._initial:
                raise ValueError(f"variable {name} is read before it is assigned")
            first = self._initial[name]
            self._current[name] = self._state(name, name, first) if name in self._mutable else constant(first)
        return self._current[name]

    def assign(self, handle: int, value: Expr) -> None:
        name = self._handles[handle]
        if self._initializing:
            static_value = self.static(value)
            if static_value is None:
                raise ValueError(f"the initial value of variable {name} must be static")
            self._initial[name] = static_value
            return
        if self._guarded:
            raise ValueError(f"variable {name} is assigned in a branch or loop, which is not supported")
        if name in self._current and name not in self._mutable and name in self._initial:
            raise _AssignedAfterAll(name)
        self._current[name] = value


def _zeros(tensor: Tensor) -> Array:
    """Return the initial value of a state: quantized zeros. The array is a broadcast of one element."""
    quantization = tensor.quantization
    zero = int(quantization.zero_point[0]) if quantization is not None and tensor.dtype.name == "int8" else 0
    return np.broadcast_to(np.array(zero, tensor.dtype.numpy), tensor.shape)


def _distinct(names: Sequence[str]) -> list[str]:
    """Make names unique by appending a number to duplicates."""
    name_set = set(names)
    counts: dict[str, int] = {}
    unique_names = []
    for name in names:
        number = counts[name] = counts.get(name, 0) + 1
        candidate = name
        while number > 1 and candidate in name_set:
            candidate, number = f"{name}_{number}", number + 1
        name_set.add(candidate)
        unique_names.append(candidate)
    return unique_names
