"""What a converter of a TensorFlow Lite operator sees, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, SupportsFloat

import numpy as np

from inlaid import ops
from inlaid.arith import Dim
from inlaid.errors import ModelImportError
from inlaid.frontends.tflite.model import Quantisation, Tensor
from inlaid.graph.ir import Expr, Span, constant
from inlaid.ops.fixed_point import scaled
from inlaid.types import TensorType

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Fused activations, by their numbers in the schema."""
BOUNDS = {"RELU": (0.0, np.inf), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)}


class Scope(Protocol):
    """Services of the importer to converters. Raises ValueError for what cannot be done."""

    def static(self, expr: Expr) -> np.ndarray[Any, Any] | None:
        """The value of an expression that is known at import, else None (constants and what folds to them)."""

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        """The elements of a 0-d or 1-d integer tensor as dimensions, symbolic ones included, else None."""

    def call(self, graph: int, given: Sequence[Expr], guarded: bool) -> tuple[Expr, ...]:
        """The outputs of another graph of the model for its inputs. `guarded`: it runs under a condition, or more than once."""

    def initialise(self, graph: int) -> None:
        """Take what a graph assigns to variables for their first values."""

    def handle(self, name: str) -> np.ndarray[Any, Any]:
        """The number of a variable, 0-d int32."""

    def read(self, handle: int) -> Expr:
        """The value of a variable."""

    def assign(self, handle: int, value: Expr) -> None:
        """Give a variable its value from here on."""


@dataclass(frozen=True)
class Node:
    """One operator of a graph. `values` and `tensors` are of its inputs, None for one left out; `results` are the tensors of its
    outputs, `intermediates` those that have the scales of what is worked out in between."""

    name: str
    options: Any
    values: tuple[Expr | None, ...]
    tensors: tuple[Tensor | None, ...]
    results: tuple[Tensor, ...]
    span: Span
    scope: Scope
    intermediates: tuple[Tensor, ...] = ()

    def input(self, index: int) -> Expr:
        """A required input. Raises `ModelImportError` where it is left out."""
        found = self.values[index] if index < len(self.values) else None
        if found is None:
            raise self.error(f"input {index} is missing")
        return found

    def has(self, index: int) -> bool:
        """Whether there is such an input."""
        return index < len(self.values) and self.values[index] is not None

    def tensor(self, index: int) -> Tensor:
        """The tensor of a required input."""
        self.input(index)
        found = self.tensors[index]
        assert found is not None
        return found

    def array(self, index: int) -> np.ndarray[Any, Any]:
        """The value of an input that must be known at import. Raises `ModelImportError`."""
        found = self.scope.static(self.input(index))
        if found is None:
            raise self.error(f"input {index} is computed by the model, and has to be a constant")
        return found

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The elements of an input of integers, row by row, as dimensions, symbolic where sizes are. Raises `ModelImportError`
        where a run alone can tell them."""
        value = self.input(index)
        flat = ops.reshape(value, shape=(tensor_type(value).size,)) if tensor_type(value).rank > 1 else value
        found = self.scope.dims(flat)
        if found is None:
            raise self.error(f"the value of input {index} decides a shape, and is known only as the model runs")
        return found

    def option(self, name: str, otherwise: Any = 0) -> Any:
        """A field of the options; where the file has no table of them, what the schema gives a field that is left out."""
        return otherwise if self.options is None else getattr(self.options, name)()

    def shape(self, index: int) -> tuple[Dim, ...]:
        """The shape of a required input."""
        return tensor_type(self.input(index)).shape

    def axis(self, value: int, rank: int) -> int:
        """An axis, which counts from the end where it is negative. Raises `ModelImportError` for one that there is not."""
        if not -rank <= value < rank:
            raise self.error(f"there is no axis {value} among {rank}")
        return value % rank

    @property
    def result(self) -> Tensor:
        """The tensor of the first output."""
        return self.results[0]

    def scales(self, tensor: Tensor) -> Quantisation:
        """The quantisation of a tensor of integers. Raises `ModelImportError` where it has none."""
        if tensor.quantisation is None:
            raise self.error(f"tensor {tensor.name} of {tensor.dtype} has no scale")
        return tensor.quantisation

    def pair(self, tensor: Tensor) -> tuple[np.float32, int]:
        """The scale and the zero point of a tensor that has one for all. Raises `ModelImportError`."""
        found = self.scales(tensor)
        if len(found.scale) != 1:
            raise self.error(f"tensor {tensor.name} has {len(found.scale)} scales, where one is due")
        return found.scale[0], int(found.zero_point[0])

    def is_float(self) -> bool:
        """Whether the operator computes in floats. Raises `ModelImportError` for inputs and outputs of different kinds."""
        return self.result.dtype.is_float

    def require(self, *dtypes: str) -> None:
        """Raises `ModelImportError` for a result of another element type."""
        if self.result.dtype.name not in dtypes:
            raise self.error(f"a result of {self.result.dtype} is not supported: it can be of {', '.join(dtypes)}")

    def is_stored(self, index: int = 0) -> bool:
        """Whether an input is of integers that stand for real numbers."""
        return self.tensor(index).quantisation is not None and not self.tensor(index).dtype.is_float

    def wide(self, index: int) -> Expr:
        """A stored input as int32, less its zero point."""
        _, zero_point = self.pair(self.tensor(index))
        found = ops.cast(self.input(index), dtype="int32")
        return ops.sub(found, constant(np.int32(zero_point))) if zero_point else found

    def bounded(self, value: Expr) -> Expr:
        """A real value after the fused activation of the options, or an integer that stands for itself."""
        name = self._activation()
        if name == "NONE":
            return value
        if name not in BOUNDS:
            raise self.error(f"the fused activation {name} is not supported: LiteRT runs NONE, {', '.join(BOUNDS)}")
        least, greatest = BOUNDS[name]
        least = 0.0 if tensor_type(value).dtype.kind == "uint" else least
        return ops.relu(value) if greatest == np.inf else ops.clip(value, minimum=least, maximum=greatest)

    def limits(self) -> tuple[int, int]:
        """The least and the greatest stored value that the fused activation lets through."""
        name = self._activation()
        if name == "NONE":
            lowest, highest = map(int, self.result.dtype.limits)
            return lowest, highest
        if name not in BOUNDS:
            raise self.error(f"the fused activation {name} is not supported: LiteRT runs NONE, {', '.join(BOUNDS)}")
        return self.bounds(*BOUNDS[name])

    def bounds(self, least: float, greatest: float) -> tuple[int, int]:
        """The stored values of the result for two real numbers, as far as its type has them."""
        lowest, highest = map(int, self.result.dtype.limits)
        scale, zero_point = self.pair(self.result)

        def stored(real: float) -> int:
            return zero_point + int(half_away(np.float32(real) / scale))

        return max(lowest, stored(least)), min(highest, stored(greatest)) if np.isfinite(greatest) else highest

    def stored(self, total: Expr, factors: Sequence[SupportsFloat], axis: int = 0, rounding: str = "away") -> Expr:
        """Sums in int32 as values of the result: times real factors, plus the zero point, within the fused activation's limits."""
        return self.placed(scaled(total, factors, axis, rounding))

    def placed(self, total: Expr) -> Expr:
        """Scaled int32 as values of the result: plus the zero point, within the fused activation's limits."""
        _, zero_point = self.pair(self.result)
        least, greatest = self.limits()
        moved = ops.add(total, constant(np.int32(zero_point))) if zero_point else total
        return ops.cast(ops.clip(moved, minimum=float(least), maximum=float(greatest)), dtype=self.result.dtype.name)

    def _activation(self) -> str:
        fused = getattr(self.options, "FusedActivationFunction", None)
        number = fused() if fused is not None else 0
        if not 0 <= number < len(ACTIVATIONS):
            raise self.error(f"there is no fused activation {number}")
        return ACTIVATIONS[number]

    def error(self, message: str) -> ModelImportError:
        """An error that names this operator."""
        return ModelImportError(message, operator=self.name, node=str(self.span))


@dataclass(frozen=True)
class Updated:
    """The outputs of an operator, and new values for those inputs that are the model's memory, by their numbers."""

    outputs: tuple[Expr, ...]
    variables: Mapping[int, Expr] = field(default_factory=dict)


Converter = Callable[[Node], Expr | tuple[Expr, ...] | Updated]
"""Gives the outputs of an operator."""


@dataclass(frozen=True)
class Typed:
    """A converter that takes some element types of one input: others are refused."""

    convert: Converter
    dtypes: tuple[str, ...]
    index: int = 0

    def __call__(self, node: Node) -> Expr | tuple[Expr, ...] | Updated:
        of = node.tensor(self.index).dtype.name
        if of not in self.dtypes:
            raise node.error(
                f"input {self.index} of {of} is not supported: convert the model so that it is {' or '.join(self.dtypes)}"
            )
        return self.convert(node)


def typed(convert: Converter, dtypes: str, index: int = 0) -> Typed:
    """A converter with the element types, separated by spaces, that it takes of one input."""
    return Typed(convert, tuple(dtypes.split()), index)


def half_away(value: Any) -> Any:
    """To the nearest whole number, halves away from 0, as C's `round`."""
    wide = np.asarray(value, np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide)


def tensor_type(expr: Expr) -> TensorType:
    """The type of an expression that is a tensor."""
    assert isinstance(expr.type, TensorType)
    return expr.type
