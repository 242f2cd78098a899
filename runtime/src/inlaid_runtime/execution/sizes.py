"""Evaluation of dimension expressions at run time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import KernelFault, OutOfMemory

Sizes = dict[arith.Expr, int]
Shape = tuple[int, ...]

LIMIT = 1 << 47
"""Greatest dimension or buffer size: the address space of a process."""


def evaluate_size(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int | None:
    """Evaluate an expression as `Evaluated` does."""
    return dim if type(dim) is int else Evaluated(sizes)(dim)


class Evaluated:
    """Values of expressions at fixed sizes. Common subexpressions are evaluated once."""

    def __init__(self, sizes: Mapping[arith.Expr, int]) -> None:
        self._sizes = sizes
        self._evaluate = arith.Evaluation(sizes)

    def __call__(self, dim: Dim) -> int | None:
        """Return the value of an expression; None while a variable has no value. Raises `KernelFault` for a negative value,
        `OutOfMemory` for a value beyond `LIMIT`."""
        if type(dim) is int:
            return dim
        try:
            value = self._evaluate(dim)
        except KeyError:
            return None
        except ZeroDivisionError as error:
            raise KernelFault(f"the size {dim!r} divides by zero") from error
        if value >= LIMIT:
            raise OutOfMemory(f"the size {dim!r} is {value}, which exceeds the address space")
        if value < 0:
            raise KernelFault(f"the size {dim!r} must be >= 0, got {value}")
        return value

    def shape(self, shape: tuple[Dim, ...]) -> Shape | None:
        """Return the values of a shape; None while a dimension is unknown."""
        extents = []
        for dim in shape:
            value = self(dim)
            if value is None:
                return None
            extents.append(value)
        return tuple(extents)

    def bounded(self, dim: Dim) -> int | None:
        """Return the value of an expression, or an upper bound over existential dimensions without a value; None if there is no
        bound."""
        value = self(dim)
        if value is not None or isinstance(dim, int):
            return value
        ranges: dict[arith.Expr, tuple[arith.Expr, arith.Expr]] = {
            name: (arith.Const(size), arith.Const(size)) for name, size in self._sizes.items()
        }
        for node in arith.post_order(dim, below=lambda node: _bounds(node, self._sizes)):
            if isinstance(node, SizeVar) and node not in ranges:
                bounds = None if node.upper is None or not node.existential else arith.limits(node.upper, ranges)
                if bounds is None:
                    return None
                ranges[node] = arith.wrap(node.lower), bounds[1]
        bounds = arith.limits(dim, ranges)
        return None if bounds is None else evaluate_size(arith.unwrap(bounds[1]), {})


def _bounds(node: arith.Expr, sizes: Mapping[arith.Expr, int]) -> tuple[arith.Expr, ...]:
    """Return the operands of a node, or the bound of an existential dimension without a value."""
    if isinstance(node, SizeVar) and node.existential and node not in sizes:
        return (node.upper,) if isinstance(node.upper, arith.Expr) else ()
    return node.operands


class Formula:
    """An expression compiled to a list of operations, several times as fast as walking the expression."""

    def __init__(self, dim: Dim) -> None:
        self.dim = dim
        self._values: list[int] = []
        self._names: list[tuple[int, arith.Expr]] = []
        self._steps: list[tuple[Callable[[int, int], int], int, int, int]] | None = []
        slots: dict[arith.Expr, int] = {}
        stack = [(arith.wrap(dim), False)]
        while stack:
            node, expanded = stack.pop()
            if node in slots:
                continue
            if node.operands and not expanded:
                stack += [(node, True), *((operand, False) for operand in node.operands)]
                continue
            slots[node] = len(self._values)
            self._values.append(node.value if isinstance(node, arith.Const) else 0)
            operation = arith.ARITHMETIC.get(type(node))
            if isinstance(node, SizeVar):
                self._names.append((slots[node], node))
            elif operation is not None and self._steps is not None:
                a, b = node.operands
                self._steps.append((operation, slots[a], slots[b], slots[node]))
            elif not isinstance(node, arith.Const):
                self._steps = None  # a rare operation: walk the expression

    def evaluate_size(self, sizes: Mapping[arith.Expr, int]) -> int | None:
        """Evaluate the expression. Results and errors are as for the function `evaluate_size`."""
        if self._steps is None or any(name not in sizes for _, name in self._names):
            return evaluate_size(self.dim, sizes)
        values = self._values.copy()
        for slot, name in self._names:
            values[slot] = sizes[name]
        try:
            for operation, a, b, slot in self._steps:
                values[slot] = operation(values[a], values[b])
        except ZeroDivisionError:
            return evaluate_size(self.dim, sizes)
        return values[-1] if 0 <= values[-1] < LIMIT else evaluate_size(self.dim, sizes)


def evaluate_shape(shape: tuple[Dim, ...], sizes: Mapping[arith.Expr, int]) -> Shape | None:
    """Evaluate a shape; None while a dimension is unknown."""
    return Evaluated(sizes).shape(shape)


def bounded(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int | None:
    """Evaluate an expression, with upper bounds as `Evaluated.bounded`."""
    return dim if type(dim) is int else Evaluated(sizes).bounded(dim)


def byte_count(shape: Shape, itemsize: int) -> int:
    """Return the size of an array in bytes. Raises `OutOfMemory` beyond the address space."""
    size = math.prod(shape) * itemsize
    if size >= LIMIT:
        raise OutOfMemory(f"an array of shape {shape} takes {size} bytes, which exceeds the address space")
    return size


def align_up(size: int) -> int:
    """Round a size up to a multiple of 64."""
    return -(-size // ALIGNMENT) * ALIGNMENT
