"""The interface of converters of TensorFlow Lite operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, SupportsFloat

import numpy as np

from inlaid import ops
from inlaid.frontends.relations import Constraints, stating
from inlaid.graph.ir import Expr, Span, constant
from inlaid.ops.fixed_point import scaled
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import TensorType
from inlaid_tflite.model import Quantization, Tensor

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Fused activations by their number in the schema."""
BOUNDS = {"RELU": (0.0, np.inf), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)}


class Scope(Protocol):
    """The importer's interface to converters. Its methods raise ValueError for unsupported operations."""

    def static(self, expr: Expr) -> np.ndarray[Any, Any] | None:
        """Return the value of an expression if it is known at import (by constant folding), else None."""

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        """Return the elements of a 0-d or 1-d integer tensor as dimensions, which may be symbolic, else None."""

    def call(self, graph: int, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        """Call another graph of the model. Returns its outputs."""

    def guarded(self, build: Callable[[], tuple[Expr, ...]]) -> tuple[tuple[Expr, ...], Constraints]:
        """Call `build`, which converts a branch or the body of a loop. Returns its values and its constraints."""

    def initialize(self, graph: int) -> None:
        """Use the assignments of a graph as the initial values of variables."""

    def handle(self, name: str) -> np.ndarray[Any, Any]:
        """Return the handle of a variable, 0-d int32."""

    def read(self, handle: int) -> Expr:
        """Return the current value of a variable."""

    def assign(self, handle: int, value: Expr) -> None:
        """Assign a variable."""


@dataclass(frozen=True)
class Node:
    """An operator of a graph. `values` and `tensors` have one entry per input, None for an omitted input. `results` are the tensors
    of its outputs. `intermediates` are tensors that only have the scales of intermediate values. `stated` are the relations between
    sizes that the operator requires, and that no operator of its conversion states."""

    name: str
    options: Any
    values: tuple[Expr | None, ...]
    tensors: tuple[Tensor | None, ...]
    results: tuple[Tensor, ...]
    span: Span
    scope: Scope
    intermediates: tuple[Tensor, ...] = ()
    stated: list[Constraint] = field(default_factory=list)

    @contextmanager
    def relations(self) -> Iterator[None]:
        """State relations between sizes that the operator requires, and that no operator of its conversion states (see
        `frontends.relations`). Raises ValueError for a relation that static sizes violate."""
        with stating(self.stated, self.name, str(self.span)):
            yield

    def input(self, index: int) -> Expr:
        """Return a required input. Raises `ModelImportError` if it is omitted."""
        expr = self.values[index] if index < len(self.values) else None
        if expr is None:
            raise self.error(f"input {index} is missing")
        return expr

    def has(self, index: int) -> bool:
        """Test whether an input is present."""
        return index < len(self.values) and self.values[index] is not None

    def tensor(self, index: int) -> Tensor:
        """Return the tensor of a required input."""
        self.input(index)
        tensor = self.tensors[index]
        assert tensor is not None
        return tensor

    def array(self, index: int) -> np.ndarray[Any, Any]:
        """Return the value of a static input. Raises `ModelImportError` if it is not static."""
        array = self.scope.static(self.input(index))
        if array is None:
            raise self.error(f"input {index} must be a constant, but is computed by the model")
        return array

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of an integer input, in row-major order, as dimensions, which may be symbolic. Raises
        `ModelImportError` for data-dependent elements."""
        value = self.input(index)
        flat = ops.reshape(value, shape=(tensor_type(value).size,)) if tensor_type(value).rank > 1 else value
        dims = self.scope.dims(flat)
        if dims is None:
            raise self.error(f"input {index} determines a shape and must be static, but is data-dependent")
        return dims

    def option(self, name: str, otherwise: Any = 0) -> Any:
        """Return a field of the options. If the file has no options table, return `otherwise`, the default in the schema."""
        return otherwise if self.options is None else getattr(self.options, name)()

    def shape(self, index: int) -> tuple[Dim, ...]:
        """Return the shape of a required input."""
        return tensor_type(self.input(index)).shape

    def axis(self, value: int, rank: int) -> int:
        """Resolve an axis that may be negative. Raises `ModelImportError` if it is out of range."""
        if not -rank <= value < rank:
            raise self.error(f"axis must be >= -{rank} and < {rank}, got {value}")
        return value % rank

    @property
    def result(self) -> Tensor:
        """Tensor of the first output."""
        return self.results[0]

    @property
    def is_complex(self) -> bool:
        """Whether an input is complex."""
        return any(tensor is not None and tensor.is_complex for tensor in self.tensors)

    def scales(self, tensor: Tensor) -> Quantization:
        """Return the quantization of an integer tensor. Raises `ModelImportError` if it has none."""
        if tensor.quantization is None:
            raise self.error(f"tensor {tensor.name} of {tensor.dtype} must have a scale, found none")
        return tensor.quantization

    def pair(self, tensor: Tensor) -> tuple[np.float32, int]:
        """Return the per-tensor scale and zero point. Raises `ModelImportError` for per-axis quantization."""
        quantization = self.scales(tensor)
        if len(quantization.scale) != 1:
            raise self.error(f"tensor {tensor.name} must have one scale, got {len(quantization.scale)}")
        return quantization.scale[0], int(quantization.zero_point[0])

    def is_float(self) -> bool:
        """Test whether the operator computes in floats. Raises `ModelImportError` for mixed float and integer inputs and
        outputs."""
        return self.result.dtype.is_float

    def require(self, *dtypes: str) -> None:
        """Raise `ModelImportError` unless the result has one of the dtypes."""
        if self.result.dtype.name not in dtypes:
            raise self.error(f"the dtype of the result must be one of {', '.join(dtypes)}, got {self.result.dtype}")

    def is_stored(self, index: int = 0) -> bool:
        """Test whether an input is quantized."""
        return self.tensor(index).quantization is not None and not self.tensor(index).dtype.is_float

    def wide(self, index: int) -> Expr:
        """Return a quantized input as int32, minus its zero point."""
        _, zero_point = self.pair(self.tensor(index))
        widened = ops.cast(self.input(index), dtype="int32")
        return ops.sub(widened, constant(np.int32(zero_point))) if zero_point else widened

    def bounded(self, value: Expr) -> Expr:
        """Apply the fused activation to a real value or an unquantized integer."""
        name = self._activation()
        if name == "NONE":
            return value
        if name not in BOUNDS:
            raise self.error(f"the fused activation must be one of NONE, {', '.join(BOUNDS)}; got {name}")
        least, greatest = BOUNDS[name]
        least = 0.0 if tensor_type(value).dtype.kind == "uint" else least
        return ops.relu(value) if greatest == np.inf else ops.clip(value, minimum=least, maximum=greatest)

    def limits(self) -> tuple[int, int]:
        """Return the minimum and maximum quantized value after the fused activation."""
        name = self._activation()
        if name == "NONE":
            lowest, highest = map(int, self.result.dtype.limits)
            return lowest, highest
        if name not in BOUNDS:
            raise self.error(f"the fused activation must be one of NONE, {', '.join(BOUNDS)}; got {name}")
        return self.bounds(*BOUNDS[name])

    def bounds(self, least: float, greatest: float) -> tuple[int, int]:
        """Quantize two real bounds like values of the result, saturated."""
        lowest, highest = map(int, self.result.dtype.limits)
        scale, zero_point = self.pair(self.result)

        def stored(real: float) -> int:
            return zero_point + int(half_away(np.float32(real) / scale))

        return max(lowest, stored(least)), min(highest, stored(greatest)) if np.isfinite(greatest) else highest

    def stored(self, total: Expr, factors: Sequence[SupportsFloat], axis: int = 0, rounding: str = "away") -> Expr:
        """Requantize int32 sums to the result: times real factors, plus the zero point, clamped by the fused activation."""
        return self.placed(scaled(total, factors, axis, rounding))

    def placed(self, total: Expr) -> Expr:
        """Convert scaled int32 to the result: plus the zero point, clamped by the fused activation."""
        _, zero_point = self.pair(self.result)
        least, greatest = self.limits()
        shifted = ops.add(total, constant(np.int32(zero_point))) if zero_point else total
        return ops.cast(ops.clip(shifted, minimum=float(least), maximum=float(greatest)), dtype=self.result.dtype.name)

    def _activation(self) -> str:
        fused = getattr(self.options, "FusedActivationFunction", None)
        number = fused() if fused is not None else 0
        if not 0 <= number < len(ACTIVATIONS):
            raise self.error(f"expected a fused activation of the schema, got number {number}")
        return ACTIVATIONS[number]

    def error(self, message: str) -> ModelImportError:
        """Return an error that names this operator."""
        return ModelImportError(message, operator=self.name, node=str(self.span))


@dataclass(frozen=True)
class Updated:
    """The outputs of an operator, and new values of inputs that are states, by input index."""

    outputs: tuple[Expr, ...]
    variables: Mapping[int, Expr] = field(default_factory=dict)


Converter = Callable[[Node], Expr | tuple[Expr, ...] | Updated]
"""Converts an operator to its outputs."""


@dataclass(frozen=True)
class Typed:
    """A converter with the allowed dtypes of one input. Other dtypes raise `ModelImportError`."""

    convert: Converter
    dtypes: tuple[str, ...]
    index: int = 0

    def __call__(self, node: Node) -> Expr | tuple[Expr, ...] | Updated:
        element = node.tensor(self.index).element
        if element not in self.dtypes:
            raise node.error(f"input {self.index} must be {' or '.join(self.dtypes)}, got {element}: convert the model accordingly")
        return self.convert(node)


def typed(convert: Converter, dtypes: str, index: int = 0) -> Typed:
    """Restrict a converter to dtypes, separated by spaces, of one input."""
    return Typed(convert, tuple(dtypes.split()), index)


def half_away(value: Any) -> Any:
    """Round half away from 0, as C's `round`."""
    wide = np.asarray(value, np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide)


def tensor_type(expr: Expr) -> TensorType:
    """Return the type of a tensor expression."""
    assert isinstance(expr.type, TensorType)
    return expr.type
