"""Lowers fork-join kernels to SPMD form: one nest of thread loops around all phases, with the barriers that prevent races."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inlaid.tensor import ir
from inlaid.tensor.analysis.digits import is_determined
from inlaid.tensor.analysis.footprint import statement_accesses
from inlaid.tensor.analysis.memory_scopes import LANES, SUBGROUP
from inlaid.tensor.analysis.races import Offsets, Races, share_bytes, variable_bounds
from inlaid.tensor.primitives.lookup import failed
from inlaid.tensor.transform.lower_blocks import guarded, joined, mapped, simplify_program
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope

_NO_OFFSETS: Offsets = MappingProxyType({})
_REMEDY = "allocate it inside the loops over threads, or give it a dimension for each axis of threads"


def to_spmd(
    program: ir.LoopProgram, scopes: Sequence[MemoryScope], offsets: Offsets = _NO_OFFSETS, subgroup: int = 0
) -> ir.LoopProgram:
    """Lower a kernel to SPMD form. Its block loops, if any, must be one perfect nest.

        alloc s in "shared": { n[0] = 8; for t in 32, threadIdx.x: s[t] = x[t]; for u in 16, threadIdx.x: y[u] = s[31 - u] }
    becomes
        alloc s in "shared": for t in 32, threadIdx.x: { if t == 0: n[0] = 8; s[t] = x[t]; barrier; if t < 16: y[t] = s[31 - t] }

    Buffers that blocks own are allocated around the thread loops. A buffer that threads own and that is live across phases is split
    into one part per thread. A barrier separates phases and ends a serial loop around phases, unless provably redundant; `offsets`
    are the byte offsets of buffers that share memory. A barrier that only buffers of scope `SUBGROUP` need is over `LANES`;
    `subgroup` is the number of threads of a subgroup. `check_races` checks the phases themselves. Expects no blocks or virtual
    threads.

    Raises `ScheduleError` for scopes that the target does not declare, an extent of `LANES` that does not divide the subgroup,
    thread loops that cannot be one nest, a divergent barrier, and a per-thread buffer with elements that several threads use.
    """
    body = program.body
    outer_stmts: list[ir.For | ir.Let] = []
    while isinstance(body, ir.Let) or (isinstance(body, ir.For) and body.kind is ir.ForKind.THREAD and not body.over_threads):
        outer_stmts.append(body)
        body = body.body
    kernel = _SpmdLowering(program, scopes, body, offsets, subgroup)
    body = kernel.body()
    for outer in reversed(outer_stmts):
        body = replace(outer, body=body)
    program = simplify_program(replace(program, body=body))
    return _remove_redundant(program, offsets, any(buffer.scope == SUBGROUP for buffer in kernel.hoisted))


@dataclass(frozen=True, slots=True)
class _ThreadAxis:
    var: arith.Var
    extent: arith.Expr


@dataclass(frozen=True, slots=True)
class _ThreadContext:
    """The thread loops around a statement: axes, substitutions of loop variables, and guards of loops shorter than their axis."""

    axes: frozenset[str] = frozenset()
    variables: Mapping[arith.Expr, arith.Expr] = field(default_factory=dict)
    guards: arith.Expr = arith.ONE


class _SpmdLowering:
    """Lowers the statements of one kernel. `hoisted` are the buffers that are allocated around its thread loops."""

    def __init__(
        self, program: ir.LoopProgram, scopes: Sequence[MemoryScope], body: ir.Stmt, offsets: Offsets, subgroup: int
    ) -> None:
        self._program = program
        self._offsets = offsets
        self._body = body
        self._owners = {"": "", "register": "thread"} | {scope.name: scope.owner for scope in scopes}
        self._owners |= {SUBGROUP: "block"} if subgroup else {}
        self._subgroup = subgroup
        self._analyzer = arith.Analyzer(variable_bounds(program.body))
        self._inner = {stmt.var for stmt in ir.walk_stmts(body) if isinstance(stmt, (ir.For, ir.Let))}
        self.hoisted: dict[ir.Buffer, None] = {}
        self._axes: dict[str, _ThreadAxis] = {}
        for stmt in ir.walk_stmts(body):
            if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD:
                self._extend_axis(stmt)

    def body(self) -> ir.Stmt:
        """Build the nest of thread loops. Allocations of buffers that a block owns are hoisted out of it, into `hoisted`."""
        body = self._stmt(self._body, _ThreadContext())
        for axis in sorted(self._axes):
            body = ir.For(self._axes[axis].var, self._axes[axis].extent, body, ir.ForKind.THREAD, axis)
        for buffer in reversed(self.hoisted):
            if buffer.scope == SUBGROUP:
                self._check_lanes(buffer)
            body = ir.Alloc(buffer, body)
        return body

    def _check_lanes(self, buffer: ir.Buffer) -> None:
        """Check that threads that differ only along `LANES` are in one subgroup."""
        lanes = self._axes[LANES].extent if LANES in self._axes else arith.ONE
        if not isinstance(lanes, arith.Const) or self._subgroup % lanes.value:
            problem = f"expected a divisor of {self._subgroup} as extent of {LANES}, found {lanes}"
            remedy = "bind shorter loops to it, or give the buffer a scope that a block owns"
            raise failed(self._program, f"buffer {buffer} in scope {SUBGROUP!r}: {problem}", self._body, remedy)

    def _extend_axis(self, loop: ir.For) -> None:
        """Extend the axis of a thread loop to the extent of the loop."""
        if not loop.over_threads:
            raise failed(self._program, f"loop {loop.var} over {loop.thread} must be around all statements of its kernel", loop)
        extent = loop.extent
        if not self._inner.isdisjoint(arith.free_vars(extent)) or arith.reads_data(extent):
            max_extent = self._analyzer.bounds(extent)[1]
            if max_extent is None:
                problem = f"loop {loop.var} over {loop.thread}: expected an extent with a constant upper bound, found {extent}"
                raise failed(self._program, problem, loop)
            extent = arith.Const(max_extent)
        axis = self._axes.setdefault(loop.thread, _ThreadAxis(arith.Var(loop.thread), extent))
        if not self._analyzer.prove(arith.compare("<=", extent, axis.extent)):
            larger = self._analyzer.prove(arith.compare("<=", axis.extent, extent))
            self._axes[loop.thread] = _ThreadAxis(axis.var, extent if larger else arith.maximum(axis.extent, extent))

    # -- statements --

    def _stmt(self, stmt: ir.Stmt, context: _ThreadContext) -> ir.Stmt:
        if not any(map(_is_thread_stmt, ir.walk_stmts(stmt))):
            return self._guarded(stmt, context)
        rewriter = Rewriter(context.variables)
        if context.guards != arith.ONE and any(map(arith.reads_data, _controls(stmt))):
            raise failed(self._program, "guarded control flow around thread loops must not depend on data", stmt)
        match stmt:
            case ir.For() if stmt.over_threads:
                if stmt.thread in context.axes:
                    raise failed(
                        self._program, f"loop {stmt.var}: expected an axis without an enclosing loop, found {stmt.thread}", stmt
                    )
                axis, extent = self._axes[stmt.thread], rewriter.index(stmt.extent)
                variables = {**context.variables, stmt.var: axis.var}
                equal = self._analyzer.equal(extent, axis.extent)
                guards = context.guards if equal else arith.logical_and(context.guards, arith.compare("<", axis.var, extent))
                return self._stmt(stmt.body, _ThreadContext(context.axes | {stmt.thread}, variables, guards))
            case ir.For(var=var, extent=extent, body=body):
                if stmt.kind is not ir.ForKind.SERIAL:
                    raise failed(
                        self._program, f"loop {var}: expected a serial loop around thread loops, found {stmt.kind.value}", stmt
                    )
                looped = joined(self._stmt(body, context), ir.Barrier())
                return replace(stmt, extent=rewriter.index(extent), body=looped)
            case ir.While(condition=condition, body=body):
                return ir.While(rewriter.expr(condition), joined(self._stmt(body, context), ir.Barrier()))
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                other = None if otherwise is None else self._stmt(otherwise, context)
                return ir.If(rewriter.expr(condition), self._stmt(then, context), other)
            case ir.Let(value=value, bounds=bounds, body=body):
                limits = bounds and (rewriter.index(bounds[0]), rewriter.index(bounds[1]))
                return replace(stmt, value=rewriter.expr(value), bounds=limits, body=self._stmt(body, context))
            case ir.Seq(stmts=stmts):
                return joined(*self._phases(stmts, context))
            case ir.Alloc():
                return self._alloc(stmt, context)
        return self._guarded(stmt, context)

    def _phases(self, stmts: tuple[ir.Stmt, ...], context: _ThreadContext) -> Iterator[ir.Stmt]:
        """Yield statements in order, and join adjacent statements without thread loops. A barrier precedes each statement that
        accesses a buffer written since the last barrier, or writes a buffer accessed since the last barrier."""
        pending_stmts: list[ir.Stmt] = []
        writes_since_barrier: dict[ir.Buffer, bool] = {}
        for stmt in (*stmts, None):
            if stmt is not None and not any(map(_is_thread_stmt, ir.walk_stmts(stmt))):
                pending_stmts.append(stmt)
                continue
            for item in ([joined(*pending_stmts)] if pending_stmts else []) + ([] if stmt is None else [stmt]):
                writes_by_buffer = self._touched(item)
                if self._have_conflict(writes_since_barrier, writes_by_buffer):
                    yield ir.Barrier()
                    writes_since_barrier = {}
                writes_since_barrier |= {
                    buffer: writes or writes_since_barrier.get(buffer, False) for buffer, writes in writes_by_buffer.items()
                }
                yield self._stmt(item, context)
            pending_stmts = []

    def _touched(self, stmt: ir.Stmt) -> dict[ir.Buffer, bool]:
        """Map the buffers that a statement accesses and threads may share to whether the statement writes them."""
        writes_by_buffer: dict[ir.Buffer, bool] = {}
        for node in ir.walk_stmts(stmt):
            for region, access in statement_accesses(node):
                if self._owners.get(region.buffer.scope) != "thread":
                    writes_by_buffer[region.buffer] = writes_by_buffer.get(region.buffer, False) or bool(
                        access & ir.AccessMode.WRITE
                    )
        return writes_by_buffer

    def _have_conflict(self, before: Mapping[ir.Buffer, bool], after: Mapping[ir.Buffer, bool]) -> bool:
        """Test whether one of two sets of accesses writes a buffer, or bytes shared with it, that the other set accesses."""
        pairs = ((a, b) for a, first in before.items() for b, second in after.items() if first or second)
        return any(share_bytes(a, b, self._offsets) for a, b in pairs)

    def _guarded(self, stmt: ir.Stmt, context: _ThreadContext) -> ir.Stmt:
        """Restrict a statement to thread 0 of each axis, except the axes of enclosing loops and of a collective intrinsic."""
        condition = context.guards
        collective_axes = stmt.over if isinstance(stmt, ir.Intrinsic) else ()
        for name, axis in sorted(self._axes.items()):
            if name not in context.axes and name not in collective_axes:
                condition = arith.logical_and(condition, arith.compare("==", axis.var, 0))
        return guarded(Rewriter(context.variables, stmt=self._hoist).stmt(stmt), condition)

    # -- buffers --

    def _hoist(self, stmt: ir.Stmt) -> ir.Stmt | None:
        """Record an allocation that a block owns and return its body; None for any other statement."""
        if not isinstance(stmt, ir.Alloc) or self._owner(stmt) != "block":
            return None
        if any(not self._inner.isdisjoint(arith.free_vars(dim)) for dim in stmt.buffer.shape):
            raise failed(self._program, f"buffer {stmt.buffer}: the shape must be equal for all threads", stmt)
        self.hoisted[stmt.buffer] = None
        return stmt.body

    def _owner(self, alloc: ir.Alloc) -> str:
        owner = self._owners.get(alloc.buffer.scope)
        if owner is None:
            raise failed(self._program, f"buffer {alloc.buffer}: the target does not declare scope {alloc.buffer.scope!r}", alloc)
        return owner

    def _alloc(self, alloc: ir.Alloc, context: _ThreadContext) -> ir.Stmt:
        """Lower an allocation that encloses thread loops."""
        hoisted = self._hoist(alloc)
        body = self._stmt(alloc.body, context)
        if hoisted is not None:
            return body
        if self._owner(alloc) != "thread":
            problem = f"buffer {alloc.buffer} in scope {alloc.buffer.scope!r} must be allocated outside the kernel"
            raise failed(self._program, problem, alloc, "give it a scope that a block or a thread owns")
        missing = {name: axis for name, axis in self._axes.items() if name not in context.axes}
        return _thread_part(self._program, alloc, body, self._axes.values(), missing)


def _is_thread_stmt(stmt: ir.Stmt) -> bool:
    """Test whether a statement is a thread loop or a collective intrinsic."""
    return (isinstance(stmt, ir.For) and stmt.over_threads) or (isinstance(stmt, ir.Intrinsic) and bool(stmt.over))


def _controls(stmt: ir.Stmt) -> Iterator[arith.Expr]:
    """Yield the extents, conditions and values that control a statement. Data is an opaque index."""
    match stmt:
        case ir.For(extent=extent):
            yield extent
        case ir.If(condition=value) | ir.While(condition=value) | ir.Let(value=value):
            yield value.index if isinstance(value, ir.Index) else arith.Opaque(value, 0, 1)


def _thread_part(
    program: ir.LoopProgram, alloc: ir.Alloc, body: ir.Stmt, axes: Collection[_ThreadAxis], missing: Mapping[str, _ThreadAxis]
) -> ir.Stmt:
    """Split a per-thread buffer that is allocated around loops over the missing axes, and keep the part of one thread. Elements
    that only collective intrinsics use stay shared."""
    bounds = variable_bounds(body) | {axis.var: (0, arith.unwrap(axis.extent - 1)) for axis in axes}
    analyzer = arith.Analyzer(bounds)
    accesses = [
        (stmt, region) for stmt in ir.walk_stmts(body) for region, _ in statement_accesses(stmt) if region.buffer is alloc.buffer
    ]
    if not accesses:
        return body
    collective_axes = [stmt.over if isinstance(stmt, ir.Intrinsic) else () for stmt, _ in accesses]
    split_axes = [axis for name, axis in missing.items() if any(name not in over for over in collective_axes)]
    starts: list[arith.Expr] = []
    widths: list[arith.Dim] = []
    indices: list[arith.Expr] = []
    for dim in range(len(alloc.buffer.shape)):
        ranges = [region.ranges[dim] for _, region in accesses]
        bases = [_thread_terms(analyzer.linear(first), {axis.var for axis in axes}) for first, _ in ranges]
        spans = [analyzer.bounds(first - base) for (first, _), base in zip(ranges, bases, strict=True)]
        ends = [analyzer.bounds(first + extent - base)[1] for (first, extent), base in zip(ranges, bases, strict=True)]
        is_uniform = all(analyzer.equal(base, bases[0]) for base in bases) and all(low is not None and low >= 0 for low, _ in spans)
        const_ends = [end for end in ends if end is not None]
        if not is_uniform or len(const_ends) < len(ends):
            raise failed(program, f"buffer {alloc.buffer}: all accesses of a thread must be in one part of it", alloc, _REMEDY)
        starts.append(bases[0])
        widths.append(max(const_ends))
        element = arith.Var("element")
        bounds[element] = (0, max(const_ends) - 1)
        indices.append(bases[0] + element)
    for axis in split_axes:
        if not is_determined(axis.var, axis.extent, indices, bounds):
            problem = f"buffer {alloc.buffer} in scope {alloc.buffer.scope!r}: each thread must use distinct elements"
            raise failed(program, f"{problem}, but threads of {axis.var} share some", alloc, _REMEDY)
    part = replace(alloc.buffer, shape=tuple(widths))

    def part_indices(indices: Iterable[arith.Expr]) -> tuple[arith.Expr, ...]:
        return tuple(analyzer.simplify(index - start) for index, start in zip(indices, starts, strict=True))

    def load(node: ir.Expr) -> ir.Expr | None:
        return ir.load(part, part_indices(node.indices)) if isinstance(node, ir.Load) and node.buffer is alloc.buffer else None

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        match stmt:
            case ir.Store(buffer=buffer, indices=indices, value=value) if buffer is alloc.buffer:
                return ir.Store(part, part_indices(indices), value)
            case ir.Intrinsic(regions=regions):
                return replace(stmt, regions=tuple(map(region, regions)))
        return None

    def region(original: ir.BufferRegion) -> ir.BufferRegion:
        if original.buffer is not alloc.buffer:
            return original
        firsts = part_indices(first for first, _ in original.ranges)
        return ir.BufferRegion(part, tuple((first, extent) for first, (_, extent) in zip(firsts, original.ranges, strict=True)))

    return ir.Alloc(part, Rewriter(expr=load, stmt=change).stmt(body))


def _thread_terms(form: arith.Linear, threads: Collection[arith.Expr]) -> arith.Expr:
    """Return the terms of an index that depend only on thread axes."""
    terms = {atom: count for atom, count in form.terms.items() if arith.free_vars(atom) and arith.free_vars(atom) <= set(threads)}
    return arith.Linear(terms, 0).expr()


# --- redundant barriers -----------------------------------------------------------------------------------------------


def _remove_redundant(program: ir.LoopProgram, offsets: Offsets, subgroups: bool) -> ir.LoopProgram:
    """Remove barriers that no race requires, innermost first. With `subgroups`, narrow barriers that are required only by buffers
    of scope `SUBGROUP` to `LANES`."""
    races = Races(program, offsets)
    baseline = set(races.hazards())
    removed_barriers: list[ir.Stmt] = []
    barriers = _innermost_first(program.body)

    # The analysis is more precise for loops without barriers: a removal may prove another barrier redundant.
    def redundant() -> ir.Stmt | None:
        return next((barrier for barrier in barriers if not races.adds(baseline, [*removed_barriers, barrier])), None)

    while (barrier := redundant()) is not None:
        removed_barriers.append(barrier)
        barriers.remove(barrier)
    for hazard in races.hazards(removed_barriers):
        if hazard.diverges:
            raise failed(program, hazard.text(), hazard.at)

    lane_barriers: list[ir.Stmt] = []
    for barrier in barriers if subgroups else ():
        if not races.adds(baseline, removed_barriers, [*lane_barriers, barrier]):
            lane_barriers.append(barrier)

    def rewritten(stmt: ir.Stmt) -> ir.Stmt:
        if stmt in lane_barriers:
            return ir.Barrier((LANES,))
        return ir.Seq(()) if stmt in removed_barriers else mapped(stmt, rewritten)

    return replace(program, body=rewritten(program.body)) if removed_barriers or lane_barriers else program


def _innermost_first(body: ir.Stmt) -> list[ir.Stmt]:
    """Return the barriers of a program, ordered by loop depth, deepest first."""
    barriers: list[tuple[int, ir.Stmt]] = []
    stack = [(body, 0)]
    while stack:
        stmt, depth = stack.pop()
        if isinstance(stmt, ir.Barrier):
            barriers.append((depth, stmt))
        inner_depth = depth + isinstance(stmt, (ir.For, ir.While))
        stack.extend((part, inner_depth) for part in reversed(ir.substatements(stmt)))
    return [stmt for _, stmt in sorted(barriers, key=lambda item: -item[0])]
