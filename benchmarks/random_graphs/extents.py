"""Sizes at several runs at once: symbolic sizes with a value for each run, and integers that remember their expression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TensorType

RUNS = 3
"""Number of runs of a model, each with other sizes."""


class Extent(int):
    """An extent in one run, with its expression in symbolic sizes. Makers of examples compute with it as with an integer."""

    dim: Dim

    def __new__(cls, value: int, dim: Dim) -> Extent:
        """Make an extent of `value`, whose expression is `dim`."""
        extent = super().__new__(cls, value)
        extent.dim = dim
        return extent

    def __add__(self, other: int) -> int:
        return _make_extent(int(self) + int(other), self.dim + extent_dim(other)) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return _make_extent(int(self) - int(other), self.dim - extent_dim(other)) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: int) -> int:
        return _make_extent(int(other) - int(self), extent_dim(other) - self.dim) if isinstance(other, int) else NotImplemented

    def __mul__(self, other: int) -> int:
        return _make_extent(int(self) * int(other), self.dim * extent_dim(other)) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        return _make_extent(int(self) // int(other), self.dim // extent_dim(other)) if isinstance(other, int) else NotImplemented

    def __neg__(self) -> int:
        return _make_extent(-int(self), -self.dim)


def extent_dim(value: int) -> Dim:
    """Return the expression of an extent; an integer is its own."""
    return value.dim if isinstance(value, Extent) else int(value)


def _make_extent(value: int, dim: Dim) -> int:
    dim = dim if isinstance(dim, int) else arith.unwrap(arith.simplify(dim))
    return dim if isinstance(dim, int) else Extent(value, dim)


@dataclass
class Sizes:
    """The symbolic sizes of a model, each with its value in every run."""

    values: dict[SizeVar, tuple[int, ...]] = field(default_factory=dict)
    existing: list[dict[arith.Expr, int]] = field(default_factory=lambda: [{} for _ in range(RUNS)])
    """For each run, the values of all sizes, those included that only the run determines."""

    def add(self, name: str, values: Sequence[int], lower: int = 0) -> SizeVar:
        """Add a symbolic size."""
        size = SizeVar(name, lower)
        self.values[size] = tuple(values)
        for run, value in enumerate(values):
            self.existing[run][size] = value
        return size

    def evaluable(self, dims: Iterable[Dim]) -> bool:
        """Test whether all runs have values for the sizes of some expressions."""
        return all(
            size in run for dim in dims if not isinstance(dim, int) for size in arith.free_vars(dim) for run in self.existing
        )

    def at(self, run: int, dims: Iterable[Dim]) -> tuple[int, ...]:
        """Return dimensions in a run, as extents with their expressions."""
        run_values: Mapping[arith.Expr, int] = self.existing[run]
        return tuple(dim if isinstance(dim, int) else Extent(arith.evaluate(dim, run_values), dim) for dim in dims)

    def shape(self, run: int, type_: TensorType) -> tuple[int, ...]:
        """Return the shape of a tensor type in a run, as plain integers."""
        return tuple(map(int, self.at(run, type_.shape)))
