"""Direct convolution over register tiles: code shared by the schedules for float32 and for narrow operands.

Activations are channel-blocked; weights are packed in panels of a tile's output channels. Output channels are padded to whole
vectors. Input channels of a padded copy are padded to whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from inlaid.plugins.contract import Core
from inlaid.plugins.costs import CostConstants
from inlaid.schedules.conv_sizes import fills_lanes
from inlaid.schedules.fill import fill
from inlaid.schedules.register_tile import fits
from inlaid.schedules.shape import (
    Anchor,
    axis_loops,
    constant_extent,
    find_anchor,
    is_constant,
    loop_extent,
    mark_tile,
    present,
    share_rows,
)
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.primitives.stream import LINE
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import Decision, KernelContext
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import Layout

FindProduct = Callable[[Anchor], tuple[ir.Load, ir.Load] | None]
"""Returns the loads of data and weights of an anchor that sums their products; None for any other anchor."""


@dataclass(frozen=True)
class ConvTile:
    """Register tile: lanes per vector, vectors of output channels, rows, and pixels per row."""

    lanes: int
    vectors: int
    rows: int
    pixels: int

    @property
    def width(self) -> int:
        """Output channels per tile."""
        return self.lanes * self.vectors


@dataclass(frozen=True)
class DirectConv:
    """out[n, o, y, x] += data[n, group(o) + c, ...] * weights[o, c, ky, kx] with one to three spatial axes, where `data` reads the
    input `source` or a padded copy of it. `axes` maps buffer names to the axis whose channels were padded."""

    schedule: Schedule
    anchor: Anchor
    data: ir.Load
    weights: ir.Load
    axes: dict[str, int]

    @property
    def program(self) -> ir.LoopProgram:
        """The kernel's current program."""
        return self.schedule.program

    @property
    def source(self) -> ir.Buffer:
        """The input that is convolved, before padding."""
        before = self.anchor.before
        return before[0].reads[0].buffer if before and before[0].reads else self.data.buffer

    @property
    def inputs(self) -> int:
        """Input channels per group."""
        return constant_extent(self.anchor.reduced[0])

    @property
    def outputs(self) -> int:
        """Output channels per group."""
        channels = self.data.buffer.shape[1]
        assert isinstance(channels, int)
        return self.channels // max(channels // self.inputs, 1)

    @property
    def channels(self) -> int:
        """Output channels over all groups."""
        return constant_extent(self.anchor.spatial[1])

    @property
    def single_group(self) -> bool:
        """Whether there is a single group."""
        return self.outputs == self.channels

    @property
    def taps(self) -> int:
        """Elements of the window per channel."""
        return prod(constant_extent(item) for item in self.anchor.reduced[1:])

    @property
    def is_plane(self) -> bool:
        """Whether the result has two spatial axes, of constant size."""
        return len(self.anchor.spatial) == 4 and is_constant(*self.anchor.spatial[2:])

    def fills(self, lanes: int) -> bool:
        """Test whether the output channels of each group fill vectors, or a single group can be padded with less than half of the
        lanes empty."""
        return fills_lanes(self.outputs, lanes, self.single_group)


def find_conv(program: ir.LoopProgram, find_product: FindProduct, intrinsics: tuple[TensorIntrin, ...] = ()) -> DirectConv | None:
    """Match a program as a convolution with constant channels and windows; None for any other program, and if data and weights are
    the same buffer, which cannot have two layouts."""
    anchor = find_anchor(program)
    if anchor is None or not 3 <= len(anchor.spatial) <= 5 or len(anchor.reduced) != len(anchor.spatial) - 1:
        return None
    if len(anchor.before) > 1 or not is_constant(anchor.spatial[1], *anchor.reduced):
        return None
    product = find_product(anchor)
    if product is None:
        return None
    conv = DirectConv(Schedule(program, intrinsics, (REMAINDERS,)), anchor, *product, {})
    n, o = (item.var for item in anchor.spatial[:2])
    window = (o, *(item.var for item in anchor.reduced))
    if conv.weights.buffer not in program.inputs or conv.weights.indices != window or conv.data.indices[0] != n:
        return None
    if not isinstance(conv.data.buffer.shape[1], int) or len(conv.data.indices) != len(anchor.spatial):
        return None
    first = arith.ZERO if conv.single_group else o // conv.outputs * conv.inputs
    reads_group = arith.simplify(conv.data.indices[1] - (first + anchor.reduced[0].var)) == arith.ZERO
    return conv if reads_group and conv.source in program.inputs and conv.source is not conv.weights.buffer else None


def fill_channels(conv: DirectConv, lanes: int, block: int, find_product: FindProduct) -> DirectConv | None:
    """Pad output channels to a multiple of `lanes` and, in producers of the data, input channels to a multiple of `block` (0: no
    padding). None if they cannot be padded."""
    s, anchor, axes = conv.schedule.copy(), conv.anchor, conv.axes
    for size, blocks in ((lanes, (anchor.block, *anchor.after)), (block, anchor.before)):
        if not size or not blocks or constant_extent(blocks[0].iters[1]) % size == 0:
            continue
        if any(len(item.iters) == 1 for item in blocks):
            return None
        # Blocks without iteration variables compute scalars.
        padded_axes = fill(s, size, [item.name for item in blocks if item.iters])
        padded_anchor = None if padded_axes is None else find_anchor(s.program)
        if padded_axes is None or padded_anchor is None:
            return None
        anchor, axes = padded_anchor, axes | padded_axes
    product = find_product(anchor)
    assert product is not None
    return DirectConv(s, anchor, *product, axes)


def conv_tiles(count: int, height: int, width: int, lanes: int, registers: int, costs: CostConstants) -> Iterator[ConvTile]:
    """Yield the tiles that fit in registers for `count` vectors of output channels; `vectors` divides `count`. A tile with several
    rows covers whole rows."""
    for vectors in (vectors for vectors in range(1, costs.tile_vectors + 1) if count % vectors == 0):
        for size in range(1, height * width + 1):
            if size > 1 and not fits(size, vectors, registers):
                break
            if size <= width or size % width == 0:
                yield ConvTile(lanes, vectors, max(size // width, 1), min(size, width))


def decide_tile(
    best: ConvTile, count: int, height: int, width: int, registers: int, max_pixels: int | None, context: KernelContext
) -> tuple[ConvTile, Decision]:
    """Record the tile as a decision (vectors, rows, pixels) among the `conv_tiles` of at most `max_pixels` pixels, with default
    `best`."""
    legal_tiles = (
        (tile.vectors, tile.rows, tile.pixels)
        for tile in conv_tiles(count, height, width, best.lanes, registers, context.capabilities.core.costs)
        if max_pixels is None or tile.rows * tile.pixels <= max_pixels
    )
    decision = context.decide("tile", legal_tiles, (best.vectors, best.rows, best.pixels))
    return ConvTile(best.lanes, *decision.numbers), decision


def channel_layouts(conv: DirectConv, tile: ConvTile, initial: dict[ir.Buffer, Layout]) -> dict[ir.Buffer, Layout]:
    """Add layouts to `initial`: all other buffers that have output channels are blocked by vectors of these."""
    layouts, anchor = dict(initial), conv.anchor
    for buffer in (*conv.program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        axis = 1 if buffer.shape == anchor.buffer.shape else conv.axes.get(buffer.name)
        if axis is not None and buffer not in layouts:
            layouts[buffer] = Layout(((axis, tile.lanes),))
    return layouts


@dataclass(frozen=True)
class ConvNest:
    """The loops of a tiled convolution. Outer: images, panels of output channels, and rows (tiles of pixels if there are no rows).
    Inner: input channels (None for a single one), window taps, and the register tile."""

    images: Var | None
    panels: Var
    rows: Var | None
    channels: Var | None
    taps: tuple[Var, ...]
    pixels: tuple[Var, ...]
    vector: Var
    lane: Var


def tile_nest(s: Schedule, conv: DirectConv, tile: ConvTile, final: str) -> ConvNest:
    """Tile the loops and fuse the sum into the tile; returns the loops:

    for n, outer, y, x:
        for channel, ky, kx, row, pixel, vector, lane: the sum
        for row, pixel, vector, lane: out = after(sum)      # unrolled, lane vectorized
    """
    name = conv.anchor.block.name
    n, channel, *lines, x = axis_loops(s, final)
    assert channel is not None
    y = lines[0] if lines else None
    outer, vector, lane = s.split(channel, (None, tile.vectors, tile.lanes))
    y, row = s.split(y, (None, tile.rows)) if y is not None and tile.rows > 1 else (y, None)
    x, pixel = (None, None) if x is None else s.split(x, (None, tile.pixels))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(row, pixel), vector, lane)
    s.compute_at(name, outside[-1])
    mark_tile(s, *present(row, pixel), vector, lane)
    c, *taps = axis_loops(s, name)[3 + len(lines) :]
    channel, *pixels = [loop for loop in s.loops(name)[len(outside) :] if loop not in (c, *taps)]
    vector, lane = s.split(channel, (tile.vectors, tile.lanes))
    return ConvNest(n, outer, y or x, c, tuple(present(*taps)), tuple(pixels), vector, lane)


def stream_weights(s: Schedule, conv: DirectConv, tile: ConvTile, panels: Var | None, along: Var, core: Core) -> None:
    """If there are several panels and many weights, prefetch a part of the next panel in each iteration of loop `along`, or of an
    outer loop with enough iterations for all lines of the panel. `panels` is the loop over panels; None if panels and rows are
    distributed together."""
    weights = conv.weights.buffer
    bytes_ = weights.dtype.bytes * count_elements(weights)
    if panels is None or weights.shape[0] == tile.width or bytes_ < core.costs.streamed_share * core.l1_bytes:
        return
    name = next(block.name for block in collect_blocks(s.program) if any(item.buffer.name == weights.name for item in block.reads))
    pixels = prod(arith.size_hint(arith.unwrap(item.extent), arith.IMAGE_SIDE) for item in conv.anchor.spatial[2:])
    tiles = -(-pixels // (tile.rows * tile.pixels))
    lines = weights.dtype.bytes * conv.inputs * conv.taps * tile.width // LINE
    s.stream(name, weights.name, panels, _outermost(s, s.loops(name), panels, along, tiles, lines), expected=tiles)


def _outermost(s: Schedule, loops: Sequence[Var], panels: Var, along: Var, tiles: int, lines: int) -> Var:
    """Return the outermost loop inside `panels` that has at least as many iterations as there are `lines` to prefetch, so that the
    address of a prefetch is not computed more often than necessary; `along` if loops outside of it have fewer. Loops of symbolic
    extents have `tiles` iterations, taken together."""
    rounds, is_static = 1, True
    for loop in loops[loops.index(panels) + 1 : loops.index(along)]:
        extent = loop_extent(s, loop)
        rounds *= extent.value if isinstance(extent, arith.Const) else 1
        is_static = is_static and isinstance(extent, arith.Const)
        if isinstance(extent, arith.Const) and rounds * (1 if is_static else tiles) >= lines:
            return loop
    return along


def count_elements(buffer: ir.Buffer) -> int:
    """Return the number of elements of a buffer, with size hints for symbolic dimensions."""
    return prod(map(arith.size_hint, buffer.shape))


def schedule_padding(s: Schedule, block: str, lanes: int, context: KernelContext) -> Var | None:
    """Schedule a padded copy of an input, distributed by `share_rows`, with `lanes` channels per vector (0: not blocked). Returns
    the loop along rows, for `split_borders`."""
    n, channel, *image = axis_loops(s, block)
    if lanes:
        assert channel is not None
        channel, lane = s.split(channel, (None, lanes))
        s.reorder(*present(n, channel, *image), lane)
        s.vectorize(lane)
    if context.threads != 1:
        share_rows(s, [n], image[0], [channel], context.threads)
    return image[-1]
