"""Schedule of low-precision convolutions by instructions on tiles.

Activations have layout N C/b H W b: a block of b channels fills a row of a tile. Adjacent pixels are the rows of a left operand for
every window offset, without im2col. Only padded activations are copied. For 1x1 windows, the rows of an image form one line.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.schedules.direct_conv import schedule_padding
from inlaid.schedules.dot import narrow_product
from inlaid.schedules.shape import Anchor, constant_extent, find_anchor, is_constant, layouts_by_name
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid.tensor.transform.layouts import with_layouts
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Expr, Var
from inlaid_runtime.types import ROW_MAJOR, Layout
from inlaid_x86.tiles.nest import (
    LEAST_ROWS,
    TiledProduct,
    box,
    find_buffer,
    read_epilogue,
    unravel,
    with_epilogue,
    with_nest,
)
from inlaid_x86.tiles.unit import TileUnit, find_unit


class TileConvRule:
    """Schedule rule for ungrouped 2-D convolutions of low-precision operands, with a stride that tile loads support. Batch size and
    image size are arbitrary."""

    name = "tile_conv"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines channels that do not fill groups and columns, short rows of pixels, and consumers that are not
        element-wise."""
        if not context.capabilities.scopes or 0 in program.outputs[0].shape:
            return None
        anchor = find_anchor(program)
        conv = None if anchor is None else _conv(program, anchor, context)
        if conv is None:
            return None
        params = tuple(conv.layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(params, lambda _: conv.nest(context))


@dataclass(frozen=True)
class _Conv:
    """A convolution and its tiling. `schedule`: schedule of the program, with the epilogue fused into the last block. `flat`: the
    rows of an image form one line."""

    anchor: Anchor
    schedule: Schedule
    data: ir.Load
    weights: ir.Load
    unit: TileUnit
    flat: bool

    @property
    def block(self) -> int:
        """Number of input channels per reduction step."""
        return _block(constant_extent(self.anchor.reduced[0]), self.unit)

    @property
    def layouts(self) -> dict[ir.Buffer, Layout]:
        """Layouts: activations in channel blocks, results in blocks for a next convolution, weights in tile-wide panels."""
        blocked, unit = Layout(((1, self.block),)), self.unit
        layouts = {self.weights.buffer: Layout(((1, self.block), (0, unit.columns), (1, unit.group))), self.data.buffer: blocked}
        for block in self.anchor.before:
            layouts.update((region.buffer, blocked) for region in block.reads if len(region.buffer.shape) == 4)
        result = Layout(((1, _block(constant_extent(self.anchor.spatial[1]), unit)),))
        for buffer in self.schedule.program.params:
            if buffer.shape == self.anchor.buffer.shape:
                layouts.setdefault(buffer, result)
        return layouts

    def nest(self, context: KernelContext) -> ir.LoopProgram:
        """Build the loop nest of the padded copy, if any, and the nest of the product."""
        s = Schedule(self.schedule.program)
        for before in self.anchor.before:
            schedule_padding(s, before.name, self.block, context)
        laid_out = with_layouts(s.program, layouts_by_name(s.program, self.layouts))
        images, _, height, width = (item.extent for item in self.anchor.spatial)
        lines, length = map(arith.simplify, (images, height * width) if self.flat else (images * height, width))
        columns, rows, unit = constant_extent(self.anchor.spatial[1]), self.unit.rows_per_tile(length), self.unit
        data, weights = (find_buffer(laid_out, load.buffer.name) for load in (self.data, self.weights))
        if self.flat:
            merged = ir.Buffer(data.name, (*data.shape[:2], arith.unwrap(length), self.block), data.dtype)
            laid_out, data = Rewriter(buffers={data: merged}).program(laid_out), merged
        channels, *window = map(constant_extent, self.anchor.reduced)
        steps = tuple(zip(map(Var, ("block", "ky", "kx")), (channels // self.block, *window), strict=True))
        block, *taps = (var for var, _ in steps)
        epilogue = read_epilogue(laid_out, self.anchor)
        assert epilogue is not None

        def pixel(line: Expr, row: Expr) -> tuple[Expr, ...]:
            return (line, row // width, row % width) if self.flat else (*unravel(line, (images, height)), row)

        def left(batch: Expr, line: Expr, tile: Expr, row: Expr) -> ir.BufferRegion:
            channel_range = (arith.ZERO, self.block)
            if self.flat:
                return box(data, line, block, (row, rows), channel_range)
            image, *pixel_indices = pixel(line, row)
            variables = [item.var for item in (*self.anchor.spatial[2:], *self.anchor.reduced[1:])]
            positions: dict[Expr, Expr] = dict(zip(variables, (*pixel_indices, *taps), strict=True))
            y, x = (arith.substitute(index, positions) for index in self.data.indices[2:])
            return box(data, image, block, y, (x, arith.unwrap((rows - 1) * unit.step + 1)), channel_range)

        def right(batch: Expr, tile: Expr) -> ir.BufferRegion:
            extents = (self.block // unit.group, unit.columns, unit.group)
            return box(weights, tile, block, *taps, *((arith.ZERO, extent) for extent in extents))

        def store(batch: Expr, line: Expr, row: Expr, column: Expr, value: ir.Expr) -> ir.Stmt:
            image, y, x = pixel(line, row)
            return epilogue.at((image, column, y, x), value)

        product = TiledProduct(unit, arith.ONE, lines, length, rows, columns, self.block, steps, left, right, store)
        return with_nest(laid_out, self.anchor, product.nest(context.threads))


def _conv(program: ir.LoopProgram, anchor: Anchor, context: KernelContext) -> _Conv | None:
    """Match out[n, o, y, x] += data[n, c, ...] * weights[o, c, ky, kx]; data is an input or its padded copy."""
    if len(anchor.spatial) != 4 or len(anchor.reduced) != 3 or len(anchor.before) > 1:
        return None
    product = narrow_product(anchor)
    if product is None:
        return None
    data, weights = product
    (n, o, _, x), (c, ky, kx) = (tuple(item.var for item in items) for items in (anchor.spatial, anchor.reduced))
    if weights.buffer not in program.inputs or weights.indices != (o, c, ky, kx) or data.indices[:2] != (n, c):
        return None
    if (data.buffer in program.inputs) == bool(anchor.before) or data.buffer is weights.buffer:
        return None
    x_parts = arith.affine(data.indices[3], x)
    if x_parts is None or not isinstance(x_parts[0], arith.Const):
        return None
    unit = find_unit(context, data.dtype.name, weights.dtype.name, anchor.buffer.dtype.name, x_parts[0].value)
    if unit is None or not is_constant(anchor.spatial[1], *anchor.reduced):
        return None
    if constant_extent(anchor.spatial[1]) % unit.columns or constant_extent(anchor.reduced[0]) % unit.group:
        return None
    schedule = with_epilogue(program, anchor)
    epilogue = None if schedule is None else read_epilogue(schedule.program, anchor)
    if schedule is None or epilogue is None:
        return None
    height, width = (item.extent for item in anchor.spatial[2:])
    covers_image = all(arith.simplify(a - b) == arith.ZERO for a, b in zip((height, width), data.buffer.shape[2:], strict=True))
    is_pointwise = covers_image and all(constant_extent(item) == 1 for item in anchor.reduced[1:])
    flat = is_pointwise and not anchor.before and not epilogue.reads(data.buffer)
    if arith.size_hint(arith.unwrap(height * width if flat else width)) < LEAST_ROWS:
        return None
    return _Conv(anchor, schedule, data, weights, unit, flat)


def _block(channels: int, unit: TileUnit) -> int:
    """Choose the number of channels per block: at most a tile's row, a multiple of the tile's columns if possible."""
    part = unit.columns if channels % unit.columns == 0 else unit.group
    return max(size for size in range(part, unit.depth + 1, part) if channels % size == 0)
