"""Decides whether two threads can access the same element: compares uniform parts of indices symbolically, enumerates the rest."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.analysis.digits import are_determined
from inlaid_runtime import arith

Values = Mapping[arith.Expr, arith.Expr]
_Array = np.ndarray[Any, Any]
_Counts = dict[arith.Expr, int]
_Parts = tuple[arith.Linear, arith.Expr, arith.Linear]
"""An index split into three terms: one uniform across threads, one that is enumerated, and the remaining terms."""
_Column = tuple[arith.Expr, arith.Expr, int, int]
"""The indices of two accesses along one dimension, the offset to add to the first, and the modulus of the comparison (0: compare
exactly)."""
_MAX_ELEMENTS = 1 << 10
"""Maximum number of elements per thread and access that are enumerated."""
_MAX_CASES = 64
"""Maximum number of cases into which a comparison is split: one per combination of values of the variables that are tried value by
value."""
_MAX_CACHED_POINTS = 1 << 14
"""Maximum number of points of a cached table."""
_MAX_TABLES = 256
"""Maximum number of cached tables."""


@dataclass(frozen=True, slots=True, eq=False)
class GuardedAccess:
    """A read or write of `buffer` at `point` that `stmt` makes if all `guards` hold. `free` maps the variables that are not uniform
    across threads, except thread variables, to their extents (None: any value). `over` are the axes whose threads make the access
    together. `rounds` tell apart the iterations of enclosing loops: pairs of the loop's variable and a number. `barrier_axes` are
    the axes along which threads have synchronized since the access."""

    stmt: ir.Stmt
    buffer: ir.Buffer
    point: tuple[arith.Expr, ...]
    writes: bool
    guards: tuple[arith.Expr, ...]
    free: Mapping[arith.Expr, arith.Expr | None]
    rounds: tuple[tuple[arith.Expr, int], ...]
    over: tuple[str, ...]
    barrier_axes: tuple[str, ...] = ()

    def at(self, values: Values) -> GuardedAccess:
        """Substitute values for uniform variables."""
        point, guards = (tuple(arith.substitute(index, values) for index in side) for side in (self.point, self.guards))
        free = {var: extent and arith.substitute(extent, values) for var, extent in self.free.items()}
        return replace(self, point=point, guards=guards, free=free)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pair of threads that access the same element. `doubt` says why this is uncertain ("" if it is certain)."""

    threads: str
    doubt: str


class Overlaps:
    """Finds overlapping accesses of the threads of one nest at a time, whose loops are in `axes`. `bounds` are the bounds of
    variables, which `analyzer` must know too. `offsets` are the byte offsets of buffers."""

    def __init__(self, analyzer: arith.Analyzer, bounds: arith.Bounds, offsets: Mapping[ir.Buffer, int]) -> None:
        self.axes: Mapping[str, ir.For] = {}
        self._bounds = bounds
        self._analyzer = analyzer
        self._offsets = offsets
        self._forms: dict[GuardedAccess, _Form] = {}
        self._tells_thread_cache: dict[GuardedAccess, bool] = {}
        self._tables: dict[object, _Table] = {}

    def find(self, first: GuardedAccess, second: GuardedAccess) -> Overlap | None:
        """Find two different threads, not synchronized since `first`, such that one makes access `first` and the other access
        `second` to the same element. None if no such threads exist."""
        if first.buffer is not second.buffer:
            first, second = self._in_bytes(first, second)
            return self._compared(first, second, _MAX_CASES)
        if first.point == second.point and not first.over + second.over and self._tells_thread(first):
            return None
        for access in (first, second):
            if access not in self._forms:
                self._forms[access] = self._form(access)
        return self._compared(first, second, _MAX_CASES)

    def _in_bytes(self, *accesses: GuardedAccess) -> Iterator[GuardedAccess]:
        """Rewrite accesses to two buffers that share bytes as accesses to the flat memory of their scope, counted in the largest
        unit that divides both element sizes and both offsets."""
        buffers = [access.buffer for access in accesses]
        unit = math.gcd(*(size for buffer in buffers for size in (buffer.dtype.bytes, self._offsets[buffer])))
        for access, buffer in zip(accesses, buffers, strict=True):
            flat: arith.Expr = arith.ZERO
            for index, extent in zip(access.point, buffer.shape, strict=True):
                flat = flat * extent + index
            part, parts = arith.Var("part"), arith.Const(buffer.dtype.bytes // unit)
            flat = flat * parts + part + self._offsets[buffer] // unit
            yield replace(access, point=(flat,), free={**access.free, part: parts})

    def _tells_thread(self, access: GuardedAccess) -> bool:
        """Test whether the indices of an access determine which thread makes it."""
        if access not in self._tells_thread_cache:
            self._tells_thread_cache[access] = self._tells_thread_anew(access)
        return self._tells_thread_cache[access]

    def _tells_thread_anew(self, access: GuardedAccess) -> bool:
        if any(map(arith.reads_data, access.point)):
            return False
        free_bounds = {var: (0, arith.unwrap(extent - 1)) for var, extent in access.free.items() if extent is not None}
        bounds = {**self._bounds, **free_bounds}
        return are_determined({loop.var: loop.extent for loop in self.axes.values()}, access.point, bounds)

    def _compared(self, first: GuardedAccess, second: GuardedAccess, max_cases: int) -> Overlap | None:
        """Compare two accesses. If the result is uncertain, compare for each value of a uniform variable, up to `max_cases`."""
        result = self._enumerated(first, second)
        if result is None or not result.doubt:
            return result
        for var, values in self._cases(first, second, max_cases):
            sides = ((first.at({var: value}), second.at({var: value})) for value in values)
            overlaps = (self._compared(*pair, max_cases // len(values)) for pair in sides)
            result = next((overlap for overlap in overlaps if overlap is not None), None)
            if result is None:
                break
        return result

    def _cases(self, first: GuardedAccess, second: GuardedAccess, max_cases: int) -> list[tuple[arith.Expr, list[arith.Expr]]]:
        """Return up to two uniform variables, each with a list of cases that cover all its values, the one with the fewest cases
        first: the values of a variable that has few, and the remainders of a variable modulo a constant that an index uses. The
        accesses overlap only if they do so in a case of each variable."""
        private_variables = {loop.var for loop in self.axes.values()} | first.free.keys() | second.free.keys()
        nodes = [node for access in (first, second) for index in access.point + access.guards for node in arith.walk(index)]
        cases = (
            self._values(first, second, nodes, private_variables, max_cases),
            self._remainders(nodes, private_variables, max_cases),
        )
        return sorted((case for case in cases if case is not None), key=lambda case: len(case[1]))

    def _values(
        self,
        first: GuardedAccess,
        second: GuardedAccess,
        nodes: Sequence[arith.Expr],
        private_variables: Collection[arith.Expr],
        max_cases: int,
    ) -> tuple[arith.Expr, list[arith.Expr]] | None:
        for var in dict.fromkeys(node for node in nodes if isinstance(node, arith.Var) and node not in private_variables):
            low, high = self._analyzer.bounds(var)
            if low is not None and high is not None and high - low < max_cases:
                # Number 2 in `rounds` is the iteration after that of the variable; the last iteration has none.
                last = high - ((var, 2) in first.rounds + second.rounds)
                return var, [arith.Const(value) for value in range(low, last + 1)]
        return None

    @staticmethod
    def _remainders(
        nodes: Sequence[arith.Expr], private_variables: Collection[arith.Expr], max_cases: int
    ) -> tuple[arith.Expr, list[arith.Expr]] | None:
        for node in nodes:
            if (
                isinstance(node, arith.FloorMod)
                and isinstance(node.operands[1], arith.Const)
                and node.operands[1].value <= max_cases
            ):
                for uniform in arith.free_vars(node.operands[0]) - set(private_variables):
                    if isinstance(uniform, arith.Var):
                        size = node.operands[1].value
                        return uniform, [arith.Var(uniform.name) * size + digit for digit in range(size)]
        return None

    def _enumerated(self, first: GuardedAccess, second: GuardedAccess) -> Overlap | None:
        """Compare two accesses by enumerating the elements that each thread accesses; uniform terms are compared symbolically."""
        forms = [self._forms.get(access) or self._form(access) for access in (first, second)]
        columns: list[_Column] = []
        doubt = ""
        for index, (uniform, enumerated, rest), (other_uniform, other_enumerated, other_rest) in zip(
            second.point, *(form.parts for form in forms), strict=True
        ):
            uniform = uniform.plus(other_uniform, -1)
            step = math.gcd(*(count for side in (uniform, rest, other_rest) for count in side.terms.values()))
            if step:
                doubt = f"index {index} is not affine in the threads alone, or of too many elements"
            if not step and uniform.constant and isinstance(enumerated, arith.Const) and isinstance(other_enumerated, arith.Const):
                return None
            if step != 1:
                columns.append((enumerated, other_enumerated, uniform.constant, step))
        threads = [bound for loop in self.axes.values() if (bound := arith.bounds(loop.extent)[1]) is not None]
        if len(threads) < len(self.axes):
            return Overlap("", "the number of threads has no constant bound")
        if any(not isinstance(loop.extent, arith.Const) for loop in self.axes.values()):
            doubt = doubt or "the number of threads is not constant"
        sides = zip((first, second), forms, strict=True)
        tables = [self._table(access, form.counts, tuple(threads), first.barrier_axes) for access, form in sides]
        pair = _find_threads(tables[0], tables[1], columns)
        if pair is None:
            return None
        names = " and ".join(self._thread(number, threads) for number in pair)
        return Overlap(names, doubt or tables[0].doubt or tables[1].doubt)

    def _form(self, access: GuardedAccess) -> _Form:
        counts = self._counts(access)
        return _Form(counts, tuple(self._parts(index, access, counts) for index in access.point))

    def _counts(self, access: GuardedAccess) -> _Counts:
        """Return the variables to enumerate, with their numbers of values. Omits the largest if there are too many points."""
        counts = {}
        for index in access.point + access.guards:
            for var in arith.free_vars(index):
                extent = access.free.get(var)
                max_extent = None if extent is None else self._analyzer.bounds(extent)[1]
                if max_extent is not None:
                    counts[var] = max_extent
        while math.prod(counts.values()) > _MAX_ELEMENTS:
            del counts[max(counts, key=counts.__getitem__)]
        return counts

    def _parts(self, index: arith.Expr, access: GuardedAccess, counts: _Counts) -> _Parts:
        """Split an index into its uniform terms, its enumerated terms, and its remaining terms."""
        form = self._analyzer.linear(index)
        threads = {loop.var for loop in self.axes.values()}
        uniform: _Counts = {}
        enumerated: _Counts = {}
        rest: _Counts = {}
        for atom, count in form.terms.items():
            variables = arith.free_vars(atom)
            if arith.reads_data(atom):
                rest[atom] = count
            elif variables.isdisjoint(threads | access.free.keys()):
                uniform[atom] = count
            else:
                (enumerated if variables <= threads | counts.keys() else rest)[atom] = count
        return arith.Linear(uniform, form.constant), arith.Linear(enumerated, 0).expr(), arith.Linear(rest, 0)

    def _table(self, access: GuardedAccess, counts: _Counts, threads: tuple[int, ...], barrier_axes: tuple[str, ...]) -> _Table:
        """Enumerate the points of an access. Tables are cached for accesses with equal variables and guards."""
        axes = tuple((axis, loop.var) for axis, loop in self.axes.items())
        variables = tuple((var, count, access.free[var]) for var, count in counts.items())
        key = (axes, threads, variables, access.guards, access.over, barrier_axes)
        table = self._tables.get(key) or self._table_anew(access, counts, threads, barrier_axes)
        if table.ids.size <= _MAX_CACHED_POINTS and len(self._tables) < _MAX_TABLES:
            self._tables[key] = table
        return table

    def _table_anew(
        self, access: GuardedAccess, counts: _Counts, threads: tuple[int, ...], barrier_axes: tuple[str, ...]
    ) -> _Table:
        numbers = [1 if axis in access.over else count for axis, count in zip(self.axes, threads, strict=True)]
        grid = np.indices((*numbers, *counts.values()), sparse=True)
        values = dict(zip((*(loop.var for loop in self.axes.values()), *counts), grid, strict=True))
        # Threads that act collectively count as one additional thread.
        ids: _Array = np.full((*numbers, *counts.values()), math.prod(threads) if access.over else 0)
        for axis, (name, index) in enumerate(zip(self.axes, grid, strict=False)):
            if name not in barrier_axes:
                ids += index * math.prod(threads[axis + 1 :])
        chosen = np.ones(ids.shape, np.bool_)
        doubt = "" if all(isinstance(access.free[var], arith.Const) for var in counts) else "extents are not constant"
        for guard in map(self._analyzer.simplify, access.guards):
            if arith.reads_data(guard) or not arith.free_vars(guard) <= values.keys():
                doubt = f"this depends on {'data' if arith.reads_data(guard) else guard}"
            else:
                chosen &= _evaluated(guard, values) != 0
        return _Table(values, chosen, ids[chosen], doubt)

    def _thread(self, number: int, threads: list[int]) -> str:
        position = np.unravel_index(number % math.prod(threads), threads)
        return f"({', '.join(f'{axis}={index}' for axis, index in zip(self.axes, position, strict=True))})"


@dataclass(frozen=True, slots=True)
class _Form:
    """The variables of an access that are enumerated, with their numbers of values, and the parts of each index."""

    counts: _Counts
    parts: tuple[_Parts, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """The points of an access at which its guards hold: the values of variables at all points, the mask `chosen` of the points at
    which the guards hold, the thread numbers at these, and any reason for doubt."""

    values: Mapping[arith.Expr, _Array]
    chosen: _Array
    ids: _Array
    doubt: str

    def evaluate(self, index: arith.Expr) -> _Array:
        """Evaluate an index at all points."""
        return np.broadcast_to(_evaluated(index, self.values), self.chosen.shape)[self.chosen]


def _find_threads(first: _Table, second: _Table, columns: Sequence[_Column]) -> tuple[int, int] | None:
    """Find two different threads whose points agree in all columns; None if no such pair exists."""
    if not first.ids.size or not second.ids.size:
        return None
    keys: list[_Array] = [np.zeros(table.ids.size, np.int64) for table in (first, second)]
    for first_index, second_index, offset, step in columns:
        values = [first.evaluate(first_index) + offset, second.evaluate(second_index)]
        values = [value % step for value in values] if step else values
        lows, highs = zip(*((int(value.min()), int(value.max())) for value in values), strict=True)
        if max(lows) > min(highs):
            return None
        least, size = min(lows), 1 + max(highs) - min(lows)
        keys = [key * size + value - least for key, value in zip(keys, values, strict=True)]
    return _threads_at_equal_keys((keys[0], first.ids), (keys[1], second.ids))


def _threads_at_equal_keys(first: tuple[_Array, _Array], second: tuple[_Array, _Array]) -> tuple[int, int] | None:
    """Find two different threads with equal keys, given the keys and thread numbers of two accesses; None if none exist."""
    (first_keys, first_min, first_max), (second_keys, second_min, second_max) = _extremes(*first), _extremes(*second)
    _, first_positions, second_positions = np.intersect1d(first_keys, second_keys, return_indices=True)
    for a, b in (
        (first_min[first_positions], second_max[second_positions]),
        (first_max[first_positions], second_min[second_positions]),
    ):
        differing = np.flatnonzero(a != b)
        if differing.size:
            return int(a[differing[0]]), int(b[differing[0]])
    return None


def _extremes(keys: _Array, ids: _Array) -> tuple[_Array, _Array, _Array]:
    """Return the distinct keys, with the smallest and largest thread number of each."""
    order = np.lexsort((ids, keys))
    keys, ids = keys[order], ids[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    ends = np.append(starts[1:], keys.size) - 1
    return keys[starts], ids[starts], ids[ends[: starts.size]]


_NUMPY: Mapping[type[arith.Expr], Callable[..., Any]] = {
    arith.Add: operator.add, arith.Mul: operator.mul, arith.FloorDiv: operator.floordiv, arith.FloorMod: operator.mod,
    arith.Min: np.minimum, arith.Max: np.maximum, arith.And: np.logical_and, arith.Or: np.logical_or, arith.Not: np.logical_not,
    arith.Select: np.where,
}  # fmt: skip
_COMPARE = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}


def _evaluated(expr: arith.Expr, values: Mapping[arith.Expr, _Array]) -> _Array:
    """Evaluate an expression that reads no data at all points. The result is undefined at points where a divisor is 0."""
    if isinstance(expr, arith.Const):
        return np.asarray(expr.value)
    if expr in values:
        return values[expr]
    parts = [_evaluated(operand, values) for operand in expr.operands]
    with np.errstate(divide="ignore", invalid="ignore"):
        result = _COMPARE[expr.op](*parts) if isinstance(expr, arith.Compare) else _NUMPY[type(expr)](*parts)
    return np.asarray(result, np.int64)
