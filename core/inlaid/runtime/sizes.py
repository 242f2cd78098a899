"""Evaluation of dimension expressions at run time."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from inlaid import arith
from inlaid.arith import Dim, SizeVar
from inlaid.artifact import ALIGNMENT
from inlaid.errors import KernelFault, OutOfMemory

Sizes = dict[arith.Expr, int]
Shape = tuple[int, ...]

LIMIT = 1 << 47
"""Greatest dimension or buffer size: the address space of a process."""


def known(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int | None:
    """Evaluate an expression; None while a variable has no value. Raises `KernelFault` for a negative value, `OutOfMemory` for a
    value beyond `LIMIT`."""
    if type(dim) is int:
        return dim
    try:
        value = arith.evaluate(dim, sizes)
    except KeyError:
        return None
    except ZeroDivisionError as error:
        raise KernelFault(f"the size {dim!r} divides by zero") from error
    if value >= LIMIT:
        raise OutOfMemory(f"the size {dim!r} is {value}, which exceeds the address space")
    if value < 0:
        raise KernelFault(f"the size {dim!r} must be >= 0, got {value}")
    return value


class Formula:
    """An expression compiled to a list of operations, several times as fast as walking the expression."""

    def __init__(self, dim: Dim) -> None:
        self.dim = dim
        self._values: list[int] = []
        self._names: list[tuple[int, arith.Expr]] = []
        self._steps: list[tuple[Callable[[int, int], int], int, int, int]] | None = []
        places: dict[arith.Expr, int] = {}
        stack = [(arith.wrap(dim), False)]
        while stack:
            node, ready = stack.pop()
            if node in places:
                continue
            if node.operands and not ready:
                stack += [(node, True), *((operand, False) for operand in node.operands)]
                continue
            places[node] = len(self._values)
            self._values.append(node.value if isinstance(node, arith.Const) else 0)
            operation = _OPERATIONS.get(type(node))
            if isinstance(node, SizeVar):
                self._names.append((places[node], node))
            elif operation is not None and self._steps is not None:
                a, b = node.operands
                self._steps.append((operation, places[a], places[b], places[node]))
            elif not isinstance(node, arith.Const):
                self._steps = None  # walk rare expressions

    def known(self, sizes: Mapping[arith.Expr, int]) -> int | None:
        """Evaluate the expression. Results and errors are as for the function `known`."""
        if self._steps is None or any(name not in sizes for _, name in self._names):
            return known(self.dim, sizes)
        values = self._values.copy()
        for place, name in self._names:
            values[place] = sizes[name]
        try:
            for operation, a, b, place in self._steps:
                values[place] = operation(values[a], values[b])
        except ZeroDivisionError:
            return known(self.dim, sizes)
        return values[-1] if 0 <= values[-1] < LIMIT else known(self.dim, sizes)


_OPERATIONS: Mapping[type[arith.Expr], Callable[[int, int], int]] = {
    arith.Add: operator.add,
    arith.Mul: operator.mul,
    arith.FloorDiv: operator.floordiv,
    arith.FloorMod: operator.mod,
    arith.Min: min,
    arith.Max: max,
}


def known_shape(shape: tuple[Dim, ...], sizes: Mapping[arith.Expr, int]) -> Shape | None:
    """Evaluate a shape; None while a dimension is unknown."""
    found = []
    for dim in shape:
        value = known(dim, sizes)
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def bounded(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int | None:
    """Evaluate an expression, with upper bounds for existential dimensions without a value; None if there is no bound."""
    if type(dim) is int:
        return dim
    limits = dict(sizes)
    return None if isinstance(dim, arith.Expr) and not _bound(dim, limits) else known(dim, limits)


def _bound(dim: arith.Expr, limits: Sizes) -> bool:
    """Add a value or an upper bound of every variable of an expression to `limits`. Returns False if a variable has neither."""
    for variable in arith.free_vars(dim):
        if variable in limits:
            continue
        upper = variable.upper if isinstance(variable, SizeVar) and variable.existential else None
        value = None if upper is None else bounded(upper, limits)
        if value is None:
            return False
        limits[variable] = value
    return True


def byte_count(shape: Shape, itemsize: int) -> int:
    """Return the size of an array in bytes. Raises `OutOfMemory` beyond the address space."""
    size = math.prod(shape) * itemsize
    if size >= LIMIT:
        raise OutOfMemory(f"an array of shape {shape} takes {size} bytes, which exceeds the address space")
    return size


def align_up(size: int) -> int:
    """Round a size up to a multiple of 64."""
    return -(-size // ALIGNMENT) * ALIGNMENT
