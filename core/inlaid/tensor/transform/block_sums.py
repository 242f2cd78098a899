"""Sums many float32 numbers in blocks, so that rounding errors do not grow with their number.

One float32 accumulator of n numbers has an error of up to n roundings of the whole sum. Here each `BLOCK` numbers have such an
accumulator, and the sums of blocks are added in float64, whose roundings are 2 ** 29 times smaller. The error bound is that of
`BLOCK` additions, whatever n is: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import buffers_of
from inlaid.tensor.transform.compact import shrunk
from inlaid.tensor.transform.lower_blocks import conjuncts, guarded, joined, mapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import DType, dtype

BLOCK = 4096
"""Numbers that one float32 accumulator adds."""
FLOAT32 = dtype("float32")

_Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]
_CONCURRENT = (ir.ForKind.PARALLEL, ir.ForKind.THREAD, ir.ForKind.VTHREAD)


def block_sums(program: ir.LoopProgram, total: DType) -> ir.LoopProgram:
    """Sum more than `BLOCK` float32 numbers in blocks, and the sums of blocks in the type `total`.

        for k in 10000: acc[0] += x[k]
    becomes
        alloc total[1]: float64: {
            total[0] = 0
            for b in 3: { for k in min(3334, 10000 - 3334 * b): acc[0] += x[3334 * b + k]; total[0] += acc[0]; acc[0] = 0 }
            acc[0] = total[0]
        }

    Where the number is symbolic, the statements on totals run only if there are several blocks. A loop that also reads the sum, or
    changes it by a tensor intrinsic, stays as it is. The program must have no blocks. Returns the same object if nothing changes.
    """
    body = _Blocking(total).stmt(program.body, {})
    return program if body is program.body else replace(program, body=body)


@dataclass(frozen=True)
class _Update:
    """A store of the form `sum = sum + value`, and the statements around it, outermost first."""

    store: ir.Store
    around: tuple[ir.Stmt, ...] = ()

    @property
    def used(self) -> frozenset[arith.Expr]:
        """The variables that select the element."""
        return frozenset().union(*map(arith.free_vars, self.store.indices))

    @property
    def reducing(self) -> tuple[ir.For, ...]:
        """The loops whose iterations add to the same element."""
        loops = (stmt for stmt in self.around if isinstance(stmt, ir.For) and stmt.kind not in _CONCURRENT)
        return tuple(loop for loop in loops if loop.var not in self.used)

    @property
    def count(self) -> arith.Expr:
        """The number of additions to an element."""
        return reduce(operator.mul, (loop.extent for loop in self.reducing), arith.wrap(1))


@dataclass(frozen=True)
class _Uses:
    """The uses of buffers in a statement: updates, and the buffers that are accessed in other ways."""

    updates: tuple[_Update, ...]
    others: frozenset[ir.Buffer]


class _Blocking:
    """Rebuilds statements with long sums in blocks, whose sums have the type `total`."""

    def __init__(self, total: DType) -> None:
        self._total = total
        self._uses: dict[ir.Stmt, _Uses] = {}

    def stmt(self, stmt: ir.Stmt, ranges: _Ranges) -> ir.Stmt:
        """Rebuild a statement. `ranges` are the ranges of the loops around it."""
        if not self._of(stmt).updates:
            return stmt
        if isinstance(stmt, ir.For):
            changed = mapped(stmt, partial(self.stmt, ranges=_within(ranges, stmt)))
            return self._loop(stmt, changed, ranges) if stmt.kind is ir.ForKind.SERIAL else changed
        return mapped(stmt, partial(self.stmt, ranges=ranges))

    def _loop(self, loop: ir.For, changed: ir.Stmt, ranges: _Ranges) -> ir.Stmt:
        """Run a loop in blocks if it adds too many numbers to a sum. `changed` is the loop with its inner loops in blocks."""
        uses = self._of(loop.body)
        sums = [
            update
            for update in uses.updates
            if update.store.buffer not in uses.others and loop.var not in update.used and _is_long(loop, update, ranges)
        ]
        inside = {local for stmt in ir.walk_stmts(loop) if (local := getattr(stmt, "var", None)) is not None}
        counts = {update.count for update in sums}
        if len(counts) != 1 or not inside.isdisjoint(arith.free_vars(count := counts.pop())):
            return changed
        buffers = {update.store.buffer: None for update in sums}
        elements = _elements(loop, [update for update in uses.updates if update.store.buffer in buffers])
        assert isinstance(changed, ir.For)
        return changed if elements is None else _in_blocks(changed, count, elements, tuple(buffers), self._total)

    def _of(self, stmt: ir.Stmt) -> _Uses:
        uses = self._uses.get(stmt)
        if uses is None:
            uses = self._uses[stmt] = self._examined(stmt)
        return uses

    def _examined(self, stmt: ir.Stmt) -> _Uses:
        if isinstance(stmt, ir.Store) and _is_update(stmt):
            return _Uses((_Update(stmt),), frozenset(buffers_of(stmt)) - {stmt.buffer})
        parts = [self._of(part) for part in ir.substatements(stmt)]
        around = () if isinstance(stmt, (ir.Seq, ir.Alloc)) else (stmt,)
        updates = tuple(_Update(update.store, (*around, *update.around)) for part in parts for update in part.updates)
        return _Uses(updates, frozenset(buffers_of(stmt)).union(*(part.others for part in parts)))


def _within(ranges: _Ranges, loop: ir.For) -> _Ranges:
    return {**ranges, loop.var: (0, arith.unwrap(loop.extent - 1))}


def _is_update(store: ir.Store) -> bool:
    """Test whether a store adds to a float32 element a value that does not depend on the buffer."""
    match store.value:
        case ir.Binary(op="add", a=ir.Load() as old, b=value):
            values = [value]
        case ir.Fma(a=a, b=b, c=ir.Load() as old):
            values = [a, b]
        case _:
            return False
    if old.buffer is not store.buffer or old.indices != store.indices or old.dtype != FLOAT32:
        return False
    return not any(isinstance(node, ir.Load) and node.buffer is store.buffer for node in ir.walk_exprs(*values))


def _is_long(loop: ir.For, update: _Update, ranges: _Ranges) -> bool:
    """Test whether a loop may add more than `BLOCK` numbers to an element."""
    for item in (loop, *(stmt for stmt in update.around if isinstance(stmt, ir.For))):
        ranges = _within(ranges, item)
    most = arith.Analyzer(ranges).bounds(loop.extent * update.count)[1]
    return most is None or most > BLOCK


@dataclass(frozen=True)
class _Elements:
    """Elements of a buffer: `indices` for all values of the loops around them, where the guards hold."""

    buffer: ir.Buffer
    indices: tuple[arith.Expr, ...]
    around: tuple[ir.For | arith.Expr, ...]

    def all(self, change: Callable[[ir.Buffer, tuple[arith.Expr, ...]], ir.Stmt]) -> ir.Stmt:
        """Apply a change to all elements."""
        stmt = change(self.buffer, self.indices)
        for item in reversed(self.around):
            stmt = ir.For(item.var, item.extent, stmt, item.kind, item.thread) if isinstance(item, ir.For) else guarded(stmt, item)
        return stmt


def _elements(loop: ir.For, updates: Sequence[_Update]) -> tuple[_Elements, ...] | None:
    """List the elements that updates in a loop change; None if they cannot be listed without the loop's other statements."""
    result: dict[_Elements, None] = {}
    for update in updates:
        dropped: set[arith.Expr] = {loop.var, *(item.var for item in update.reducing)}
        around: list[ir.For | arith.Expr] = []
        for stmt in update.around:
            match stmt:
                case ir.For(var=var, extent=extent):
                    if var in dropped:
                        continue
                    if not dropped.isdisjoint(arith.free_vars(extent)):
                        return None
                    around.append(stmt)
                case ir.Let(var=var):
                    dropped.add(var)
                case ir.If(condition=ir.Index(index=condition), otherwise=None):
                    for part in conjuncts(condition):
                        if dropped.isdisjoint(arith.free_vars(part)) and not arith.reads_data(part):
                            around.append(part)
                        elif not update.used.isdisjoint(arith.free_vars(part)):
                            return None  # it may keep the element inside the buffer
                case _:
                    return None
        if not dropped.isdisjoint(update.used) or any(map(arith.reads_data, update.store.indices)):
            return None
        result[_Elements(update.store.buffer, update.store.indices, tuple(around))] = None
    return tuple(result)


def _in_blocks(
    loop: ir.For, count: arith.Expr, elements: Sequence[_Elements], buffers: Sequence[ir.Buffer], total: DType
) -> ir.Stmt:
    """Run a loop in blocks. In each iteration it adds `count` numbers to each of the elements, which are in `buffers`."""
    size = _iterations(loop.extent, count)
    block, inner = arith.Var(f"{loop.var.name}_block"), arith.Var(loop.var.name)
    totals = {buffer: ir.Buffer(f"{buffer.name}_total", buffer.shape, total, buffer.scope) for buffer in buffers}

    def clear(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> ir.Stmt:
        return ir.Store(totals[buffer], indices, ir.const(0, total))

    def flush(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> ir.Stmt:
        added = ir.load(totals[buffer], indices) + ir.cast(ir.load(buffer, indices), total)
        return joined(ir.Store(totals[buffer], indices, added), ir.Store(buffer, indices, ir.const(0, buffer.dtype)))

    def store(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> ir.Stmt:
        return ir.Store(buffer, indices, ir.cast(ir.load(totals[buffer], indices), buffer.dtype))

    several = arith.simplify(arith.compare("<", size, loop.extent))
    before, between, after = (
        guarded(joined(*(item.all(change) for item in elements)), several) for change in (clear, flush, store)
    )
    rest = arith.simplify(arith.minimum(size, loop.extent - block * size))
    body = Rewriter({loop.var: block * size + inner}).stmt(loop.body)
    added = joined(replace(loop, var=inner, extent=rest, body=body), between)
    stmt = joined(before, ir.For(block, arith.simplify(arith.ceildiv(loop.extent, size)), added), after)
    for item in totals.values():
        stmt = shrunk(item, stmt)
    return stmt


def _iterations(extent: arith.Expr, count: arith.Expr) -> arith.Expr:
    """Return the iterations of a loop in a block: as many as fit; if `extent` is known, about equally many in each block."""
    most = arith.simplify(arith.maximum(arith.floordiv(BLOCK, arith.maximum(count, 1)), 1))
    if isinstance(most, arith.Const) and isinstance(extent, arith.Const):
        return arith.ceildiv(extent, -(-extent.value // most.value))
    return most
