"""Symbolic sizes of models, and seeded inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

TOKENS = 100
"""Every vocabulary here holds tokens below this."""

Range = tuple[int, int]
"""The least and the greatest size of a dimension."""


@dataclass(frozen=True)
class Symbolic:
    """A model with symbolic sizes, the range that each is drawn from, and what each is a multiple of, where that is not 1."""

    build: Callable[[], onnx.ModelProto]
    sizes: Mapping[str, Range]
    multiples: Mapping[str, int] = field(default_factory=dict)

    def draw(self, generator: np.random.Generator) -> dict[str, int]:
        """A size for each symbolic dimension. Its logarithm is uniform: small sizes are as likely as large ones."""
        drawn = {}
        for name, (low, high) in sorted(self.sizes.items()):
            unit = self.multiples.get(name, 1)
            drawn[name] = unit * int(np.exp(generator.uniform(np.log(low // unit), np.log(high // unit + 1))))
        return drawn


def feeds(model: onnx.ModelProto, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded inputs by name: floats in [-1, 1), tokens below `TOKENS`, other integers 0 or 1. `sizes` gives symbolic dims."""
    generator = np.random.default_rng(seed)
    initializer_names = {item.name for item in model.graph.initializer}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for item in model.graph.input:
        if item.name in initializer_names:
            continue
        kind = item.type.tensor_type
        shape = tuple((sizes or {})[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if np.issubdtype(dtype, np.integer):
            tokens = item.name.endswith("ids") and "type" not in item.name
            arrays[item.name] = generator.integers(0, TOKENS if tokens else 2, shape, dtype)
        else:
            arrays[item.name] = generator.uniform(-1, 1, shape).astype(dtype)
    return arrays
