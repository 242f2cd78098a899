"""Analysis of kernels that reduce along or across rows, with element-wise prologue and epilogue."""

from __future__ import annotations

from inlaid.schedules.shape import is_cheap, worth_inlining
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import block_size, collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid_runtime import arith

SHORTEST = 4
"""Minimum length of a reduction along rows. Shorter reductions are unrolled per row."""


def inline_around(s: Schedule, everything: bool = False) -> None:
    """Inline element-wise blocks into their readers, except blocks with one value per row and, unless `everything`, expensive
    blocks with several readers."""
    row_sizes = {str(block_size(b)) for b in map(_spatial, collect_blocks(s.program)) if b is not None}
    after_reduction: set[ir.Buffer] = set()
    for name in [block.name for block in collect_blocks(s.program)][:-1]:
        block = next(block for block in collect_blocks(s.program) if block.name == name)
        assert isinstance(block.body, ir.Store)
        if block.init is not None or any(region.buffer in after_reduction for region in block.reads):
            after_reduction.add(block.body.buffer)
            if block.init is not None or str(block_size(block)) in row_sizes:
                continue
        is_inlined = everything or worth_inlining(s.program, block) or is_cheap(block.body.value)
        if is_inlined and block.body.buffer not in s.program.params:
            s.compute_inline(name)


def _spatial(block: ir.Block) -> ir.Block | None:
    """Return the spatial part of a reduction block; None for any other block."""
    if block.init is None:
        return None
    iters = tuple(item for item in block.iters if item.kind is ir.IterKind.SPATIAL)
    return ir.Block(block.name, iters, (), (), (), block.body)


def row_buffers(producers: list[ir.Block]) -> list[str]:
    """Find the buffers with one value per row: reductions, and values computed only from reductions and scalars."""
    buffers: dict[ir.Buffer, None] = {}
    for block in producers:
        assert isinstance(block.body, ir.Store)
        operands = [region.buffer for region in block.reads if any(dim != 1 for dim in region.buffer.shape)]
        if block.init is not None or (operands and all(buffer in buffers for buffer in operands)):
            buffers[block.body.buffer] = None
    return [buffer.name for buffer in buffers]


def is_loose(block: ir.Block, scalars: list[str]) -> bool:
    """Test whether an element-wise block has at most one dimension, such as a block over weights: it is not fused into rows."""
    assert isinstance(block.body, ir.Store)
    return block.body.buffer.name not in scalars and len(block.iters) < 2


def _loads(block: ir.Block) -> list[ir.Load]:
    """Return the loads of a reduction block that depend on a reduction variable, except loads of the accumulator."""
    assert isinstance(block.body, ir.Store)
    reduced = {item.var for item in block.iters if item.kind is ir.IterKind.REDUCTION}
    return [
        node
        for node in ir.walk_exprs(block.body.value)
        if isinstance(node, ir.Load) and node.buffer is not block.body.buffer and reduced & node.free_vars()
    ]


def reduces_along(block: ir.Block, shortest: int = SHORTEST) -> bool:
    """Test whether a block reduces at least `shortest` contiguous elements: the innermost reduction variable is the last index of
    all loads."""
    reduced = [item for item in block.iters if item.kind is ir.IterKind.REDUCTION and item.extent != arith.ONE]
    rows = {item.var for item in block.iters if item.kind is ir.IterKind.SPATIAL and item.extent != arith.ONE}
    loads = _loads(block)
    if not reduced or not loads or (isinstance(reduced[-1].extent, arith.Const) and reduced[-1].extent.value < shortest):
        return False
    inner = reduced[-1].var
    for load in loads:
        strided = load.indices[-1] != inner or any(inner in arith.free_vars(index) for index in load.indices[:-1])
        if inner in load.free_vars() and strided:
            return False
    # Where no load depends on all rows, the block is a matrix product, which should reuse rows for several columns.
    return any(inner in load.free_vars() and rows <= load.free_vars() for load in loads)


def reduces_across(block: ir.Block) -> bool:
    """Test whether a reduction is across rows: the axis of the results is contiguous in all loads."""
    spatial = [item for item in block.iters if item.kind is ir.IterKind.SPATIAL and item.extent != arith.ONE]
    loads = _loads(block)
    if not spatial or not loads:
        return False
    inner = spatial[-1].var
    return all(
        load.indices[-1] == inner and not any(inner in arith.free_vars(index) for index in load.indices[:-1]) for load in loads
    )
