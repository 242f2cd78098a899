"""Schedules by dot-product instructions for narrow operands: matching, register tiles, and tensorization.

An instruction adds the products of a group of adjacent elements to one accumulator per lane. The operand that all lanes share has
the reduction index innermost (rows of a matrix, channels of a pixel); the other is packed so that each lane's group is contiguous:
a panel of columns with layout K/g N g.
"""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.schedules.shape import Anchor, lay_out, mark_tile
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.dot_products import Dot, find_dots
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import Layout


@dataclass(frozen=True)
class DotTile:
    """Register tile of a dot-product instruction: vectors of output columns, and rows or pixels."""

    dot: Dot
    vectors: int
    rows: int

    @property
    def width(self) -> int:
        return self.dot.lanes * self.vectors


def narrow_product(anchor: Anchor) -> tuple[ir.Load, ir.Load] | None:
    """Match acc = acc + cast(a) * cast(b) and return the loads (a, b)."""
    assert isinstance(anchor.block.body, ir.Store)
    match anchor.block.body.value:
        case ir.Binary(
            op="add",
            a=ir.Load(buffer=buffer),
            b=ir.Binary(op="mul", a=ir.Cast(a=ir.Load() as a), b=ir.Cast(a=ir.Load() as b)),
        ):
            return (a, b) if buffer is anchor.buffer else None
    return None


def dots_for(anchor: Anchor, context: KernelContext) -> list[Dot]:
    """Find the intrinsics that compute an anchor's reduction, the widest first."""
    product = narrow_product(anchor)
    if product is None:
        return []
    a, b = (load.dtype.name for load in product)
    return find_dots(a, b, anchor.buffer.dtype.name, context)


def with_dots(
    s: Schedule,
    block: str,
    first: Var,
    unrolled: tuple[Var, ...],
    lane: Var,
    tile: DotTile,
    layouts: Mapping[ir.Buffer, Layout],
    more: Mapping[str, Layout],
) -> None:
    """Apply layouts, tensorize the loops from `lane` inwards, and unroll the tile around them."""
    init = s.decompose_reduction(block, first)
    mark_tile(s, *s.loops(init)[-1 - len(unrolled) :])
    for loop in unrolled:
        s.unroll(loop)
    lay_out(s, layouts, more)
    s.tensorize(lane, tile.dot.intrinsic.name)
