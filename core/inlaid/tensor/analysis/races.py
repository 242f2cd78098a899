"""Detects data races between the threads of a block, and barriers that only some of its threads reach.

`Races` walks a program with the accesses since the last barrier. Each may conflict with a later access of another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from types import MappingProxyType

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_accesses
from inlaid.tensor.analysis.memory_scopes import LANES, SUBGROUP
from inlaid.tensor.analysis.overlap import GuardedAccess, Overlap, Overlaps, Values
from inlaid.tensor.text import show, show_stmt
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import dtype

Offsets = Mapping[ir.Buffer, int]
"""Byte offsets of buffers in the memory of their scope, as returned by `memory_scopes.places`."""
_NO_OFFSETS: Offsets = MappingProxyType({})
_DATA = arith.Var("data of its own")
_WHILE = arith.Var("while")
_INT64 = dtype("int64")


def check_races(program: ir.LoopProgram, offsets: Offsets = _NO_OFFSETS) -> None:
    """Check that threads of a block do not race, and that all of them reach each barrier and each collective intrinsic.

    A race is two accesses to one element by two threads, one of them a write, without a barrier between. In scope `SUBGROUP`,
    threads of different subgroups never race; in other scopes, a barrier over some axes is ignored. Thread loops must be perfect
    nests; all threads synchronize at their start and end. Buffers whose bytes overlap by `offsets` count as one. Accepts no blocks.

    Raises `ScheduleError`, which names the buffer, both accesses, the loop that carries the race and two threads, and marks the
    second access in the program. It says "cannot prove" if indices are not affine or too many to enumerate."""
    for hazard in Races(program, offsets).hazards():
        raise ScheduleError(f"{program.name}: {hazard.text()}\n{show(program, mark=hazard.at)}")


@dataclass(frozen=True, slots=True, eq=False)
class Hazard:
    """A hazard of a program: a race, or (`diverges`) a statement that only some threads reach. `at` is the statement. `text`
    returns the message; it is a function because printing statements is slow."""

    at: ir.Stmt
    text: Callable[[], str]
    diverges: bool = False


class _UnknownHazard(Exception):
    """Raised at the first hazard that is not in the baseline."""


@dataclass(frozen=True)
class _StmtContext:
    """The context of a statement. `values` maps uniform variables to values; `free` is as in `GuardedAccess`. The values of
    `differing` variables depend on the thread; `varying` variables determine whether a thread reaches the statement."""

    values: Values = field(default_factory=dict)
    free: Mapping[arith.Expr, arith.Expr | None] = field(default_factory=dict)
    guards: tuple[arith.Expr, ...] = ()
    rounds: tuple[tuple[arith.Expr, int], ...] = ()
    differing: frozenset[arith.Expr] = frozenset()
    varying: frozenset[arith.Expr] = frozenset()

    @cached_property
    def key(self) -> object:
        """The parts of a context that determine accesses, as a hashable key."""
        return frozenset(self.values.items()), frozenset(self.free.items()), self.guards, self.rounds

    def shared(self, var: arith.Expr, value: arith.Expr, number: int | None = None) -> _StmtContext:
        """Add a variable that is uniform across threads, and the number of its loop's iteration if given."""
        rounds = self.rounds if number is None else (*self.rounds, (var, number))
        return replace(self, values={**self.values, var: value}, rounds=rounds)

    def owned(self, var: arith.Expr, extent: arith.Expr | None, differs: bool) -> _StmtContext:
        """Add a variable that each thread has a private copy of; `differs` if the value depends on the thread."""
        differing = self.differing | {var} if differs else self.differing
        return replace(self, free={**self.free, var: extent}, differing=differing)


_OpenAccesses = dict[GuardedAccess, None]
"""The accesses since the last barrier, as an ordered set."""


class Races:
    """Finds the hazards of a program, optionally without some of its barriers. Results for pairs of accesses are memoized."""

    def __init__(self, program: ir.LoopProgram, offsets: Offsets = _NO_OFFSETS) -> None:
        self._program = program
        self._offsets = offsets
        accesses_by_stmt = {stmt: tuple(statement_accesses(stmt)) for stmt in ir.walk_stmts(program.body)}
        access_pairs = (pair for pairs in accesses_by_stmt.values() for pair in pairs)
        shared_buffers = {region.buffer for region, access in access_pairs if access & ir.AccessMode.WRITE} | offsets.keys()
        self._accessed = {
            stmt: tuple(pair for pair in pairs if pair[0].buffer in shared_buffers) for stmt, pairs in accesses_by_stmt.items()
        }
        self._barriers_in: dict[ir.Stmt, tuple[ir.Barrier, ...]] = {}
        self._relevant: set[ir.Stmt] = set()
        self._survey(program.body)
        bounds = variable_bounds(program.body)
        self._analyzer = arith.Analyzer(bounds)
        self._overlaps = Overlaps(self._analyzer, bounds, offsets)
        self._private: set[ir.Buffer] = set()
        self._axes: dict[str, ir.For] = {}
        self._removed_barriers: Collection[ir.Stmt] = ()
        self._lane_barriers: Collection[ir.Stmt] = ()
        self._baseline: Collection[Hazard] | None = None
        self._access_cache: dict[object, tuple[GuardedAccess, ...]] = {}
        self._derived_accesses: dict[object, GuardedAccess] = {}
        self._clashes: dict[tuple[GuardedAccess, GuardedAccess], Hazard | None] = {}
        self._sharing: dict[tuple[ir.Buffer, ir.Buffer], bool] = {}
        self._divergences: dict[tuple[ir.Stmt, object], Hazard] = {}
        self._symbols: dict[object, arith.Var] = {}
        self._hazards: dict[Hazard, None] = {}

    def hazards(self, removed_barriers: Collection[ir.Stmt] = (), lane_barriers: Collection[ir.Stmt] = ()) -> list[Hazard]:
        """Return the hazards of the program without `removed_barriers`, and with `lane_barriers` narrowed to subgroups (over
        `LANES`). A hazard found by several calls is the same object."""
        self._removed_barriers, self._lane_barriers, self._baseline = frozenset(removed_barriers), frozenset(lane_barriers), None
        self._hazards = {}
        self._nests(self._program.body, _StmtContext())
        return list(self._hazards)

    def adds(
        self, baseline: Collection[Hazard], removed_barriers: Collection[ir.Stmt] = (), lane_barriers: Collection[ir.Stmt] = ()
    ) -> bool:
        """Test whether `hazards` would return a hazard that is not in `baseline`. Stops at the first one."""
        self._removed_barriers, self._lane_barriers, self._baseline = (
            frozenset(removed_barriers),
            frozenset(lane_barriers),
            baseline,
        )
        try:
            self._nests(self._program.body, _StmtContext())
        except _UnknownHazard:
            return True
        return False

    # -- walking --

    def _survey(self, stmt: ir.Stmt) -> None:
        """Record the barriers in a statement, and whether any part of the statement can cause hazards."""
        parts = ir.substatements(stmt)
        for part in parts:
            self._survey(part)
        direct_barriers = (stmt,) if isinstance(stmt, ir.Barrier) else ()
        self._barriers_in[stmt] = (*direct_barriers, *(barrier for part in parts for barrier in self._barriers_in[part]))
        may_conflict = isinstance(stmt, ir.Barrier) or bool(self._accessed[stmt])
        may_conflict = (
            may_conflict or (isinstance(stmt, ir.Intrinsic) and bool(stmt.over)) or (isinstance(stmt, ir.For) and stmt.over_threads)
        )
        if may_conflict or not self._relevant.isdisjoint(parts):
            self._relevant.add(stmt)

    def _nests(self, stmt: ir.Stmt, context: _StmtContext) -> None:
        """Walk the nests of thread loops in a statement."""
        if not isinstance(stmt, ir.For) or not stmt.over_threads:
            for part in ir.substatements(stmt):
                self._nests(part, context)
            return
        body: ir.Stmt = stmt
        self._axes = {}
        while isinstance(body, ir.For) and body.over_threads:
            self._axes[body.thread] = body
            body = body.body
        self._private = {node.buffer for node in ir.walk_stmts(body) if isinstance(node, ir.Alloc)}
        self._overlaps.axes = self._axes
        self._walk(body, replace(context, differing=frozenset(loop.var for loop in self._axes.values())), {})

    def _walk(self, stmt: ir.Stmt, context: _StmtContext, before: _OpenAccesses) -> _OpenAccesses:
        """Return the accesses open after a statement, given the accesses open before it."""
        if stmt not in self._relevant:
            return before
        if isinstance(stmt, ir.Barrier):
            if stmt in self._removed_barriers:
                return before
            self._check_reached(stmt, context, context.varying, "a barrier")
            axes = (LANES,) if stmt in self._lane_barriers else stmt.over
            return {open_access: None for access in before if (open_access := self._after(access, axes)) is not None}
        if isinstance(stmt, ir.Seq):
            for item in stmt.stmts:
                before = self._walk(item, context, before)
            return before
        if isinstance(stmt, ir.Intrinsic) and not self._axes.keys().isdisjoint(stmt.over):
            other_variables = {loop.var for axis, loop in self._axes.items() if axis not in stmt.over}
            self._check_reached(stmt, context, context.varying - other_variables, f"collective intrinsic {stmt.name}")
        open_accesses = self._with_accesses(before, self._shared_accesses(stmt, context))
        match stmt:
            case ir.Alloc(body=body):
                return self._walk(body, context, open_accesses)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                index = condition.index if isinstance(condition, ir.Index) else arith.Opaque(condition, 0, 1)
                index = self._value(index, context)
                inner_context = replace(context, varying=context.varying | self._depends(context, condition))
                first = self._walk(then, replace(inner_context, guards=(*context.guards, index)), open_accesses)
                negated = replace(inner_context, guards=(*context.guards, arith.logical_not(index)))
                return first | (open_accesses if otherwise is None else self._walk(otherwise, negated, open_accesses))
            case ir.Let(var=var, value=value, body=body):
                return self._walk(body, self._let(var, value, context), open_accesses)
            case ir.While(condition=condition, body=body):
                inner_context = replace(context, varying=context.varying | self._depends(context, condition))
                for number in (1, 2):
                    after = self._walk(body, replace(inner_context, rounds=(*context.rounds, (_WHILE, number))), open_accesses)
                    open_accesses = open_accesses | self._with_accesses(after, self._shared_accesses(stmt, context))
                return open_accesses
            case ir.For() if self._may_stop(stmt):
                return self._rounds(stmt, context, open_accesses)
            case ir.For(var=var, extent=extent, body=body):
                if stmt.over_threads:
                    self._report(stmt, f"expected one perfect nest of loops over threads, found loop {var} inside (see to_spmd)")
                dependences = self._depends(context, ir.Index(_INT64, extent))
                inner_context = context.owned(var, self._value(extent, context), bool(dependences | context.varying))
                return self._walk(body, replace(inner_context, varying=context.varying | dependences), open_accesses)
        return open_accesses

    def _rounds(self, loop: ir.For, context: _StmtContext, before: _OpenAccesses) -> _OpenAccesses:
        """Walk a loop with barriers. If every iteration has a barrier, an iteration can conflict only with the next iteration."""
        extent, var, body = self._value(loop.extent, context), loop.var, loop.body
        context = replace(context, varying=context.varying | self._depends(context, ir.Index(_INT64, loop.extent)))
        after_no_iteration = {} if self._analyzer.prove(arith.compare("<", 0, extent)) else before
        if not self._always_stops(body):
            for number in (1, 2):
                symbol = self._symbol(var, (context.rounds, number))
                before = before | self._walk(body, context.shared(var, symbol, number), before)
            return before
        after_first = self._walk(body, context.shared(var, arith.ZERO, 0), before)
        if self._analyzer.prove(arith.compare("<=", extent, 1)):
            return after_no_iteration | after_first
        after_one_iteration = self._walk(body, context.shared(var, var, 1), {})
        self._walk(body, context.shared(var, var + 1, 2), after_one_iteration)
        return after_no_iteration | {self._with(access, {var: extent - 1}): None for access in after_one_iteration}

    def _let(self, var: arith.Var, value: ir.Expr, context: _StmtContext) -> _StmtContext:
        if isinstance(value, ir.Index) and not arith.reads_data(value.index):
            return context.shared(var, self._value(value.index, context))
        differs = bool(self._depends(context, value) | context.varying)
        if differs or context.free:
            return context.owned(var, None, differs)
        return context.shared(var, self._symbol(var, context.rounds))

    def _symbol(self, *key: object) -> arith.Var:
        return self._symbols.setdefault(key, arith.Var(f"{key[0]}"))

    def _may_stop(self, stmt: ir.Stmt) -> bool:
        """Test whether a statement contains a barrier that is not removed."""
        return any(barrier not in self._removed_barriers for barrier in self._barriers_in[stmt])

    def _always_stops(self, stmt: ir.Stmt) -> bool:
        """Test whether every path through a statement passes a barrier over all threads."""
        match stmt:
            case ir.Barrier(over=over):
                return not over and stmt not in self._removed_barriers and stmt not in self._lane_barriers
            case _ if not self._may_stop(stmt):
                return False
            case ir.If(then=then, otherwise=otherwise):
                return otherwise is not None and self._always_stops(then) and self._always_stops(otherwise)
            case ir.For(extent=extent) if not self._analyzer.prove(arith.compare("<", 0, extent)):
                return False
            case ir.While():
                return False
        return any(map(self._always_stops, ir.substatements(stmt)))

    def _depends(self, context: _StmtContext, value: ir.Expr) -> frozenset[arith.Expr]:
        """Return the thread-dependent variables on which a value depends."""
        value = value.substitute(context.values)
        data = any(isinstance(node, ir.Load) and node.buffer in self._private for node in ir.walk_exprs(value))
        return (value.free_vars() & context.differing) | ({_DATA} if data else set())

    def _check_reached(self, stmt: ir.Stmt, context: _StmtContext, varying: frozenset[arith.Expr], subject: str) -> None:
        if varying:
            names = ", ".join(sorted(f"{var}" for var in varying))
            self._report(
                stmt,
                f"expected all threads to reach {subject}, found it under conditions or loops that depend on {names}; move it out "
                f"of them, or put the condition on the statements beside it",
            )

    def _report(self, stmt: ir.Stmt, text: str) -> None:
        self._note(self._divergences.setdefault((stmt, text), Hazard(stmt, lambda: text, True)))

    def _note(self, hazard: Hazard) -> None:
        if self._baseline is not None and hazard not in self._baseline:
            raise _UnknownHazard
        self._hazards[hazard] = None

    def _value(self, index: arith.Expr, context: _StmtContext) -> arith.Expr:
        return arith.substitute(index, context.values)

    # -- accesses --

    def _with_accesses(self, before: _OpenAccesses, new: tuple[GuardedAccess, ...]) -> _OpenAccesses:
        """Add accesses to the open ones, and note the races of each with all open accesses."""
        if not new:
            return before
        after = before | dict.fromkeys(new)
        for second in new:
            for first in after:
                if (first.writes or second.writes) and (first.buffer is second.buffer or self._share(first.buffer, second.buffer)):
                    pair = (first, second)
                    if pair not in self._clashes:
                        self._clashes[pair] = self._clash(first, second)
                    hazard = self._clashes[pair]
                    if hazard is not None:
                        self._note(hazard)
        return after

    def _share(self, a: ir.Buffer, b: ir.Buffer) -> bool:
        if (a, b) not in self._sharing:
            self._sharing[a, b] = share_bytes(a, b, self._offsets)
        return self._sharing[a, b]

    def _shared_accesses(self, stmt: ir.Stmt, context: _StmtContext) -> tuple[GuardedAccess, ...]:
        """Return the accesses of a statement to memory shared by threads, without those of its substatements."""
        if not self._accessed[stmt]:
            return ()
        key = (stmt, context.key)
        if key not in self._access_cache:
            self._access_cache[key] = tuple(self._accesses(stmt, context))
        return self._access_cache[key]

    def _accesses(self, stmt: ir.Stmt, context: _StmtContext) -> Iterator[GuardedAccess]:
        over = tuple(axis for axis in self._axes if axis in stmt.over) if isinstance(stmt, ir.Intrinsic) else ()
        for region, access in self._accessed[stmt]:
            if region.buffer not in self._private:
                free = dict(context.free)
                point = []
                for first, extent in region.ranges:
                    point.append(self._value(first, context))
                    if extent != arith.ONE:
                        element = arith.Var("element")
                        point[-1] += element
                        free[element] = self._value(extent, context)
                for kind in access:
                    writes = kind is ir.AccessMode.WRITE
                    yield GuardedAccess(stmt, region.buffer, tuple(point), writes, context.guards, free, context.rounds, over)

    def _after(self, access: GuardedAccess, axes: tuple[str, ...]) -> GuardedAccess | None:
        """Return an open access as it is after a barrier over `axes`; None if the barrier orders it before all later accesses."""
        if access.buffer.scope != SUBGROUP:
            return access if axes else None
        barrier_axes = tuple(axis for axis in self._axes if axis in (*access.barrier_axes, LANES))
        if len(barrier_axes) == len(self._axes):
            return None
        key = (access, barrier_axes)
        if key not in self._derived_accesses:
            self._derived_accesses[key] = (
                access if barrier_axes == access.barrier_axes else replace(access, barrier_axes=barrier_axes)
            )
        return self._derived_accesses[key]

    def _with(self, access: GuardedAccess, values: Values) -> GuardedAccess:
        key = (access, frozenset(values.items()))
        if key not in self._derived_accesses:
            self._derived_accesses[key] = access.at(values)
        return self._derived_accesses[key]

    def _clash(self, first: GuardedAccess, second: GuardedAccess) -> Hazard | None:
        """Return the race between two accesses by different threads; None if they cannot race."""
        overlap = self._overlaps.find(first, second)
        if overlap is None:
            return None
        rounds = zip(first.rounds, second.rounds, strict=False)
        loop = next((f", carried by loop {a[0]}" for a, b in rounds if a != b), "")
        if not loop and (common := [var for var in first.free if var in second.free]):
            loop = f", in loop {common[-1]}"
        return Hazard(second.stmt, partial(_race, first, second, overlap, loop))


def _race(first: GuardedAccess, second: GuardedAccess, overlap: Overlap, loop: str) -> str:
    """Return the message for a race between two accesses."""
    names = f"{first.buffer}" if first.buffer is second.buffer else f"{first.buffer} and {second.buffer}, which share bytes"
    remedy = "put a barrier between them, or change an index"
    if first.stmt is second.stmt and first.rounds == second.rounds:
        remedy = "give each thread elements of its own"
    texts = " and ".join(f"`{_line(access.stmt)}` ({'write' if access.writes else 'read'})" for access in (first, second))
    if overlap.doubt:
        return f"cannot prove that no two threads race for {names}: {texts}{loop}; {overlap.doubt}; {remedy}"
    return f"threads {overlap.threads} race for {names}: {texts}{loop}; {remedy}"


def share_bytes(a: ir.Buffer, b: ir.Buffer, offsets: Offsets) -> bool:
    """Test whether two buffers are the same, or overlap in the memory of their scope."""
    if a is b:
        return True
    if a.scope != b.scope or a not in offsets or b not in offsets:
        return False
    sizes = (prod(arith.bounds(dim)[1] or 0 for dim in item.shape) * item.dtype.bytes for item in (a, b))
    ends = [offsets[item] + size for item, size in zip((a, b), sizes, strict=True)]
    return max(offsets[a], offsets[b]) < min(ends)


def _line(stmt: ir.Stmt) -> str:
    """Return the first line of a statement's text."""
    return next(line for line in map(str.strip, show_stmt(stmt).splitlines()) if not line.startswith("%"))


def variable_bounds(body: ir.Stmt) -> dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]:
    """Return the bounds of a program's variables. Copies of a loop (made by unrolling) may share a variable."""
    bounds_by_variable: dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]] = {}
    for stmt in ir.walk_stmts(body):
        if isinstance(stmt, ir.For):
            bounds = (0, arith.unwrap(stmt.extent - 1))
            bounds_by_variable[stmt.var] = bounds if bounds_by_variable.get(stmt.var, bounds) == bounds else (0, None)
        elif isinstance(stmt, ir.Let) and stmt.bounds is not None:
            bounds_by_variable[stmt.var] = (arith.unwrap(stmt.bounds[0]), arith.unwrap(stmt.bounds[1]))
    return bounds_by_variable
