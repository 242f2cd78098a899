"""The interface of converters of ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inlaid import ops
from inlaid.frontends.bind import Binder, integer
from inlaid.frontends.relations import stating
from inlaid.frontends.values import Sources
from inlaid.graph.ir import Expr, Function, Span, Tuple
from inlaid_onnx.guess import Guesses
from inlaid_onnx.refusals import InvalidNode as InvalidNode
from inlaid_onnx.refusals import NeedsStatic as NeedsStatic
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.errors import ModelImportError, Remedy
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type

if TYPE_CHECKING:
    import onnx


class Scope(Protocol):
    """The importer's interface to converters."""

    def static(self, expr: Expr) -> np.ndarray[Any, Any] | None:
        """Return the value of an expression if it is known at import (by constant folding), else None."""

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        """Return the elements of a 0-d or 1-d integer tensor as dimensions, which may be symbolic, else None."""

    def elements(self, expr: Expr) -> tuple[Dim, ...] | None:
        """Return the elements of a 0-d or 1-d integer tensor as `Values.elements` does."""

    def sources(self, expr: Expr) -> Sources | None:
        """Return the inputs and dimensions that determine a value; None if only the run can determine it, as in a loop."""

    @property
    def binder(self) -> Binder:
        """The binder of data-dependent sizes to dimensions."""

    def rank(self, name: str) -> int | None:
        """Return the rank that the graph declares for a value, or None."""

    @property
    def guesses(self) -> Guesses:
        """Choices that are reversed if the rest of the model contradicts them."""

    @property
    def carried(self) -> dict[tuple[str, ...], tuple[Type, ...]]:
        """Final types of the carried values of loops, keyed by the loop's outputs. A loop is imported again whenever an enclosing
        loop's types are widened; the import then starts from these types."""

    @property
    def stated(self) -> list[Constraint]:
        """The relations between sizes that the node requires, and that none of the operators it is converted to states."""

    def subgraph(self, graph: onnx.GraphProto, inputs: tuple[Type | Expr, ...]) -> Function:
        """Convert a subgraph to a closure over the enclosing scope.

        `inputs` has one entry per input of the graph, in order: the type of a parameter, or the value that replaces it. The
        function returns the tuple of the graph's outputs.
        """


@dataclass(frozen=True)
class Node:
    """A decoded node of an ONNX graph.

    `inputs` has None for an omitted input. `opset` is the imported version of the node's domain. `attrs` has Python values: int,
    float, str, lists of them, numpy arrays for tensors, GraphProto for graphs. `outputs` are the names of the outputs, "" for an
    unused one.
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
        """Return a required input. Raises `ModelImportError` if it is omitted."""
        expr = self.optional(index)
        if expr is None:
            raise self.error(f"input {index} is missing")
        return expr

    def optional(self, index: int) -> Expr | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def real(self, name: str, default: float) -> float:
        """Return a float attribute. ONNX holds it and its default in float32, whatever the dtype of the tensors."""
        return as_float32(self.attrs.get(name, default))

    def tensor(self, index: int) -> TensorType:
        """Return the type of a required tensor input. Raises `ModelImportError`."""
        type_ = self.input(index).type
        if not isinstance(type_, TensorType):
            raise self.error(f"input {index} must be a tensor, got {type_!r}")
        return type_

    def rank(self, index: int) -> int:
        """Return the rank of a required tensor input."""
        return self.tensor(index).rank

    def dtype(self, index: int) -> DType:
        """Return the dtype of a required tensor input."""
        return self.tensor(index).dtype

    def static(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return the value of an input; None if it is not known at import or omitted."""
        expr = self.optional(index)
        return None if expr is None else self.scope.static(expr)

    def dims(self, index: int) -> tuple[Dim, ...] | None:
        """Return the elements of an integer input as dimensions; None if they are not known at import or omitted."""
        expr = self.optional(index)
        return None if expr is None else self.scope.dims(expr)

    def require_static(self, index: int) -> np.ndarray[Any, Any]:
        """Return the value of a required input that must be known at import. Raises `NeedsStatic` or `ModelImportError`."""
        value = self.scope.static(self.input(index))
        if value is None:
            raise self._unknown(index)
        return value

    def sizes(self, index: int, name: str) -> tuple[Dim, ...]:
        """Return the elements of a required integer input as dimensions. The run binds data-dependent elements; errors call the
        input `name`. Raises `NeedsStatic` or `ModelImportError` for a tensor of unknown length, which determines a rank."""
        return self._bound(index, self.scope.binder.sizes(self._integers(index), f"{self.name}: {name}", self.span))

    def signed(self, index: int, name: str) -> tuple[Dim, ...]:
        """Like `sizes`, for elements that may be negative."""
        return self._bound(index, self.scope.binder.signed(self._integers(index), f"{self.name}: {name}", self.span))

    def size(self, scalar: Expr, name: str, check: Expr | None = None) -> Dim:
        """Bind a data-dependent 0-d int64 to a new dimension, after the assertion `check` has passed."""
        return self.scope.binder.computed(scalar, f"{self.name}: {name}", self.span, check=check)

    def assertion(self, condition: Expr, message: str) -> Expr:
        """Build a run-time check of a 0-d bool. If it is false, the run fails with the message."""
        return ops.assert_true(condition, message=f"{self.name}: {message}")

    def asserted(self, condition: Expr, message: str, value: Expr) -> Expr:
        """Return the value, evaluated after an `assertion`."""
        return ops.after(value, self.assertion(condition, message))

    @contextmanager
    def relations(self) -> Iterator[None]:
        """State relations between sizes that the node requires, and that no operator of its conversion states (see
        `frontends.relations`). Raises `ModelImportError` for a relation that static sizes violate."""
        try:
            with stating(self.scope.stated, self.name, str(self.span)):
                yield
        except ValueError as error:
            raise self.error(str(error)) from error

    def inlined(self, graph: onnx.GraphProto, inputs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Convert a subgraph that always runs. Returns its outputs. Its relations become those of the node."""
        subgraph = self.scope.subgraph(graph, inputs)
        assert isinstance(subgraph.body, Tuple)
        self.scope.stated.extend(subgraph.constraints)
        return subgraph.body.fields

    def _integers(self, index: int) -> Expr:
        self.dtype(index)
        return integer(self.input(index))

    def _bound(self, index: int, dims: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
        if dims is None:
            raise self._unknown(index)
        return dims

    def entries(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of a required integer input as `Values.elements` does. Raises the errors of `sizes`."""
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
        """Name of the operator in messages, with its domain unless it is the default domain."""
        return f"{self.domain}:{self.op_type}" if self.domain else self.op_type

    def axis(self, value: int, rank: int) -> int:
        """Resolve an axis that may be negative. Raises `ModelImportError` if it is out of range."""
        if not -rank <= value < rank:
            raise self.error(f"axis must be >= -{rank} and < {rank}, got {value}")
        return value % rank

    def error(self, message: str, remedy: str | Remedy | None = None) -> ModelImportError:
        """Return an error that names this node."""
        return ModelImportError(self._message(message), operator=self.name, node=str(self.span), remedy=remedy)

    def invalid(self, message: str, remedy: str | None = None) -> InvalidNode:
        """Like `error`, for a node that is invalid regardless of its inputs."""
        return InvalidNode(self._message(message), operator=self.name, node=str(self.span), remedy=remedy)

    def _message(self, message: str) -> str:
        return f"cannot import {self.name} (opset {self.opset}): {message}"


def as_float32(value: float) -> float:
    """Round a number to float32."""
    return float(np.float32(value))


Converter = Callable[[Node], "Expr | tuple[Expr | None, ...]"]
"""Converts a node to its outputs, one expression each (None for an unused optional output)."""
