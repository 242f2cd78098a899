"""Expressions bound to the parts of a pattern, and the parameters and constants at its leaves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlaid.graph import ir
from inlaid.graph.pattern import Kind, Requirements
from inlaid_conformance.pattern_examples.draws import Draw
from inlaid_conformance.pattern_examples.parts import Part
from inlaid_conformance.pattern_examples.shapes import static_shape
from inlaid_conformance.values import Array, random_array
from inlaid_runtime.types import TensorType, Type, dtype, from_numpy

Snapshot = tuple[int, dict[int, ir.Expr]]
"""Number of parameters and bound expressions at some time."""


class Bindings:
    """Expressions by part of the pattern, and the parameters among them with their inputs."""

    def __init__(self) -> None:
        self.params: list[ir.Var] = []
        self.inputs: list[Any] = []
        self._exprs: dict[int, ir.Expr] = {}

    def expr(self, part: Part) -> ir.Expr | None:
        """Return the expression bound to a part, None if it has none."""
        return next((self._exprs[id(layer)] for layer in part.layers if id(layer) in self._exprs), None)

    def bind(self, part: Part, expr: ir.Expr) -> None:
        """Bind an expression to all layers of a part."""
        self._exprs.update((id(layer), expr) for layer in part.layers)

    def add_param(self, value: Any, type_: Type) -> ir.Var:
        """Create a parameter with an input."""
        param = ir.var(f"x{len(self.params)}", type_)
        self.params.append(param)
        self.inputs.append(value)
        return param

    def snapshot(self) -> Snapshot:
        """Return a snapshot for `restore`."""
        return len(self.params), dict(self._exprs)

    def restore(self, snapshot: Snapshot) -> None:
        """Remove what was bound since a snapshot."""
        count, self._exprs = snapshot
        del self.params[count:], self.inputs[count:]


class Leaves:
    """Creates parameters and constants for leaves of a pattern."""

    def __init__(self, draw: Draw, source: random.Random, bindings: Bindings) -> None:
        self._draw = draw
        self._random = source
        self._bindings = bindings

    def leaf_of_type(self, part: Part, type_: Type | None) -> ir.Expr:
        """Create a leaf with random values of a type, or of the example's element type if it is no tensor type."""
        tensor_type = type_ if isinstance(type_, TensorType) else TensorType((3, 5), self._draw.element)
        values = self._array(static_shape(tensor_type), tensor_type.dtype.name)
        return self.leaf(part, values, TensorType(values.shape, tensor_type.dtype))

    def leaf(self, part: Part, value: Any, type_: Type) -> ir.Expr:
        """Create a leaf with `value`, changed to what the part requires: a constant if the part or the draw requires one, else a
        parameter."""
        if isinstance(type_, TensorType) and isinstance(value, np.ndarray):
            value = self._required_value(value, part.requirements)
            type_ = TensorType(value.shape, from_numpy(value.dtype))
        if self._is_constant(part) and isinstance(value, np.ndarray):
            return ir.constant(value)
        return self._bindings.add_param(value, type_)

    def _is_constant(self, part: Part) -> bool:
        if isinstance(part.core, Kind):
            return part.core.kind is ir.Constant
        return self._draw.constant_operands and bool(self._bindings.params)

    def _required_value(self, value: Array, requirements: Requirements) -> Array:
        """Change a value to the type, element type, rank and elements that are required."""
        if isinstance(requirements.type, TensorType):
            return self._array(static_shape(requirements.type), requirements.type.dtype.name)
        dtypes, ranks = requirements.dtypes, requirements.ranks
        if dtypes and from_numpy(value.dtype).name not in dtypes:
            value = self._array(value.shape, dtypes[self._random.randrange(len(dtypes))])
        if ranks and value.ndim not in ranks:
            value = _fit_rank(value, ranks[0])
        if requirements.value is not None:
            value = np.full(value.shape if ranks else (), requirements.value).astype(value.dtype)
        return np.asarray(value)

    def _array(self, shape: Sequence[int], element: str) -> Array:
        draw = self._draw
        mix = "special" if draw.mix == "edge" and dtype(element).is_float and not draw.edges else draw.mix
        return random_array(self._random.randrange(1 << 16), shape, element, mix=mix)


def _fit_rank(value: Array, rank: int) -> Array:
    """Add leading axes of extent 1, or remove leading axes and keep only their first element."""
    if value.size == 0:
        value = np.ones((1,) * rank, value.dtype)  # not zeros: it may be a scale
    axes = (1,) * (rank - value.ndim)
    return np.asarray(value.reshape(axes + value.shape) if axes else value[(0,) * (value.ndim - rank)])
