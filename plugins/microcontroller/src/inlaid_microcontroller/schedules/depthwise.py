"""Schedule of int8 depthwise convolutions with channels last. Loops over rows, then channels, then columns.

A column is read once for all windows that contain it. The weights of a channel are read once per row. Each byte is loaded
separately, and the load sign-extends it. With a dot product of 16-bit pairs, two rows of a column form a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import find_dots
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_microcontroller.schedules.epilogue import Epilogue
from inlaid_microcontroller.schedules.product import Product, find_layer
from inlaid_microcontroller.schedules.requantize import intrinsic_for
from inlaid_microcontroller.schedules.rows import Rows, build_rows
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import ROW_MAJOR, dtype

INT8, INT16, INT32 = dtype("int8"), dtype("int16"), dtype("int32")
PIXELS = 6
"""Maximum number of pixels of a row that are unrolled. More pixels would share more columns, but increase code size."""
MAX_TAPS = 128
"""Maximum taps of an unrolled window. On Cortex-M4, an unrolled 7x7 window has 5 KB of code and executes 0.15 times the
instructions of loops."""


def pair() -> ir.LoopProgram:
    """Return the semantics of the intrinsic that packs two int8 as adjacent int16."""
    a, b, out = ir.Buffer("a", (1,), INT8), ir.Buffer("b", (1,), INT8), ir.Buffer("out", (2,), INT16)
    stores = (ir.Store(out, (arith.wrap(lane),), ir.cast(ir.load(each, (arith.ZERO,)), INT16)) for lane, each in enumerate((a, b)))
    return ir.LoopProgram("pair", (a, b), (out,), ir.Seq(tuple(stores)))


class DepthwiseRule:
    """Schedule rule for int8 depthwise convolutions on processors without vectors."""

    name = "depthwise"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines dilated windows, windows of many taps, and weights that are not constant."""
        product = find_layer(program, inputs)
        if product is None or not product.by_channel or product.summed > MAX_TAPS:
            return None
        layouts = tuple(product.choose_layout(buffer, ROW_MAJOR) for buffer in program.params)
        return Offer(layouts, lambda _: _columns(product, context))


def _columns(product: Product, context: KernelContext) -> ir.LoopProgram:
    epilogue = Epilogue(product, context)
    weights = ir.Buffer(product.weights.name, (product.summed * product.outputs,), INT8)
    pair_intrinsic = intrinsic_for(pair(), context)
    dot = next((dot.intrinsic for dot in find_dots("int16", "int16", "int32", context) if (dot.lanes, dot.group) == (1, 2)), None)
    taps, columns = product.rows.taps, product.columns.taps
    count = taps // 2 if pair_intrinsic is not None and dot is not None else 0
    pairs = ir.Buffer("pairs", (count * columns, 2), INT16, "register")
    singles = ir.Buffer("singles", ((taps - 2 * count) * columns,), INT32, "register")
    return _Columns(
        product, pair_intrinsic, dot, epilogue, build_rows(product, epilogue.flat[product.data]), weights, pairs, singles
    ).program()


@dataclass(frozen=True)
class _Columns:
    """Builds the loop nest:

    for y, channel:
        pairs, singles = weights              # of the channel; `singles`: a last row without a partner
        for pixels:
            for columns:
                data = pair(...)
                for windows that contain the column:
                    dot(data, pairs, total)
                out = after(total)            # of a window that ends here
    """

    product: Product
    pairing: TensorIntrin | None
    dot: TensorIntrin | None
    epilogue: Epilogue
    rows: Rows
    weights: ir.Buffer
    pairs: ir.Buffer
    singles: ir.Buffer

    @property
    def paired(self) -> int:
        """Number of pairs of rows."""
        return int(self.pairs.shape[0]) // self.product.columns.taps  # type: ignore[arg-type]

    def program(self) -> ir.LoopProgram:
        """Build the kernel."""
        product, columns = self.product, self.product.columns.taps
        y, channel, x = Var("y"), Var("o"), Var("x")
        weight = channel * product.summed
        body: list[ir.Stmt] = []
        for kx in range(columns):
            for r in range(self.paired):
                weight_indices = [weight + ((2 * r + half) * columns + kx) for half in range(2)]
                body.append(self._pair(self.weights, weight_indices, self.pairs, r * columns + kx))
            for r in range(product.rows.taps - 2 * self.paired):
                wide = _wide(self.weights, weight + ((2 * self.paired + r) * columns + kx))
                body.append(ir.Store(self.singles, (arith.wrap(r * columns + kx),), wide))
        count = product.columns.outputs
        tile_width = -(-count // -(-count // PIXELS))
        tiles, rest = divmod(count, tile_width)
        if tiles > 1:
            body.append(ir.For(x, arith.wrap(tiles), self._tile(y, channel, x * tile_width, tile_width)))
        else:
            body.append(self._tile(y, channel, arith.ZERO, tile_width))
        if rest:
            body.append(self._tile(y, channel, arith.wrap(tiles * tile_width), rest))
        inner: ir.Stmt = ir.Seq(tuple(body))
        for buffer in (self.pairs, self.singles):
            inner = inner if buffer.shape[0] == 0 else ir.Alloc(buffer, inner)
        return self.epilogue.program(self.weights, self.rows.over(y, ir.For(channel, arith.wrap(product.outputs), inner)))

    def _tile(self, y: Var, channel: Var, first: arith.Expr, pixels: int) -> ir.Stmt:
        """Build the statements that compute one channel of `pixels` adjacent pixels."""
        product = self.product
        taps, stride = product.columns.taps, product.columns.stride
        totals = [ir.Buffer("total", (1, 1), INT32, "register") for _ in range(pixels)]
        body: list[ir.Stmt] = []
        for column in range((pixels - 1) * stride + taps):
            uses = [(p, column - p * stride) for p in range(pixels) if 0 <= column - p * stride < taps]
            if not uses:
                continue
            offset = (first * stride + column) * product.outputs + channel
            row_indices = [self.rows.element_index(y, ky, offset) for ky in range(product.rows.taps)]
            body += [start for p, kx in uses if kx == 0 for start in self.epilogue.start(totals[p], channel)]
            body.append(self._column(row_indices, [(totals[p], kx) for p, kx in uses]))
            ended_pixels = [p for p, kx in uses if kx == taps - 1]
            pixel = y * product.columns.outputs + first
            body += [end for p in ended_pixels for end in self.epilogue.results(totals[p], channel, [arith.simplify(pixel + p)])]
        tile: ir.Stmt = ir.Seq(tuple(body))
        for total in totals:
            tile = ir.Alloc(total, tile)
        return tile

    def _column(self, indices: list[arith.Expr], uses: list[tuple[ir.Buffer, int]]) -> ir.Stmt:
        """Add a column, whose rows are at `indices`, to sums. uses: pairs of a sum and the number kx of the column in its
        window."""
        taps, zero = self.product.columns.taps, arith.ZERO
        data = ir.Buffer("data", (self.paired, 2), INT16, "register")
        body = [self._pair(self.rows.buffer, indices[2 * r : 2 * r + 2], data, r) for r in range(self.paired)]
        for total, kx in uses:
            for r in range(self.paired):
                assert self.dot is not None
                sums = ir.BufferRegion(total, ((zero, arith.ONE), (zero, arith.ONE)))
                body.append(self.dot.on(_row(data, r), _row(self.pairs, r * taps + kx), sums))
            for r, index in enumerate(indices[2 * self.paired :]):
                product = _wide(self.rows.buffer, index) * ir.load(self.singles, (arith.wrap(r * taps + kx),))
                body.append(ir.Store(total, (zero, zero), ir.load(total, (zero, zero)) + product))
        return ir.Alloc(data, ir.Seq(tuple(body))) if self.paired else ir.Seq(tuple(body))

    def _pair(self, source: ir.Buffer, indices: list[arith.Expr], target: ir.Buffer, number: int) -> ir.Stmt:
        assert self.pairing is not None
        halves = (ir.BufferRegion(source, ((arith.simplify(index), arith.ONE),)) for index in indices)
        return self.pairing.on(*halves, _row(target, number))


def _row(pairs: ir.Buffer, number: int) -> ir.BufferRegion:
    return ir.BufferRegion(pairs, ((arith.wrap(number), arith.ONE), (arith.ZERO, arith.wrap(2))))


def _wide(buffer: ir.Buffer, index: arith.Expr) -> ir.Expr:
    return ir.cast(ir.load(buffer, (arith.simplify(index),)), INT32)
