"""Runtime of the reference target: runs graphs in the reference interpreter.

Unlike the runtimes of other targets, it imports the graph packages, since the operators' definitions are its instruction set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.interp import Interpreter
from inlaid.graph.ir import Function, existential
from inlaid.graph.parse import parse
from inlaid.reference.codegen import FORMAT, FORMAT_VERSION, flat_types, tensor_spec
from inlaid.reference.straight_line import straight_line
from inlaid_runtime import arith
from inlaid_runtime.artifact import Artifact, TensorSpec
from inlaid_runtime.errors import InlaidError, PackageError
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.plugins import Loaded
from inlaid_runtime.types import FunctionType, TupleType, Type

_MAX_TYPES = 64
"""Number of sets of types of inputs that a region has checked and remembers."""


class ReferenceRuntime(HostRuntime):
    """Loads graphs."""

    def __init__(self) -> None:
        super().__init__(FORMAT, FORMAT_VERSION)

    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Parse the region's graph. Raises `PackageError` for an invalid graph."""
        try:
            module = parse(artifact.code.decode(), ops.TABLE, constants)
            function = module[artifact.symbol]
        except (InlaidError, UnicodeDecodeError, KeyError, RecursionError) as error:
            raise PackageError(f"region {artifact.symbol} is not a valid graph: {error}") from error
        assert isinstance(function.type, FunctionType)
        operand_types = [part for param in function.params for part in flat_types(param.type)]
        types_and_specs = (
            (operand_types, artifact.signature.inputs),
            (flat_types(function.type.result), artifact.signature.outputs),
        )
        for types, specs in types_and_specs:
            actual = [tensor_spec("", type_) for type_ in types]
            if len(actual) != len(specs) or not all(map(_types_match, actual, specs)):
                raise PackageError(f"region {artifact.symbol} does not have the inputs and outputs of its signature")
        return Loaded(allocating=GraphKernel(Interpreter(module), function))


def _types_match(one: TensorSpec, other: TensorSpec) -> bool:
    """Test whether two tensors have the same type. Existential sizes have other names in a parsed graph, so they match any size."""
    if one.dtype is not other.dtype or len(one.shape) != len(other.shape):
        return False
    pairs = zip(one.shape, other.shape, strict=True)
    return all(a == b or any(map(existential, arith.free_vars(a) | arith.free_vars(b))) for a, b in pairs)


class GraphKernel:
    """A graph as a kernel that allocates its outputs. The interpreter runs it for inputs of types that it has not had yet, and
    checks them; later runs are straight-line programs where that is possible."""

    def __init__(self, interpreter: Interpreter, function: Function) -> None:
        self._interpreter = interpreter
        self._function = function
        self._program = straight_line(function)
        self._checked: set[tuple[object, ...]] = set()

    def call(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Evaluate the function. Returns its results with tuples flattened."""
        actual_types: tuple[object, ...] = ()
        if self._program is not None:
            actual_types = tuple([(value.shape, value.dtype) for value in inputs if type(value) is np.ndarray])
            if actual_types in self._checked:
                with suppress(Exception):  # the interpreter raises the error that tells what is wrong
                    return self._program(*inputs)
        rest = iter(inputs)
        arguments = [_pack(param.type, rest) for param in self._function.params]
        results = _unpack(self._function.body.type, self._interpreter.run(self._function, arguments))
        if len(actual_types) == len(inputs):
            if len(self._checked) >= _MAX_TYPES:
                self._checked.clear()
            self._checked.add(actual_types)
        return results


def _pack(type_: Type, values: Iterator[Any]) -> Any:
    """Take the next values as one value of the given type."""
    return tuple(_pack(item, values) for item in type_.fields) if isinstance(type_, TupleType) else next(values)


def _unpack(type_: Type, value: Any) -> list[Any]:
    """Flatten nested tuples."""
    if isinstance(type_, TupleType):
        return [part for item, field in zip(type_.fields, value, strict=True) for part in _unpack(item, field)]
    return [value]
