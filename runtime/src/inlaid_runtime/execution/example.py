"""Random model inputs, for trial runs and timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from inlaid_runtime import arith
from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.errors import InputError, OutOfMemory
from inlaid_runtime.types import DType

PYTHON = "run the model from Python: inlaid.compile(...).run({...})"


def example_inputs(
    specs: Sequence[TensorSpec], seed: int = 0, dims: Mapping[str, int | tuple[int, int]] = MappingProxyType({})
) -> dict[str, Any]:
    """Return seeded random inputs by name. `dims` gives the sizes of symbolic dimensions; a dimension that is not in `dims` gets
    its least size, but at least 1. Raises `InputError` for an input that is not an array, `OutOfMemory` for a too large input."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, Any] = {}
    for spec in specs:
        if spec.dtype is None:
            raise InputError(f"input {spec.name} is a sequence, an optional or text, which cannot be generated", remedy=PYTHON)
        inputs[spec.name] = random_array(generator, tuple(_size(dim, dims) for dim in spec.shape), spec.dtype)
    return inputs


def _size(dim: arith.Dim, dims: Mapping[str, int | tuple[int, int]]) -> int:
    sizes: dict[arith.Expr, int] = {}
    for variable in arith.free_vars(dim):
        assert isinstance(variable, arith.SizeVar)
        fixed = dims.get(variable.name)
        sizes[variable] = fixed if isinstance(fixed, int) else max(variable.lower, 1)
    return arith.evaluate(dim, sizes)


def random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Return random elements: floats in [0, 1), integers and bools 0 or 1. Raises `OutOfMemory`."""
    try:
        values = generator.random(shape)
    except (MemoryError, ValueError) as error:  # numpy raises ValueError for sizes beyond the address space
        raise OutOfMemory(f"cannot allocate a random array of shape {shape}", remedy="make the input smaller") from error
    array: np.ndarray[Any, Any] = (values if dtype.is_float else np.round(values)).astype(dtype.numpy)
    return array
