"""Conversions between sizes and shapes at run time, precomputed from declared shapes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.sizes import Shape, Sizes, evaluate_shape, evaluate_size


class ShapeReader:
    """Derives the existential dimensions of a declared `shape` from the shapes of arrays."""

    def __init__(self, shape: tuple[Dim, ...]) -> None:
        self.shape = shape
        existential_axes: dict[SizeVar, int] = {}
        for axis, dim in enumerate(shape):
            if isinstance(dim, SizeVar) and dim.existential:
                existential_axes.setdefault(dim, axis)
        self._existential_axes = tuple(existential_axes.items())
        self._other_dims = tuple((axis, dim) for axis, dim in enumerate(shape) if axis not in existential_axes.values())

    def read(self, actual: Shape, sizes: Sizes) -> None:
        """Set the existential dimensions from an actual shape. Raises `KernelFault` for a shape that does not fit."""
        if len(actual) == len(self.shape):
            for name, axis in self._existential_axes:
                sizes[name] = actual[axis]
            for axis, dim in self._other_dims:
                if dim != actual[axis] and evaluate_size(dim, sizes) not in (None, actual[axis]):
                    break
            else:
                return
        expected = evaluate_shape(self.shape, sizes) or self.shape
        raise KernelFault(f"expected a value of shape {expected}, got shape {actual}")


def shape_picker(shape: tuple[Dim, ...], names: Sequence[SizeVar]) -> Callable[[Sequence[int]], Shape | None]:
    """Return a function that maps values of the dimensions `names` to a shape, or to None if the shape has other dimensions."""
    if all(isinstance(dim, int) or dim in names for dim in shape):
        constants = tuple(dim for dim in shape if isinstance(dim, int))
        order = (*names, *constants)
        take = picker([order.index(dim) for dim in shape])
        return lambda values: take((*values, *constants))
    return lambda values: evaluate_shape(shape, dict(zip(names, values, strict=True)))


def picker(keys: Sequence[int] | Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that picks items from a sequence by index, or from a mapping by name, as a tuple."""
    if len(keys) > 1:
        return operator.itemgetter(*keys)
    if keys:
        only = keys[0]
        return lambda values: (values[only],)
    return lambda values: ()
