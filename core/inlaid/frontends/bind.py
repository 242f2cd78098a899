"""Binding of symbolic dimensions to the sizes that a model computes at run time.

A converter may need an element of a data-dependent tensor as a dimension. `ops.bind_size` reads the element, checks it, and binds
it to a dimension; see ADR 30. The same element is always bound to the same dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from inlaid import ops
from inlaid.frontends.finish import Finisher
from inlaid.frontends.values import Values
from inlaid.graph.ir import Expr, Span, constant
from inlaid.ops.compose import expr_type
from inlaid.ops.shape import simple
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TensorType


@dataclass
class Binder:
    """Binds the sizes of one model. `_bound` maps an element, as an expression over unknowns (see `Values`), to its dimension;
    `_clamped` maps an element to the dimension max(element, 0)."""

    values: Values
    finisher: Finisher
    _bound: dict[arith.Expr, arith.Expr] = field(default_factory=dict)
    _clamped: dict[arith.Expr, Dim] = field(default_factory=dict)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Drop, at the end of the block, the bindings made in it: those of a branch or a loop body hold only there."""
        outer = dict(self._bound), dict(self._clamped)
        try:
            yield
        finally:
            self._bound, self._clamped = outer

    def sizes(self, value: Expr, name: str, span: Span) -> tuple[Dim, ...] | None:
        """Return the elements of a 0-d or 1-d integer tensor as dimensions; None if its length is unknown. The run checks that
        data-dependent elements are >= 0. Errors call the tensor `name`."""
        elements = self.values.elements(value)
        if elements is None:
            return None
        return tuple(self.size(value, index, item, f"{name}[{index}]", span) for index, item in enumerate(elements))

    def size(self, value: Expr, index: int, element: Dim, name: str, span: Span) -> Dim:
        """Bind element number `index` of `value` to a dimension. `element` is the expression of the element."""
        dimension = self.bound_dim(element)
        if dimension is None:
            dimension = self._clamped.get(_key(element))  # a length and the range up to it share a dimension
        if dimension is None:
            dimension = self._bind(element, *self._locate(value, index, element), name, span)
        return dimension

    def clamped(self, value: Expr, name: str, span: Span) -> Dim:
        """Bind max(x, 0) to a dimension, where x is the only element of `value`. Raises `ValueError` for several elements."""
        elements = self.values.elements(value)
        if elements is None or len(elements) != 1:
            raise ValueError(f"expected one element, got {value.type!r}")
        (element,) = elements
        dimension = self.bound_dim(element)
        if dimension is not None:
            return simple(arith.maximum(dimension, 0))
        if _key(element) not in self._clamped:
            positive = ops.maximum(extract_element(*self._locate(value, 0, element)), _integer(0))
            self._clamped[_key(element)] = self.computed(positive, name, span)
        return self._clamped[_key(element)]

    def signed(self, value: Expr, name: str, span: Span) -> tuple[Dim, ...] | None:
        """Like `sizes`, for elements that may be negative. An element is returned as the difference of two dimensions, its positive
        and its negative part."""
        elements = self.values.elements(value)
        if elements is None:
            return None
        return tuple(self._signed(value, index, item, f"{name}[{index}]", span) for index, item in enumerate(elements))

    def _signed(self, value: Expr, index: int, element: Dim, name: str, span: Span) -> Dim:
        dimension = self.bound_dim(element)
        if dimension is not None:
            return dimension
        scalar = extract_element(*self._locate(value, index, element))
        parts = []
        for sign, part in ((1, scalar), (-1, ops.neg(scalar))):
            key = arith.maximum(arith.mul(element, sign), 0)
            bound = self.bound_dim(key)
            parts.append(self._bind(key, ops.maximum(part, _integer(0)), 0, name, span) if bound is None else bound)
        return arith.unwrap(arith.add(parts[0], arith.mul(parts[1], -1)))

    def computed(self, value: Expr, name: str, span: Span, element: int = 0, check: Expr | None = None) -> Dim:
        """Bind an element of an int64 value to a new dimension, after the assertion `check` has passed."""
        checks = () if check is None else (check,)
        witness = self.finisher.finish(ops.bind_size(value, *checks, message=name, element=element), span)
        return expr_type(witness).shape[0]

    def witness(self, size: Dim, span: Span) -> Expr:
        """Return a tensor of shape (size, 0): that of `bind_size` for a size that it bound."""
        origin = self.values.origin(size) if isinstance(size, SizeVar) else None
        if origin is not None and isinstance(origin.type, TensorType) and origin.type.shape == (size, 0):
            return origin
        return self.finisher.finish(ops.iota(shape=(size, 0), dtype="int8"), span)

    def bound_dim(self, element: Dim) -> Dim | None:
        """Return an element as a dimension, with the dimensions that unknowns are bound to in their place; None if it depends on an
        unknown that is not bound."""
        item = _key(element)
        if item in self._bound:
            return arith.unwrap(self._bound[item])
        unknown = self.values.unknowns(item)
        if not unknown <= self._bound.keys():
            return None
        return simple(arith.substitute(item, {size: self._bound[size] for size in unknown}))

    def _locate(self, value: Expr, index: int, element: Dim) -> tuple[Expr, int]:
        """Return the tensor and the index to read an element from: those of the unknown if the element is one."""
        item = _key(element)
        return self.values.element_of_unknown(item) if item in self.values.unknowns(item) else (value, index)

    def _bind(self, element: Dim, value: Expr, index: int, name: str, span: Span) -> Dim:
        bound = self.computed(integer(value), name, span, index)
        self._bound[_key(element)] = arith.wrap(bound)
        return bound


def extract_element(value: Expr, index: int) -> Expr:
    """Return an element of a tensor of static size, by row-major index, as 0-d int64."""
    shape = expr_type(value).shape
    flat = value if len(shape) == 1 else ops.reshape(value, shape=(arith.product(shape),))
    part = ops.strided_slice(flat, begin=(index,), end=(index + 1,), strides=(1,))
    return integer(ops.reshape(part, shape=()))


def integer(value: Expr) -> Expr:
    """Cast a value to int64."""
    return value if expr_type(value).dtype.name == "int64" else ops.cast(value, dtype="int64")


def _integer(value: int) -> Expr:
    return constant(np.int64(value))


def _key(element: Dim) -> arith.Expr:
    return arith.wrap(simple(element))
