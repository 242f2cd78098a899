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
from inlaid.tensor.analysis.footprint import statement_buffers
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
    def index_vars(self) -> frozenset[arith.Expr]:
        """The variables that select the element."""
        return frozenset().union(*map(arith.free_vars, self.store.indices))

    @property
    def reducing(self) -> tuple[ir.For, ...]:
        """The loops whose iterations add to the same element."""
        loops = (stmt for stmt in self.around if isinstance(stmt, ir.For) and stmt.kind not in _CONCURRENT)
        return tuple(loop for loop in loops if loop.var not in self.index_vars)

    @property
    def count(self) -> arith.Expr:
        """The number of additions to an element."""
        return reduce(operator.mul, (loop.extent for loop in self.reducing), arith.wrap(1))


@dataclass(frozen=True)
class _SumUses:
    """The uses of buffers in a statement: updates, and the buffers that are accessed in other ways."""

    updates: tuple[_Update, ...]
    other_buffers: frozenset[ir.Buffer]


class _Blocking:
    """Rebuilds statements with long sums in blocks, whose sums have the type `total`."""

    def __init__(self, total: DType) -> None:
        self._total = total
        self._uses: dict[ir.Stmt, _SumUses] = {}

    def stmt(self, stmt: ir.Stmt, ranges: _Ranges) -> ir.Stmt:
        """Rebuild a statement. `ranges` are the ranges of the loops around it."""
        if not self._find_uses(stmt).updates:
            return stmt
        if isinstance(stmt, ir.For):
            new_stmt = mapped(stmt, partial(self.stmt, ranges=_within(ranges, stmt)))
            return self._loop(stmt, new_stmt, ranges) if stmt.kind is ir.ForKind.SERIAL else new_stmt
        return mapped(stmt, partial(self.stmt, ranges=ranges))

    def _loop(self, loop: ir.For, new_loop: ir.Stmt, ranges: _Ranges) -> ir.Stmt:
        """Run a loop in blocks if it adds too many numbers to a sum. `new_loop` is the loop with its inner loops in blocks."""
        uses = self._find_uses(loop.body)
        sums = [
            update
            for update in uses.updates
            if update.store.buffer not in uses.other_buffers
            and loop.var not in update.index_vars
            and _is_long(loop, update, ranges)
        ]
        inner_vars = {var for stmt in ir.walk_stmts(loop) if (var := getattr(stmt, "var", None)) is not None}
        counts = {update.count for update in sums}
        if len(counts) != 1 or not inner_vars.isdisjoint(arith.free_vars(count := counts.pop())):
            return new_loop
        buffers = {update.store.buffer: None for update in sums}
        elements = _elements(loop, [update for update in uses.updates if update.store.buffer in buffers])
        assert isinstance(new_loop, ir.For)
        return new_loop if elements is None else _in_blocks(new_loop, count, elements, tuple(buffers), self._total)

    def _find_uses(self, stmt: ir.Stmt) -> _SumUses:
        uses = self._uses.get(stmt)
        if uses is None:
            uses = self._uses[stmt] = self._compute_uses(stmt)
        return uses

    def _compute_uses(self, stmt: ir.Stmt) -> _SumUses:
        if isinstance(stmt, ir.Store) and _is_update(stmt):
            return _SumUses((_Update(stmt),), frozenset(statement_buffers(stmt)) - {stmt.buffer})
        parts = [self._find_uses(part) for part in ir.substatements(stmt)]
        outer_stmts = () if isinstance(stmt, (ir.Seq, ir.Alloc)) else (stmt,)
        updates = tuple(_Update(update.store, (*outer_stmts, *update.around)) for part in parts for update in part.updates)
        return _SumUses(updates, frozenset(statement_buffers(stmt)).union(*(part.other_buffers for part in parts)))


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
    max_additions = arith.Analyzer(ranges).bounds(loop.extent * update.count)[1]
    return max_additions is None or max_additions > BLOCK


@dataclass(frozen=True)
class _Elements:
    """Elements of a buffer: `indices` for all values of the loops around them, where the guards hold."""

    buffer: ir.Buffer
    indices: tuple[arith.Expr, ...]
    around: tuple[ir.For | arith.Expr, ...]

    def for_each(self, change: Callable[[ir.Buffer, tuple[arith.Expr, ...]], ir.Stmt]) -> ir.Stmt:
        """Build the statement `change(buffer, indices)` for all elements."""
        stmt = change(self.buffer, self.indices)
        for item in reversed(self.around):
            stmt = ir.For(item.var, item.extent, stmt, item.kind, item.thread) if isinstance(item, ir.For) else guarded(stmt, item)
        return stmt


def _elements(loop: ir.For, updates: Sequence[_Update]) -> tuple[_Elements, ...] | None:
    """List the elements that updates in a loop change; None if they cannot be listed without the loop's other statements."""
    result: dict[_Elements, None] = {}
    for update in updates:
        summed_vars: set[arith.Expr] = {loop.var, *(item.var for item in update.reducing)}
        outer_stmts: list[ir.For | arith.Expr] = []
        for stmt in update.around:
            match stmt:
                case ir.For(var=var, extent=extent):
                    if var in summed_vars:
                        continue
                    if not summed_vars.isdisjoint(arith.free_vars(extent)):
                        return None
                    outer_stmts.append(stmt)
                case ir.Let(var=var):
                    summed_vars.add(var)
                case ir.If(condition=ir.Index(index=condition), otherwise=None):
                    for part in conjuncts(condition):
                        if summed_vars.isdisjoint(arith.free_vars(part)) and not arith.reads_data(part):
                            outer_stmts.append(part)
                        elif not update.index_vars.isdisjoint(arith.free_vars(part)):
                            return None  # it may keep the element inside the buffer
                case _:
                    return None
        if not summed_vars.isdisjoint(update.index_vars) or any(map(arith.reads_data, update.store.indices)):
            return None
        result[_Elements(update.store.buffer, update.store.indices, tuple(outer_stmts))] = None
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
        new_total = ir.load(totals[buffer], indices) + ir.cast(ir.load(buffer, indices), total)
        return joined(ir.Store(totals[buffer], indices, new_total), ir.Store(buffer, indices, ir.const(0, buffer.dtype)))

    def store(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> ir.Stmt:
        return ir.Store(buffer, indices, ir.cast(ir.load(totals[buffer], indices), buffer.dtype))

    has_several_blocks = arith.simplify(arith.compare("<", size, loop.extent))
    clear_stmt, flush_stmt, store_stmt = (
        guarded(joined(*(item.for_each(change) for item in elements)), has_several_blocks) for change in (clear, flush, store)
    )
    block_extent = arith.simplify(arith.minimum(size, loop.extent - block * size))
    body = Rewriter({loop.var: block * size + inner}).stmt(loop.body)
    block_body = joined(replace(loop, var=inner, extent=block_extent, body=body), flush_stmt)
    stmt = joined(clear_stmt, ir.For(block, arith.simplify(arith.ceildiv(loop.extent, size)), block_body), store_stmt)
    for item in totals.values():
        stmt = shrunk(item, stmt)
    return stmt


def _iterations(extent: arith.Expr, count: arith.Expr) -> arith.Expr:
    """Return the iterations of a loop in a block: as many as fit; if `extent` is known, about equally many in each block."""
    max_iterations = arith.simplify(arith.maximum(arith.floordiv(BLOCK, arith.maximum(count, 1)), 1))
    if isinstance(max_iterations, arith.Const) and isinstance(extent, arith.Const):
        return arith.ceildiv(extent, -(-extent.value // max_iterations.value))
    return max_iterations
