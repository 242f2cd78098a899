"""What a converter of an ONNX operator sees, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inlaid import arith, ops
from inlaid.arith import Dim, SizeVar
from inlaid.errors import ModelImportError, Remedy
from inlaid.frontends.bind import Binder, integer
from inlaid.frontends.onnx.guess import Guesses
from inlaid.frontends.onnx.refusals import InvalidNode as InvalidNode
from inlaid.frontends.onnx.refusals import NeedsStatic as NeedsStatic
from inlaid.frontends.values import Sources
from inlaid.graph.ir import Expr, Function, Span
from inlaid.types import DType, TensorType, Type

if TYPE_CHECKING:
    import onnx


class Scope(Protocol):
    """Services of the importer to converters."""

    def static(self, expr: Expr) -> np.ndarray[Any, Any] | None:
        """The value of an expression that is known at import, else None (constants and what folds to them)."""

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        """The elements of a 0-d or 1-d integer tensor as dimensions, symbolic ones included, else None."""

    def elements(self, expr: Expr) -> tuple[Dim, ...] | None:
        """The elements of a 0-d or 1-d integer tensor as `Values.elements` has them."""

    def sources(self, expr: Expr) -> Sources | None:
        """What the value of an expression depends on, None where it cannot be known before the run (a loop computes it)."""

    @property
    def binder(self) -> Binder:
        """Makes dimensions of what a run computes."""

    def rank(self, name: str) -> int | None:
        """The rank that the graph declares for a value, None where it does not."""

    @property
    def guesses(self) -> Guesses:
        """Choices that are taken back where what follows does not fit."""

    @property
    def carried(self) -> dict[tuple[str, ...], tuple[Type, ...]]:
        """The types that the carried values of loops settled at, by the loop's outputs, for imports of the same loop to start from:
        the body of a loop is imported again with every widening of the loops around it."""

    def subgraph(self, graph: onnx.GraphProto, inputs: tuple[Type | Expr, ...]) -> Function:
        """A subgraph as a closure over the enclosing scope.

        For each of the graph's inputs, in order, `inputs` has the type of the parameter that it becomes, or the value that it is
        bound to. The function returns the tuple of the graph's outputs.
        """


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

    def require_static(self, index: int) -> np.ndarray[Any, Any]:
        """The value of a required input, which must be known at import. Raises `NeedsStatic` or `ModelImportError`."""
        value = self.scope.static(self.input(index))
        if value is None:
            raise self._unknown(index)
        return value

    def sizes(self, index: int, name: str) -> tuple[Dim, ...]:
        """The elements of a required integer input as dimensions. Those that data decides are bound at run time, as `name`. Raises
        `NeedsStatic` or `ModelImportError` for a tensor of unknown length, since it decides a rank."""
        return self._bound(index, self.scope.binder.sizes(self._integers(index), f"{self.name}: {name}", self.span))

    def signed(self, index: int, name: str) -> tuple[Dim, ...]:
        """As `sizes`, of elements that may be negative."""
        return self._bound(index, self.scope.binder.signed(self._integers(index), f"{self.name}: {name}", self.span))

    def size(self, scalar: Expr, name: str, check: Expr | None = None) -> Dim:
        """A 0-d int64 that a run computes as a dimension of its own, once the `check` of an assertion holds."""
        return self.scope.binder.computed(scalar, f"{self.name}: {name}", self.span, check=check)

    def assertion(self, condition: Expr, message: str) -> Expr:
        """The check that a 0-d bool that a run computes holds; else an error with the message."""
        return ops.assert_true(condition, message=f"{self.name}: {message}")

    def asserted(self, condition: Expr, message: str, value: Expr) -> Expr:
        """The value, once an `assertion` holds."""
        return ops.after(value, self.assertion(condition, message))

    def checked(self, message: str, holds: Dim, value: Expr, always: bool = False) -> Expr:
        """As `asserted`, of a condition on dimensions. One that is known to hold is not checked; others are where a run computes
        one of the dimensions, or `always`."""
        computed = any(isinstance(size, SizeVar) and size.existential for size in arith.free_vars(holds))
        if arith.prove(arith.wrap(holds)) or not (computed or always):
            return value
        return self.asserted(ops.cast(ops.reshape(ops.sizes(dims=(holds,)), shape=()), dtype="bool"), message, value)

    def _integers(self, index: int) -> Expr:
        self.dtype(index)
        return integer(self.input(index))

    def _bound(self, index: int, found: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
        if found is None:
            raise self._unknown(index)
        return found

    def entries(self, index: int) -> tuple[Dim, ...]:
        """The elements of a required integer input, as `Values.elements` has them. Raises as `sizes` does."""
        return self._bound(index, self.scope.elements(self.input(index)))

    def _unknown(self, index: int) -> ModelImportError:
        sources = self.scope.sources(self.input(index))
        if sources is None:
            return self.error(
                f"the value of input {index} must be known before the run, but a loop or a random operator computes it"
            )
        message = self._message(f"the value of input {index} must be known when the model is compiled")
        return NeedsStatic(message, sources, operator=self.name, node=str(self.span))

    @property
    def name(self) -> str:
        """The operator as messages call it: with its domain, where that is not the default one."""
        return f"{self.domain}:{self.op_type}" if self.domain else self.op_type

    def axis(self, value: int, rank: int) -> int:
        """A possibly negative axis, made positive. Raises `ModelImportError` when it is out of range."""
        if not -rank <= value < rank:
            raise self.error(f"axis {value} is out of range for rank {rank}")
        return value % rank

    def error(self, message: str, remedy: str | Remedy | None = None) -> ModelImportError:
        """An error that names this node, to be raised."""
        return ModelImportError(self._message(message), operator=self.name, node=str(self.span), remedy=remedy)

    def invalid(self, message: str, remedy: str | None = None) -> InvalidNode:
        """As `error`, of a node that cannot be imported whatever its inputs are."""
        return InvalidNode(self._message(message), operator=self.name, node=str(self.span), remedy=remedy)

    def _message(self, message: str) -> str:
        return f"cannot import {self.name} (opset {self.opset}): {message}"


Converter = Callable[[Node], "Expr | tuple[Expr | None, ...]"]
"""Gives the node's outputs, one expression each (None for an optional output that is not asked for)."""
