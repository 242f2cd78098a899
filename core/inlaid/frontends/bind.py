"""Sizes that models compute at run time, bound as symbolic dimensions.

What a converter needs as a dimension may be an element of a tensor that data decides. `ops.bind_size` reads such an element and
checks it, and gives a dimension its value; see ADR 30. The same element gives the same dimension wherever it is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from inlaid import arith, ops
from inlaid.arith import Dim
from inlaid.frontends.settle import Settler
from inlaid.frontends.values import Values
from inlaid.graph.ir import Expr, Span, constant
from inlaid.ops.compose import tensor_of
from inlaid.ops.shape import simple


@dataclass
class Binder:
    """Binds the sizes of one model. `_bound` has the dimension of an element by its expression over unknowns (see `Values`),
    `_clamped` that of an element which counts as 0 where it is negative."""

    values: Values
    settler: Settler
    _bound: dict[arith.Expr, arith.Expr] = field(default_factory=dict)
    _clamped: dict[arith.Expr, Dim] = field(default_factory=dict)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """What is bound while this holds is forgotten afterwards: a branch or a body binds for itself."""
        outer = dict(self._bound), dict(self._clamped)
        try:
            yield
        finally:
            self._bound, self._clamped = outer

    def sizes(self, value: Expr, name: str, span: Span) -> tuple[Dim, ...] | None:
        """The elements of a 0-d or 1-d integer tensor as dimensions; None for one of unknown length. Those that data decides must
        not be negative: a run checks it, and calls them `name`."""
        found = self.values.elements(value)
        if found is None:
            return None
        return tuple(self.size(value, index, item, f"{name}[{index}]", span) for index, item in enumerate(found))

    def size(self, value: Expr, index: int, element: Dim, name: str, span: Span) -> Dim:
        """Element number `index` of a value, which has the given expression, as a dimension."""
        known = self.known(element)
        if known is None:
            known = self._clamped.get(_key(element))  # one dimension for a length and for the range up to it
        if known is None:
            known = self._bind(element, *self._place(value, index, element), name, span)
        return known

    def clamped(self, value: Expr, name: str, span: Span) -> Dim:
        """A value of one element as a dimension where it is positive, else 0."""
        (element,) = self.values.elements(value) or (None,)
        assert element is not None, "an integer of known rank has elements"
        known = self.known(element)
        if known is not None:
            return simple(arith.maximum(known, 0))
        if _key(element) not in self._clamped:
            positive = ops.maximum(element_of(*self._place(value, 0, element)), _integer(0))
            self._clamped[_key(element)] = self.computed(positive, name, span)
        return self._clamped[_key(element)]

    def signed(self, value: Expr, name: str, span: Span) -> tuple[Dim, ...] | None:
        """As `sizes` of elements that may be negative: each is the difference of two dimensions, its positive part and its negative
        one."""
        found = self.values.elements(value)
        if found is None:
            return None
        return tuple(self._signed(value, index, item, f"{name}[{index}]", span) for index, item in enumerate(found))

    def _signed(self, value: Expr, index: int, element: Dim, name: str, span: Span) -> Dim:
        known = self.known(element)
        if known is not None:
            return known
        scalar = element_of(*self._place(value, index, element))
        parts = []
        for sign, part in ((1, scalar), (-1, ops.neg(scalar))):
            key = arith.maximum(arith.mul(element, sign), 0)
            bound = self.known(key)
            parts.append(self._bind(key, ops.maximum(part, _integer(0)), 0, name, span) if bound is None else bound)
        return arith.unwrap(arith.add(parts[0], arith.mul(parts[1], -1)))

    def computed(self, value: Expr, name: str, span: Span, element: int = 0, check: Expr | None = None) -> Dim:
        """An element of an int64 value as a dimension of its own, once the `check` of an assertion holds."""
        checks = () if check is None else (check,)
        witness = self.settler.settle(ops.bind_size(value, *checks, message=name, element=element), span)
        return tensor_of(witness).shape[0]

    def known(self, element: Dim) -> Dim | None:
        """The element where no data decides it, or only such as is bound."""
        item = _key(element)
        if item in self._bound:
            return arith.unwrap(self._bound[item])
        unknown = self.values.unknowns(item)
        if not unknown <= self._bound.keys():
            return None
        return simple(arith.substitute(item, {size: self._bound[size] for size in unknown}))

    def _place(self, value: Expr, index: int, element: Dim) -> tuple[Expr, int]:
        item = _key(element)
        return self.values.place(item) if item in self.values.unknowns(item) else (value, index)

    def _bind(self, element: Dim, value: Expr, index: int, name: str, span: Span) -> Dim:
        bound = self.computed(integer(value), name, span, index)
        self._bound[_key(element)] = arith.wrap(bound)
        return bound


def element_of(value: Expr, index: int) -> Expr:
    """An element of a tensor of known size, by its row-major number, as a 0-d int64."""
    shape = tensor_of(value).shape
    flat = value if len(shape) == 1 else ops.reshape(value, shape=(arith.product(shape),))
    part = ops.strided_slice(flat, begin=(index,), end=(index + 1,), strides=(1,))
    return integer(ops.reshape(part, shape=()))


def integer(value: Expr) -> Expr:
    """The value as int64."""
    return value if tensor_of(value).dtype.name == "int64" else ops.cast(value, dtype="int64")


def _integer(value: int) -> Expr:
    return constant(np.int64(value))


def _key(element: Dim) -> arith.Expr:
    return arith.wrap(simple(element))
