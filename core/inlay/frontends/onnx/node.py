"""What a converter of an ONNX operator sees, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inlay.arith import Dim
from inlay.errors import ModelImportError
from inlay.graph.ir import Expr, Function, Span
from inlay.types import DType, TensorType

if TYPE_CHECKING:
    import onnx


class Scope(Protocol):
    """Services of the importer to converters."""

    def static(self, expr: Expr) -> np.ndarray[Any, Any] | None:
        """The value of an expression that is known at import, else None (constants and what folds to them)."""

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        """The elements of a 0-d or 1-d integer tensor as dimensions, symbolic ones included, else None."""

    def subgraph(self, graph: onnx.GraphProto, params: tuple[tuple[str, TensorType], ...]) -> Function:
        """A subgraph as a closure over the enclosing scope: a function of its graph inputs, returning the tuple of its outputs."""


@dataclass(frozen=True)
class Node:
    """One node of an ONNX graph, decoded.

    `inputs` has None for an input left out; `opset` is the version of the node's domain that the model imports; `attrs` holds
    Python values: ints, floats, strings (str), lists of them, numpy arrays for tensors, GraphProto for graphs; `outputs` are the
    names of the outputs, "" for one not asked for.
    """

    op_type: str
    domain: str
    opset: int
    inputs: tuple[Expr | None, ...]
    attrs: dict[str, Any]
    outputs: tuple[str, ...]
    span: Span
    scope: Scope

    def input(self, index: int) -> Expr:
        """A required input. Raises `ModelImportError` when it is left out."""
        found = self.optional(index)
        if found is None:
            raise self.error(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Expr | None:
        """An input, None when it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def tensor(self, index: int) -> TensorType:
        """The type of a required input that must be a tensor."""
        type_ = self.input(index).type
        if not isinstance(type_, TensorType):
            raise self.error(f"input {index} must be a tensor, not {type_!r}")
        return type_

    def rank(self, index: int) -> int:
        """The rank of a required tensor input."""
        return self.tensor(index).rank

    def dtype(self, index: int) -> DType:
        """The element type of a required tensor input."""
        return self.tensor(index).dtype

    def static(self, index: int) -> np.ndarray[Any, Any] | None:
        """The value of an input when it is known at import; None when it is not, or is left out."""
        found = self.optional(index)
        return None if found is None else self.scope.static(found)

    def dims(self, index: int) -> tuple[Dim, ...] | None:
        """The elements of an integer input as dimensions when they are known (symbolically); None else, or when left out."""
        found = self.optional(index)
        return None if found is None else self.scope.dims(found)

    def axis(self, value: int, rank: int) -> int:
        """A possibly negative axis, made positive. Raises `ModelImportError` when it is out of range."""
        if not -rank <= value < rank:
            raise self.error(f"axis {value} is out of range for rank {rank}")
        return value % rank

    def error(self, message: str) -> ModelImportError:
        """An error that names this node, to be raised."""
        name = f"{self.domain}:{self.op_type}" if self.domain else self.op_type
        return ModelImportError(f"cannot import {name} (opset {self.opset}): {message}", operator=name, node=str(self.span))


Converter = Callable[[Node], "Expr | tuple[Expr | None, ...]"]
"""Gives the node's outputs, one expression each (None for an optional output that is not asked for)."""
