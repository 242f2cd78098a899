"""Channels that fill no whole vectors: kernels run over as many as do, and their buffers have room for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from inlaid import arith
from inlaid.arith import Var
from inlaid.schedules.collapse import accesses, stores
from inlaid.schedules.shape import blocks_of
from inlaid.tensor import ir
from inlaid.tensor.transform.rewrite import Rewriter


def filled(program: ir.LoopProgram, channels: Mapping[str, Var], multiple: int) -> tuple[ir.LoopProgram, dict[str, int]] | None:
    """The program with blocks run over more channels than there are, up to a multiple of a number, and buffers as large.

        for c in 24: block b(v = c): out[v] = a[v] * 2
    filled(program, {"b": v}, 16) gives
        for c in 32: block b(v = c): out[v] = a[v] * 2

    `channels` names the iteration variable of each block. The second result has, by name, the axis along which each buffer grew:
    laid out in blocks of so many channels, the buffers are those of the program as it was, whose blocks are padded. None where a
    block uses its channel otherwise than as an index of its own, or the loops are not those of an unscheduled program.
    """
    axes: dict[ir.Buffer, int] = {}
    grown: dict[arith.Expr, arith.Expr] = {}
    for block in blocks_of(program):
        var = channels.get(block.name)
        if var is None:
            continue
        item, loop = next(pair for pair in zip(block.iters, block.bindings, strict=True) if pair[0].var is var)
        if not isinstance(loop, Var) or not isinstance(item.extent, arith.Const):
            return None
        grown[var] = grown[loop] = arith.Const(-(-item.extent.value // multiple) * multiple)
        for index in _loose(block):
            if var in arith.free_vars(index):
                return None
        analyzer = arith.Analyzer({other.var: (0, arith.unwrap(other.extent - 1)) for other in block.iters})
        for buffer, indices in accesses(block):
            for axis, index in enumerate(indices):
                if var in arith.free_vars(index) and (
                    (index != var and analyzer.simplify(index) != var)
                    or buffer.shape[axis] != item.extent.value
                    or axes.setdefault(buffer, axis) != axis
                ):
                    return None
    buffers = {buffer: _larger(buffer, axis, multiple) for buffer, axis in axes.items()}

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        match stmt:
            case ir.For(var=var) if var in grown:
                return replace(stmt, extent=grown[var])
            case ir.Block(iters=iters):
                return replace(
                    stmt, iters=tuple(replace(item, extent=grown[item.var]) if item.var in grown else item for item in iters)
                )
        return None

    return Rewriter(buffers=buffers, stmt=change).program(program), {buffer.name: axis for buffer, axis in axes.items()}


def _larger(buffer: ir.Buffer, axis: int, multiple: int) -> ir.Buffer:
    extent = buffer.shape[axis]
    assert isinstance(extent, int)
    shape = (*buffer.shape[:axis], -(-extent // multiple) * multiple, *buffer.shape[axis + 1 :])
    return ir.Buffer(buffer.name, shape, buffer.dtype, buffer.scope)


def _loose(block: ir.Block) -> Iterator[arith.Expr]:
    """Integers that are values or conditions, not indices."""
    for store in stores(block):
        yield from (node.index for node in ir.walk_exprs(store.value) if isinstance(node, ir.Index))
