"""Places buffers in the memory scopes of a target, and checks that programs use the scopes correctly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_buffers
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.memory.planner import Lifetime, plan
from inlaid_runtime.types import MemoryScope

SUBGROUP = "subgroup"
"""The scope of registers shared within a subgroup: each thread writes its part, and reads the parts of threads that differ from it
only along x. If the target has no subgroups, `to_spmd` rejects this scope."""
LANES = "threadIdx.x"
"""The axis along which the threads of a subgroup differ."""
BUILT_IN = ("", "register", SUBGROUP)
"""Scopes of every target: main memory, unnumbered registers, and subgroup registers."""
_OWNERS = {"device": 0, "block": 1, "thread": 2}
"""Ranks of the owners of memory, from coarse to fine. Vector lanes own no memory and have rank 3."""

_Loops = tuple[ir.For, ...]


def check_scopes(program: ir.LoopProgram, scopes: Sequence[MemoryScope]) -> None:
    """Check that the scope of each allocated buffer is declared by the target and large enough. The program must have no blocks.
    Raises `ScheduleError`, which names the buffer, the scope and the loop."""
    declared = {scope.name: scope for scope in scopes}
    scope_names: dict[str, None] = {}
    for buffer, loops in _allocations(program.body, ()):
        if buffer.scope not in BUILT_IN:
            scope_names[buffer.scope] = None
            if buffer.scope not in declared:
                declared_names = ", ".join(map(repr, declared)) or "none"
                raise _error(program, buffer, loops, f"expected a scope that the target declares ({declared_names})")
    for name in scope_names:
        if not (declared[name].owner == "thread" and _has_collective_use(program, name)):
            places(program, declared[name])


def _has_collective_use(program: ir.LoopProgram, scope: str) -> bool:
    """Test whether a collective intrinsic uses a buffer of `scope` that is allocated around thread loops. `split_launches` then
    splits the buffer into the parts of the threads, and checks that each part fits."""
    for alloc in ir.walk_stmts(program.body):
        if isinstance(alloc, ir.Alloc) and alloc.buffer.scope == scope:
            stmts = list(ir.walk_stmts(alloc.body))
            loops = [stmt for stmt in stmts if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD]
            is_collective = any(
                isinstance(stmt, ir.Intrinsic) and stmt.over and alloc.buffer in statement_buffers(stmt) for stmt in stmts
            )
            if is_collective and loops and all(loop.over_threads for loop in loops):
                return True
    return False


def places(program: ir.LoopProgram, scope: MemoryScope) -> dict[ir.Buffer, int]:
    """Place the buffers of a scope in the memory of one owner. Returns byte offsets, or register numbers. The program must have no
    blocks. Raises `ScheduleError` if the buffers do not fit.

    Two buffers may share bytes if the last use of one precedes the first use of the other in program order. A loop counts as a
    single use. Buffers of different thread phases may therefore share bytes; buffers of one phase may not. Phases whose buffers
    share bytes need a barrier between them, and in a serial loop also from the last phase to the first. Buffers share a register if
    their shapes and dtypes are equal and their allocations do not overlap.
    """
    if not any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == scope.name for stmt in ir.walk_stmts(program.body)):
        return {}
    uses = _ScopeUses(program, scope)
    uses.collect(program.body, ())
    return (_registers if scope.count else _offsets)(program, scope, list(uses.by_buffer.values()))


@dataclass
class _Use:
    """A buffer, the loops around its allocation, and the steps of its allocation, deallocation, first use and last use."""

    buffer: ir.Buffer
    loops: _Loops
    allocated: int
    freed: int = 0
    first: int = 1 << 62
    last: int = 0


class _ScopeUses:
    """Collects the uses of a scope's buffers. Each statement is a step; the uses inside a loop extend over the whole loop."""

    def __init__(self, program: ir.LoopProgram, scope: MemoryScope) -> None:
        self.by_buffer: dict[ir.Buffer, _Use] = {}
        self._program = program
        self._scope = scope
        self._step = 0

    def collect(self, stmt: ir.Stmt, loops: _Loops) -> set[ir.Buffer]:
        """Collect the uses in a statement. Returns the buffers that it uses without allocating them."""
        start = self._step = self._step + 1
        if isinstance(stmt, ir.Alloc) and stmt.buffer.scope == self._scope.name:
            self._allocate(stmt.buffer, loops)
        direct_buffers = {buffer for buffer in statement_buffers(stmt) if buffer in self.by_buffer}
        for buffer in direct_buffers:
            self._check_shared(self.by_buffer[buffer], loops)
        inner_loops = (*loops, stmt) if isinstance(stmt, ir.For) else loops
        buffers = direct_buffers.union(*(self.collect(part, inner_loops) for part in ir.substatements(stmt)))
        for buffer in buffers if isinstance(stmt, (ir.For, ir.While)) else direct_buffers:
            use = self.by_buffer[buffer]
            use.first, use.last = min(use.first, start), max(use.last, self._step)
        if isinstance(stmt, ir.Alloc) and stmt.buffer in self.by_buffer:
            self.by_buffer[stmt.buffer].freed = self._step
            buffers.discard(stmt.buffer)
        return buffers

    def _allocate(self, buffer: ir.Buffer, loops: _Loops) -> None:
        for loop in loops:
            if _rank(loop, 0) > _OWNERS[self._scope.owner]:
                problem = f"expected one buffer per {self._scope.owner}, found one per iteration of loop {loop.var}"
                raise _error(self._program, buffer, loops, problem, f"allocate it outside of loop {loop.var}")
        # Copied code may allocate a buffer at several places.
        self.by_buffer.setdefault(buffer, _Use(buffer, loops, self._step)).loops = loops

    def _check_shared(self, use: _Use, loops: _Loops) -> None:
        for loop in loops[len(use.loops) :]:
            if _rank(loop, 3) <= _OWNERS[self._scope.owner]:
                problem = f"expected one buffer per {self._scope.owner}, found one for all iterations of loop {loop.var}"
                raise _error(self._program, use.buffer, use.loops, problem, f"allocate it inside loop {loop.var}")


def _rank(loop: ir.For, serial: int) -> int:
    """Return the owner rank (see `_OWNERS`) of the iterations of a loop; `serial` for a serial loop."""
    match loop.kind:
        case ir.ForKind.THREAD:
            return _OWNERS["block" if loop.thread.startswith("block") else "thread"]
        case ir.ForKind.PARALLEL:
            return _OWNERS["thread"]
        case ir.ForKind.VECTORIZED:
            return 3
    return serial


def _offsets(program: ir.LoopProgram, scope: MemoryScope, uses: list[_Use]) -> dict[ir.Buffer, int]:
    uses = [use for use in uses if use.last]
    sizes = [prod(_extents(program, use)) * use.buffer.dtype.bytes for use in uses]
    alignment = max((scope.alignment, *(use.buffer.dtype.bytes for use in uses)))
    arena = plan([Lifetime(size, use.first, use.last) for size, use in zip(sizes, uses, strict=True)], alignment)
    arena_bytes = arith.evaluate(arena.size, {})
    if arena_bytes > scope.capacity:
        sizes_and_uses = list(zip(sizes, uses, strict=True))
        live_sets = [[(size, use) for size, use in sizes_and_uses if use.first <= other.first <= use.last] for other in uses]
        largest_live_set = max(live_sets, key=lambda items: sum(size for size, _ in items))
        names = ", ".join(f"{use.buffer} of {size}" for size, use in largest_live_set)
        problem = f"expected at most {scope.capacity} bytes in use at once, found {arena_bytes}: {names}"
        raise _error(program, largest_live_set[-1][1].buffer, largest_live_set[-1][1].loops, problem)
    return {use.buffer: arith.evaluate(offset, {}) for use, offset in zip(uses, arena.offsets, strict=True)}


def _registers(program: ir.LoopProgram, scope: MemoryScope, uses: list[_Use]) -> dict[ir.Buffer, int]:
    uses_by_type: dict[object, list[_Use]] = {}
    for use in uses:
        uses_by_type.setdefault((use.buffer.shape, use.buffer.dtype), []).append(use)
        rows, *columns = _extents(program, use) or [1]
        width = prod(columns) * use.buffer.dtype.bytes
        if rows > scope.rows or width > scope.row_bytes:
            problem = f"expected at most {scope.rows} rows of {scope.row_bytes} bytes, found {rows} of {width}"
            raise _error(program, use.buffer, use.loops, problem)
    registers: dict[ir.Buffer, int] = {}
    count = 0
    for group in uses_by_type.values():
        arena = plan([Lifetime(1, use.allocated, use.freed) for use in group], 1)
        registers |= {use.buffer: count + arith.evaluate(offset, {}) for use, offset in zip(group, arena.offsets, strict=True)}
        count += arith.evaluate(arena.size, {})
    if count > scope.count:
        raise _error(program, uses[-1].buffer, uses[-1].loops, f"expected at most {scope.count} registers in use, found {count}")
    return registers


def _extents(program: ir.LoopProgram, use: _Use) -> list[int]:
    """Return the maximum extent of each dimension of a buffer."""
    extents = []
    for dim in use.buffer.shape:
        max_extent = arith.bounds(dim)[1]
        if max_extent is None:
            raise _error(program, use.buffer, use.loops, f"expected extents with constant bounds, found {dim!r}")
        extents.append(max_extent)
    return extents


def _allocations(stmt: ir.Stmt, loops: _Loops) -> Iterator[tuple[ir.Buffer, _Loops]]:
    if isinstance(stmt, ir.Alloc):
        yield stmt.buffer, loops
    for part in ir.substatements(stmt):
        yield from _allocations(part, (*loops, stmt) if isinstance(stmt, ir.For) else loops)


def _error(
    program: ir.LoopProgram, buffer: ir.Buffer, loops: _Loops, problem: str, remedy: str = "split the loops around it further"
) -> ScheduleError:
    location = f"in loop {loops[-1].var}" if loops else "outside of all loops"
    return ScheduleError(f"{program.name}: buffer {buffer} in scope {buffer.scope!r}, {location}: {problem}", remedy=remedy)
