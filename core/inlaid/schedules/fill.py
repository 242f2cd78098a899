"""Pad channels to whole vectors: loops and buffers of a kernel grow to a multiple of the lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from inlaid.schedules.collapse import accesses, stores
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule, Transform
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def fill(schedule: Schedule, multiple: int, blocks: Iterable[str]) -> dict[str, int] | None:
    """Extend the channel loops (second iteration variables) of blocks, and their buffers, to a multiple of `multiple`. Returns the
    axis along which each buffer grew, by buffer name; None if `filled` does not apply."""
    original = schedule.program
    schedule.apply(FILL, multiple, *blocks)
    if schedule.program is original:
        return None
    pairs = zip(_buffers(original), _buffers(schedule.program), strict=True)
    return {
        new.name: next(axis for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)) if a != b)
        for old, new in pairs
        if old.shape != new.shape
    }


def _buffers(program: ir.LoopProgram) -> list[ir.Buffer]:
    return [*program.params, *(stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc))]


def filled(program: ir.LoopProgram, multiple: int, *blocks: str) -> ir.LoopProgram:
    """Extend the channels of `blocks` to a multiple of `multiple`.

        for c in 24: block b(u = 0, v = c): out[v] = a[v] * 2
    filled(program, 16, "b") gives
        for c in 32: block b(u = 0, v = c): out[v] = a[v] * 2

    In a layout with blocks of `multiple` channels, the buffers have the same bytes as those of the original program, whose last
    blocks are padded. A program is returned unchanged if its loops are scheduled, or if a block uses its channel variable other
    than as an index by itself.
    """
    channels = {block.name: block.iters[1].var for block in collect_blocks(program) if block.name in blocks}
    axes: dict[ir.Buffer, int] = {}
    new_extents: dict[arith.Expr, arith.Expr] = {}
    for block in collect_blocks(program):
        var = channels.get(block.name)
        if var is None:
            continue
        item, loop = next(pair for pair in zip(block.iters, block.bindings, strict=True) if pair[0].var is var)
        if not isinstance(loop, Var) or not isinstance(item.extent, arith.Const):
            return program
        new_extents[var] = new_extents[loop] = arith.Const(-(-item.extent.value // multiple) * multiple)
        for index in _value_indices(block):
            if var in arith.free_vars(index):
                return program
        analyzer = arith.Analyzer({other.var: (0, arith.unwrap(other.extent - 1)) for other in block.iters})
        for buffer, indices in accesses(block):
            for axis, index in enumerate(indices):
                if var in arith.free_vars(index) and (
                    (index != var and analyzer.simplify(index) != var)
                    or buffer.shape[axis] != item.extent.value
                    or axes.setdefault(buffer, axis) != axis
                ):
                    return program
    buffers = {buffer: _larger(buffer, axis, multiple) for buffer, axis in axes.items()}

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        match stmt:
            case ir.For(var=var) if var in new_extents:
                return replace(stmt, extent=new_extents[var])
            case ir.Block(iters=iters):
                return replace(
                    stmt,
                    iters=tuple(replace(item, extent=new_extents[item.var]) if item.var in new_extents else item for item in iters),
                )
        return None

    return Rewriter(buffers=buffers, stmt=change).program(program)


FILL = Transform("fill", filled)


def _larger(buffer: ir.Buffer, axis: int, multiple: int) -> ir.Buffer:
    extent = buffer.shape[axis]
    assert isinstance(extent, int)
    shape = (*buffer.shape[:axis], -(-extent // multiple) * multiple, *buffer.shape[axis + 1 :])
    return ir.Buffer(buffer.name, shape, buffer.dtype, buffer.scope)


def _value_indices(block: ir.Block) -> Iterator[arith.Expr]:
    """Yield index expressions that are used as values or conditions."""
    for store in stores(block):
        yield from (node.index for node in ir.walk_exprs(store.value) if isinstance(node, ir.Index))
