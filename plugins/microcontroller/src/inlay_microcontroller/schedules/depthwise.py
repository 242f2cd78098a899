"""Convolutions of each channel alone, of 8-bit numbers with channels last: a few channels of a few pixels at a time."""

from __future__ import annotations

from dataclasses import dataclass

from inlay import arith
from inlay.arith import Var
from inlay.schedules.rule import Given, KernelContext, Offer
from inlay.tensor import ir
from inlay.tensor.keys import structurally_equal
from inlay.tensor.primitives import TensorIntrin
from inlay.types import Layout, dtype
from inlay_microcontroller.schedules.epilogue import Epilogue
from inlay_microcontroller.schedules.product import Product, find_product
from inlay_microcontroller.schedules.rows import Rows, rows_of

INT32 = dtype("int32")
PIXELS = 2
"""Pixels of a tile: a weight that is loaded is used for each."""


def lane_products(lanes: int) -> ir.LoopProgram:
    """For each lane i, total[i] += a[i] * b[i], of int8 in int32."""
    a, b = (ir.Buffer(name, (lanes,), dtype("int8")) for name in "ab")
    total, i = ir.Buffer("total", (lanes,), INT32), Var("i")
    product = ir.cast(ir.load(a, (i,)), INT32) * ir.cast(ir.load(b, (i,)), INT32)
    store = ir.Store(total, (i,), ir.load(total, (i,)) + product)
    return ir.LoopProgram("lanes", (a, b), (total,), ir.For(i, arith.wrap(lanes), store))


class DepthwiseRule:
    """Windows over single channels, of int8 operands."""

    name = "depthwise"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines dilated windows, and weights that are not constant."""
        product, intrinsic = find_product(program), _lanes(context)
        if product is None or intrinsic is None or not product.by_channel:
            return None
        if max(product.rows.dilation, product.columns.dilation) > 1 or not given[program.inputs.index(product.weights)].constant:
            return None
        # One image of weights: KH KW C.
        weights = Layout(((0, product.outputs),))
        layouts = tuple(product.layout_of(buffer, weights) for buffer in program.params)
        return Offer(layouts, lambda _: _Depthwise(product, intrinsic, Epilogue(product, context)).program())


def _lanes(context: KernelContext) -> TensorIntrin | None:
    """The intrinsic that multiplies channel by channel."""
    for intrinsic in context.intrinsics:
        shape = intrinsic.semantics.params[0].shape
        if len(shape) == 1 and isinstance(shape[0], int) and structurally_equal(intrinsic.semantics, lane_products(shape[0])):
            return intrinsic
    return None


@dataclass(frozen=True)
class _Depthwise:
    """
    for y, pixels, channels:
        total[pixel, lane] = 0
        for taps:
            lanes(data, weights, total)       # for each pixel
        out = after(total)
    """

    product: Product
    intrinsic: TensorIntrin
    epilogue: Epilogue

    @property
    def lanes(self) -> int:
        size = self.intrinsic.semantics.params[0].shape[0]
        assert isinstance(size, int)
        return size

    def program(self) -> ir.LoopProgram:
        """The kernel."""
        product = self.product
        size = product.rows.taps * product.columns.taps * product.outputs
        weights = ir.Buffer(product.weights.name, (size,), product.weights.dtype)
        rows = rows_of(product, self.epilogue.flat[product.data])
        y, x = Var("y"), Var("x")
        whole, rest = divmod(product.columns.outputs, PIXELS)
        parts: list[ir.Stmt] = []
        if whole:
            parts.append(ir.For(x, arith.wrap(whole), self._pixels(rows, weights, y, x * PIXELS, PIXELS)))
        if rest:
            parts.append(self._pixels(rows, weights, y, arith.wrap(whole * PIXELS), rest))
        return self.epilogue.program(weights, rows.over(y, ir.Seq(tuple(parts))))

    def _pixels(self, rows: Rows, weights: ir.Buffer, y: Var, first: arith.Expr, pixels: int) -> ir.Stmt:
        """All channels of some pixels."""
        whole, rest = divmod(self.product.outputs, self.lanes)
        o = Var("o")
        parts: list[ir.Stmt] = []
        if whole:
            tile = self._tile(rows, weights, (y, first, o * self.lanes), pixels, self.lanes)
            parts.append(ir.For(o, arith.wrap(whole), tile))
        if rest:
            parts.append(self._tile(rows, weights, (y, first, arith.wrap(whole * self.lanes)), pixels, rest))
        return ir.Seq(tuple(parts))

    def _tile(
        self,
        rows: Rows,
        weights: ir.Buffer,
        at: tuple[arith.Expr, arith.Expr, arith.Expr],
        pixels: int,
        lanes: int,
    ) -> ir.Stmt:
        """Some channels of some pixels."""
        product = self.product
        y, first, channel = at
        total = ir.Buffer("total", (pixels, lanes), INT32, "register")
        ky = Var("ky")
        sums: list[ir.Stmt] = []
        for kx in range(product.columns.taps):
            weight = arith.simplify((ky * product.columns.taps + kx) * product.outputs + channel)
            for p in range(pixels):
                offset = ((first + p) * product.columns.stride + kx) * product.outputs + channel
                sums += self._taken(rows.buffer, rows.place(y, ky, offset), weights, weight, total, p, lanes)
        row = y * product.columns.outputs
        results = self.epilogue.results(total, channel, [arith.simplify(row + first + p) for p in range(pixels)])
        start = self.epilogue.start(total, channel)
        return ir.Alloc(total, ir.Seq((*start, ir.For(ky, arith.wrap(product.rows.taps), ir.Seq(tuple(sums))), *results)))

    def _taken(
        self, data: ir.Buffer, at: arith.Expr, weights: ir.Buffer, weight: arith.Expr, total: ir.Buffer, pixel: int, lanes: int
    ) -> list[ir.Stmt]:
        """Add the products of one tap of one pixel."""
        row = arith.wrap(pixel)
        if lanes == self.lanes:
            size = arith.wrap(lanes)
            regions = ((data, ((at, size),)), (weights, ((weight, size),)), (total, ((row, arith.ONE), (arith.ZERO, size))))
            return [ir.Intrinsic(self.intrinsic.name, tuple(ir.Region(buffer, ranges) for buffer, ranges in regions))]
        done: list[ir.Stmt] = []
        for lane in range(lanes):
            a = ir.cast(ir.load(data, (arith.simplify(at + lane),)), INT32)
            b = ir.cast(ir.load(weights, (arith.simplify(weight + lane),)), INT32)
            place = (row, arith.wrap(lane))
            done.append(ir.Store(total, place, ir.load(total, place) + a * b))
        return done
