"""Static shapes and element types of values in examples."""

from __future__ import annotations

import itertools

from inlaid_conformance.corpus import Example
from inlaid_runtime.types import TensorType, Type, from_numpy

SIZES = (3, 5, 4, 1, 7, 2)
"""Extents of axes: few values, so that drawn examples often fit."""


def static_shape(type_: TensorType) -> tuple[int, ...]:
    """Replace each symbolic dimension of a shape by a number, the same number for equal names."""
    extents: dict[str, int] = {}
    sizes = itertools.cycle(SIZES)
    return tuple(dim if isinstance(dim, int) else extents.setdefault(repr(dim), next(sizes)) for dim in type_.shape)


def element_name(type_: Type | None) -> str:
    """Return the element type of a tensor; "" for other values."""
    return type_.dtype.name if isinstance(type_, TensorType) else ""


def operand_type(example: Example, number: int) -> Type:
    """Return the type of an operand of an operator's example."""
    value = example.inputs[number]
    return example.types[number] if number in example.types else TensorType(value.shape, from_numpy(value.dtype))
