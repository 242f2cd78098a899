"""Direct convolution as a version of a Winograd kernel, for images of symbolic size that are small at run time.

A Winograd kernel reads 16/9 or 4 times the weights of a direct one, and computes whole tiles. So a kernel whose image is symbolic
has the untransformed weights as a further input, which only this version reads. The version runs at sizes at which its predicted
time is shorter. It leaves out taps that read padding alone, such as all but the middle one over an image of one pixel.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.ops.winograd import WINDOW
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.register_tile import seconds
from inlaid.schedules.shape import Anchor, lay_out
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Version
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import block_nest
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, Expr, Var
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import ROW_MAJOR, Layout

STAGES = ("rows", "tiles", "products", "columns")
"""Blocks of a Winograd kernel that its direct version does not have."""
DIRECT = "winograd"
"""The block of sums of the direct version, which computes the buffer of the last transform."""
SMALL_TILE = 3
"""Maximum pixels of a tile of the direct version: flat images of 1x1, 2x2 and 3x3 have 1, 5 and 11 pixels. Of 256 channels, 1x1
takes 10 us in tiles of 3, 24 in tiles of 12."""


@dataclass(frozen=True)
class WinogradCost:
    """Cost of a Winograd kernel in tiles of `tile` x `tile` outputs: predicted cycles of a tile, and the bytes of all weights."""

    tile: int
    tile_cycles: float
    weight_bytes: int


@dataclass(frozen=True)
class DirectVersion:
    """The direct version of a kernel, its untransformed weights, and their layout."""

    version: Version
    weights: ir.Buffer
    layout: Layout


def direct_version(
    program: ir.LoopProgram,
    anchor: Anchor,
    layouts: Mapping[ir.Buffer, Layout],
    cost: WinogradCost,
    inputs: tuple[InputInfo, ...],
    context: KernelContext,
) -> DirectVersion | None:
    """Return the direct version of a Winograd kernel of some `cost`, with parameters of `layouts`. None if the kernel has no
    untransformed weights, or if no direct schedule has these layouts."""
    transformed = next(region.buffer for region in anchor.block.reads if region.buffer in program.inputs)
    weights = _untransformed(program, anchor)
    if weights is None:
        return None
    direct = _direct(program, anchor, weights)
    infos = tuple(replace(info, layout=layouts.get(buffer, ROW_MAJOR)) for buffer, info in zip(program.inputs, inputs, strict=True))
    for offer in ConvRule(SMALL_TILE).offer(direct, context, infos):
        by_buffer = dict(zip(program.params, offer.layouts, strict=True))
        if all(
            layout == layouts.get(buffer, ROW_MAJOR) for buffer, layout in by_buffer.items() if buffer not in (weights, transformed)
        ):
            break
    else:
        return None

    def schedule(source: ir.LoopProgram) -> ir.LoopProgram:
        s = Schedule(offer.schedule(direct), context.intrinsics)
        lay_out(s, {transformed: layouts[transformed]})
        return s.program

    version = Version(_is_faster(anchor, offer, cost, context), schedule, offer.decisions)
    return DirectVersion(version, weights, by_buffer[weights])


def _untransformed(program: ir.LoopProgram, anchor: Anchor) -> ir.Buffer | None:
    """Return the input that no block reads and that has the shape of untransformed weights."""
    read = {region.buffer for block in (*anchor.before, anchor.block, *anchor.after) for region in block.reads}
    shape = (anchor.spatial[3].extent, anchor.reduced[0].extent, Const(WINDOW), Const(WINDOW))
    return next((buffer for buffer in program.inputs if buffer not in read and tuple(map(arith.wrap, buffer.shape)) == shape), None)


def _direct(program: ir.LoopProgram, anchor: Anchor, weights: ir.Buffer) -> ir.LoopProgram:
    """Replace the stages of a Winograd kernel by a direct sum of the padded data."""
    rows = next(block for block in anchor.before if block.name == "rows")
    source = rows.reads[0].buffer
    final = anchor.after[1]
    sums = final.writes[0].buffer
    n, o, y, x = final.iters
    c, i, j = (
        ir.IterVar(Var(name), extent, ir.IterKind.REDUCTION)
        for name, extent in (("c", anchor.reduced[0].extent), ("i", Const(WINDOW)), ("j", Const(WINDOW)))
    )
    indices = n.var, o.var, y.var, x.var
    product = ir.load(source, (n.var, c.var, y.var + i.var, x.var + j.var)) * ir.load(weights, (o.var, c.var, i.var, j.var))
    nest = block_nest(
        DIRECT,
        (n, o, y, x, c, i, j),
        ir.Store(sums, indices, ir.load(sums, indices) + product),
        ir.Store(sums, indices, ir.const(0, sums.dtype)),
    )
    dropped = {
        region.buffer for block in (*anchor.before, anchor.block, *anchor.after) if block.name in STAGES for region in block.writes
    }

    def change(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Alloc(buffer=buffer, body=body):
                return change(body) if buffer in dropped else ir.Alloc(buffer, change(body))
            case ir.Seq(stmts=stmts):
                return joined(*map(change, stmts))
        (block,) = (node for node in ir.walk_stmts(stmt) if isinstance(node, ir.Block))
        if block.name in STAGES:
            return ir.Seq(())
        return nest if block is final else stmt

    return replace(program, body=change(program.body))


def _is_faster(anchor: Anchor, offer: Offer, cost: WinogradCost, context: KernelContext) -> Expr:
    """Return the condition under which the direct schedule `offer` is predicted to take less time than the Winograd kernel."""
    n, _, y, x = anchor.after[1].iters
    height, width = y.extent, x.extent
    hinted_height, hinted_width = (arith.size_hint(arith.unwrap(size), arith.IMAGE_SIDE) for size in (height, width))
    hinted_pixels = arith.size_hint(arith.unwrap(n.extent)) * hinted_height * (hinted_width + 1)
    # In nanoseconds.
    pixels = next(item.numbers for item in offer.decisions if item.name == "tile")[2]
    direct_tile = round(1e9 * offer.cost / hinted_pixels * pixels)
    direct_time = arith.ceildiv(height * (width + 1) - 1, pixels) * direct_tile
    winograd_tile = round(1e9 * seconds(cost.tile_cycles, context.capabilities))
    tiles = arith.ceildiv(height, cost.tile) * arith.ceildiv(width, cost.tile)
    fetching = round(1e9 * cost.weight_bytes / context.capabilities.bandwidth)
    return arith.compare("<=", direct_time, arith.maximum(tiles * winograd_tile, fetching))
