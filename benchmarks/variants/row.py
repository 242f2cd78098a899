"""Rows of the matrix of variants: a model each, with seeded inputs and the row that it is compared to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]

PARTS = MappingProxyType(
    {
        1: "products of integers",
        2: "element types",
        3: "operands that are inputs, shapes narrower than a vector",
        4: "convolutions",
        5: "windows, layouts, element-wise operators",
    }
)
"""What the rows of a part have in common."""
LISTED = "listed: "
INTEGERS = 9
"""Greatest magnitude of drawn integers of more than 8 bits, unless a row states a range."""


@dataclass(frozen=True)
class Sibling:
    """The row that a row is compared to, by name. `rule` names what differs; `limit` is the greatest ratio of Inlaid's times, None
    where none is stated; with `alone`, the name of an activation of `epilogues.ALONE`, its time on the row's result is added to the
    sibling's."""

    row: str
    rule: str
    limit: float | None = None
    alone: str = ""


@dataclass(frozen=True)
class Row:
    """A model. `sizes` are those of symbolic dimensions; `ranges` bound the values of inputs by name, half-open for floats.

    `levels` is the greatest difference of integers from the reference, `tolerance` that of floats by the greatest magnitude of the
    output, None for that of the element type. `listed` rows are named one by one, others are generated.
    """

    name: str
    part: int
    build: Callable[[], onnx.ModelProto]
    sizes: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sibling: Sibling | None = None
    levels: int = 0
    tolerance: float | None = None
    listed: bool = False

    def feeds(self, model: onnx.ModelProto) -> dict[str, Array]:
        """Draw seeded arrays for the model's inputs that no initializer has a value for, by name."""
        generator, constants = np.random.default_rng(0), {item.name for item in model.graph.initializer}
        return {item.name: self._draw(item, generator) for item in model.graph.input if item.name not in constants}

    def _draw(self, item: onnx.ValueInfoProto, generator: np.random.Generator) -> Array:
        kind = item.type.tensor_type
        shape = [self.sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind == "f":
            return generator.uniform(*self.ranges.get(item.name, (-1.0, 1.0)), shape).astype(dtype)
        if dtype.kind == "b":
            return generator.integers(0, 2, shape).astype(dtype)
        bounds = np.iinfo(dtype)
        low, high = (bounds.min, bounds.max) if dtype.itemsize == 1 else (max(-INTEGERS, bounds.min), INTEGERS)
        low, high = map(int, self.ranges.get(item.name, (low, high)))
        return generator.integers(low, high, shape, endpoint=True).astype(dtype)


def unknown_sizes(rank: int) -> list[Any]:
    """Shape of an output whose sizes the model does not state."""
    return [None] * rank


def listed(part: int, name: str, build: Callable[[], onnx.ModelProto], sibling: Sibling | None = None, **facts: Any) -> Row:
    """Describe a listed row; `facts` are further fields."""
    return Row(f"{LISTED}{name}", part, build, sibling=sibling, listed=True, **facts)


def beside(name: str, rule: str, limit: float | None = None, alone: str = "") -> Sibling:
    """The listed row `name` as a sibling."""
    return Sibling(f"{LISTED}{name}", rule, limit, alone)
