"""Examples of operators, and their forms as graphs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from inlaid.graph import ir
from inlaid.graph.examples import Examples
from inlaid.graph.operator import Operator
from inlaid.plugins import Tiles
from inlaid_conformance.values import MIXES, Array, Mix, factors, random_array
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, Type, dtype, from_numpy

T = TypeVar("T")

SIZES = (3, 5, 4, 1, 7, 2, 16, 13, 9)
"""Extents of axes: small, odd, prime, a vector's length, and one."""
TILES = Tiles()
"""Sizes of tiles if none are given."""
DEEP = 1031
"""Number of products of 8-bit integers whose sum fills an accumulator of 24 bits, with values of the mix "full"."""
RANKS = (2, 3, 1, 4, 0)
"""Ranks drawn if any rank is allowed, the plain rank first."""


class Unfit(Exception):
    """Raised if no example has arguments of the given shapes."""


class Choices:
    """Source of sizes, attributes and values of examples. `choose(n)` returns a number below n. The plain choice is always 0, to
    which Hypothesis shrinks. All arrays of an example have one mix of values. If `rank` is given, shapes have this rank if
    possible; `ranked` records whether a shape did. `fixed_shapes` has known shapes of arguments, by number. Without `edges`, floats
    have no extreme values. With `binary`, scales are powers of two. `tiles` has the tile sizes around which the sizes of products
    are drawn, `deep` the number of products of integers whose sum fills an accumulator."""

    def __init__(
        self,
        choose: Callable[[int], int],
        mix: Mix | None = None,
        sizes: Sequence[int] = SIZES,
        rank: int | None = None,
        fixed_shapes: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
        edges: bool = True,
        binary: bool = False,
        tiles: Tiles = TILES,
        deep: int = DEEP,
    ) -> None:
        self._choose = choose
        self._sizes = tuple(sizes)
        self._draw_count = 0
        self._rank = rank
        self._fixed_shapes = fixed_shapes
        self._edges = edges
        self._binary = binary
        self._free = not fixed_shapes
        self.tiles = tiles
        self.deep = deep
        self.ranked = False
        self.mix: Mix = self.pick(*MIXES) if mix is None else mix

    @classmethod
    def pinned(cls, number: int, sizes: Sequence[int] = SIZES, rank: int | None = None, tiles: Tiles = TILES) -> Choices:
        """Make deterministic choices: plain choices with each mix of values in turn, then different choices for each higher
        number."""
        plain = number < len(MIXES)
        return cls(
            (lambda count: 0) if plain else random.Random(number).randrange, MIXES[number % len(MIXES)], sizes, rank, tiles=tiles
        )

    def pick(self, *options: T) -> T:
        """Pick one of the options, the first in the plain example."""
        return options[self._choose(len(options))]

    def flag(self) -> bool:
        """Pick a boolean, False in the plain example."""
        return self.pick(False, True)

    def each(self, count: int, *options: T) -> tuple[T, ...]:
        """Pick `count` options: the same option each time, or options that differ even if all further choices are plain."""
        if not self.flag():
            return (self.pick(*options),) * count
        distinct = tuple(dict.fromkeys(options))
        starts = (number % len(distinct) for number in range(count))
        return tuple(self.pick(*distinct[start:], *distinct[:start]) for start in starts)

    def below(self, count: int) -> int:
        """Pick a number from 0 to count - 1."""
        return self._choose(count)

    def size(self) -> int:
        """Pick an extent, at least 1. Plain extents differ from each other, so that confused axes are noticed."""
        start = self._draw_count % len(self._sizes)
        self._draw_count += 1
        return self.pick(*self._sizes[start:], *self._sizes[:start])

    def shape(self, min_rank: int = 0, max_rank: int = 4) -> tuple[int, ...]:
        """Pick a shape, sometimes with an empty axis."""
        if not self._free:
            return self._data(min_rank)
        shape = [self.size() for _ in range(self._pick_rank(min_rank, max_rank))]
        if shape and self.below(8) == 7:
            shape[self.below(len(shape))] = 0
        return tuple(shape)

    def solid_shape(self, min_rank: int = 1, max_rank: int = 4) -> tuple[int, ...]:
        """Pick a shape without empty axes."""
        if not self._free:
            return self._data(min_rank)
        return tuple(self.size() for _ in range(self._pick_rank(min_rank, max_rank)))

    def fixed_shape(self, number: int) -> tuple[int, ...] | None:
        """Return the known shape of an argument, None if the caller may pick any shape. A caller must handle every known shape."""
        self._free = True
        return self._fixed_shapes.get(number)

    def _data(self, min_rank: int) -> tuple[int, ...]:
        """Return the first known shape, the shape of the data. Raises `Unfit` if its rank is too small."""
        shape = next(iter(self._fixed_shapes.values()))
        if len(shape) < min_rank:
            raise Unfit
        self._free = True
        return shape

    def _pick_rank(self, min_rank: int, max_rank: int) -> int:
        choice = self.pick(*[rank for rank in RANKS if min_rank <= rank <= max_rank] or [min_rank])
        if self._rank is None or not min_rank <= self._rank <= max_rank:
            return choice
        self.ranked = True
        return self._rank

    def spatial_rank(self) -> int:
        """Pick the number of spatial axes of a window: that of the preferred rank, if any, or 2 in the plain example."""
        options = 2, 1, 3
        choice = self.pick(*options)
        return self._rank - 2 if self._rank is not None and self._rank - 2 in options else choice

    def broadcasting(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Pick shapes that broadcast together."""
        if not self._free:
            return tuple(self._pick_operand_shape(self.fixed_shape(number)) for number in range(count))
        full_shape = self.shape()
        shapes = [full_shape]
        for _ in range(count - 1):
            suffix = full_shape[self.pick(0, 0, len(full_shape) // 2, len(full_shape)) :]
            shapes.append(tuple(1 if self.below(4) == 3 else dim for dim in suffix))
        return tuple(shapes) if self.below(2) == 0 else tuple(reversed(shapes))

    def _pick_operand_shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return `shape`, or pick a shape that broadcasts with the known shapes: the whole shape, some of its axes, or none."""
        if shape is not None:
            return shape
        full_shape = np.broadcast_shapes(*self._fixed_shapes.values())
        by_channel = (*full_shape[1:2], *(1 for _ in full_shape[2:]))
        partial_shape = tuple(1 if self.flag() else dim for dim in full_shape)
        return self.pick(full_shape, full_shape[-1:], by_channel, (), partial_shape)

    def axis(self, rank: int) -> int:
        """Pick an axis, the last in the plain example."""
        return rank - 1 - self.below(rank)

    def axes(self, rank: int) -> tuple[int, ...]:
        """Pick axes in ascending order, the last axes in the plain example."""
        first = self.axis(rank) if rank else 0
        if self.flag():
            return tuple(range(first, rank))
        return tuple(axis for axis in range(rank) if (axis == rank - 1) ^ (self.below(3) == 2))

    def seed(self) -> int:
        """Pick a seed of random values."""
        return self._choose(1 << 16)

    def array(self, shape: Sequence[int], dtype_name: str, low: float | None = None, high: float | None = None) -> Array:
        """Draw values of an element type: in [low, high] if given, else of the example's mix."""
        mix = "special" if self.mix == "edge" and dtype(dtype_name).is_float and not self._edges else self.mix
        return random_array(self.seed() + self._count(), shape, dtype_name, low, high, mix)

    def scales(self, shape: Sequence[int], dtype_name: str, low: float, high: float) -> Array:
        """Draw scales of quantized values."""
        scales = self.array(shape, dtype_name, low, high)
        return np.exp2(np.round(np.log2(scales.astype(np.float32)))).astype(scales.dtype) if self._binary else scales

    def summable(self, shape: Sequence[int], dtype_name: str) -> Array:
        """Draw values whose sums and products do not depend on the order: no extreme floats."""
        if dtype(dtype_name).is_float and self.mix == "edge":
            return self.ordinary(shape, dtype_name)
        return self.array(shape, dtype_name)

    def ordinary(self, shape: Sequence[int], dtype_name: str) -> Array:
        """Draw values with well-conditioned sums of products: finite floats around 1, 8-bit integers of the whole range."""
        return factors(self.seed() + self._count(), shape, dtype_name, 0, "plain")

    def factor(self, shape: Sequence[int], dtype_name: str, number: int) -> Array:
        """Draw operand `number` of a product, as `ordinary` does in the mix plain."""
        return factors(self.seed() + self._count(), shape, dtype_name, number, self.mix)

    def indices(self, shape: Sequence[int], extent: int, dtype_name: str = "int64") -> Array:
        """Draw indices into an axis, including negative indices. Raises `Unfit` for indices into an empty axis."""
        if not extent and 0 not in shape:
            raise Unfit
        return np.random.default_rng(self.seed() + self._count()).integers(-extent, max(extent, 1), tuple(shape)).astype(dtype_name)

    def _count(self) -> int:
        self._draw_count += 1
        return self._draw_count


CONSTANTS = "constants"
"""Kind of the form whose arguments but the first are constants."""


@dataclass(frozen=True)
class Example:
    """A call of an operator, and values for its arguments. `types` has the types of sequences, optionals and strings among them;
    `tiles` and `deep` are those of the choices."""

    operator: Operator
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[int, Type] = field(default_factory=dict)
    tiles: Tiles = TILES
    deep: int = DEEP

    def forms(self) -> tuple[Form, ...]:
        """Return up to three forms of the call: all arguments are variables; the first is a variable and the others are constants;
        all are variables of symbolic sizes. The last two are left out if nothing can change, or the operator refuses the sizes."""
        forms = [Form(self, "", self._function(self._params()), self.inputs)]
        if len(self.inputs) > 1 and not self.types:
            first = ir.var("x0", self._type(0))
            body = self.operator(first, *map(ir.constant, self.inputs[1:]), **self.attrs)
            forms.append(Form(self, CONSTANTS, ir.function((first,), body), self.inputs[:1]))
        if not self.types and any(dim > 1 for value in self.inputs for dim in value.shape):
            # Equal sizes share a name, since the operator may require them to be equal.
            shapes = [tuple(SizeVar(f"n{dim}") if dim > 1 else dim for dim in value.shape) for value in self.inputs]
            types = (TensorType(shape, from_numpy(value.dtype)) for shape, value in zip(shapes, self.inputs, strict=True))
            with contextlib.suppress(InlaidError):
                forms.append(Form(self, "symbolic sizes", self._function(_vars(types)), self.inputs))
        return tuple(forms)

    def _params(self) -> tuple[ir.Var, ...]:
        return _vars(map(self._type, range(len(self.inputs))))

    def _function(self, params: tuple[ir.Var, ...]) -> ir.Function:
        return ir.function(params, self.operator(*params, **self.attrs))

    def _type(self, number: int) -> Type:
        value = self.inputs[number]
        return self.types[number] if number in self.types else TensorType(value.shape, from_numpy(value.dtype))

    def __str__(self) -> str:
        arguments = [
            repr(self.types[number]) if number in self.types else f"{value.dtype}{list(value.shape)}"
            for number, value in enumerate(self.inputs)
        ]
        attrs = [f"{name}={value!r}" for name, value in self.attrs.items()]
        return f"{self.operator.name}({', '.join(arguments + attrs)})"


@dataclass(frozen=True)
class Form:
    """An example as a function whose body is the call, and its inputs. `kind` describes how it differs from a plain call."""

    example: Example
    kind: str
    function: ir.Function
    inputs: tuple[Any, ...]

    @property
    def call(self) -> ir.Call:
        """The operator's call."""
        assert isinstance(self.function.body, ir.Call)
        return self.function.body

    def __str__(self) -> str:
        return f"{self.example} with {self.kind}" if self.kind else str(self.example)


@dataclass(frozen=True)
class Entry:
    """Makes examples of an operator, for each of its element types. An `exact` operator does not round: it moves or selects values,
    or its result is defined exactly. `facets` returns properties of an example besides attributes, as text by name."""

    operator: Operator
    dtypes: tuple[str, ...]
    make: Callable[[Choices, str], Example]
    exact: bool = False
    facets: Callable[[Example], Mapping[str, str]] = lambda example: {}

    def example(self, choices: Choices, dtype_name: str) -> Example:
        """Make an example for an element type."""
        with np.errstate(all="ignore"):
            return self.make(choices, dtype_name)


def definition_entry(operator: Operator, examples: Examples) -> Entry:
    """Make the entry of an operator whose definition has examples."""

    def make(choices: Choices, dtype_name: str) -> Example:
        operands, attrs = examples.make(choices, dtype_name)
        return Example(operator, operands, attrs)

    return Entry(operator, examples.dtypes, make, examples.exact)


FLOATS = ("float32", "float16", "bfloat16", "float64")
NARROW_FLOATS = ("float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz")
FLOATS_OF_ANY_WIDTH = FLOATS + NARROW_FLOATS
INTEGERS = (*("int32", "int8", "uint8", "int64", "int16", "uint16", "uint32", "uint64", "int4", "uint4", "int2", "uint2"),)
NUMBERS = FLOATS_OF_ANY_WIDTH + INTEGERS
COMMON = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
"""Element types that are tested more thoroughly than other types."""
MOVED = (*COMMON, "float64", "float8e4m3fn", "int4", "uint16")
"""Element types of operators that only move values."""


def _vars(types: Iterable[Type]) -> tuple[ir.Var, ...]:
    return tuple(ir.var(f"x{number}", type_) for number, type_ in enumerate(types))
