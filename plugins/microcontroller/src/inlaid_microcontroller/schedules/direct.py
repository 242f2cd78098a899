"""Schedule of int8 convolutions and matrix products with channels last, by tiles of pixels and output channels.

Processors without vectors, or with instructions that reduce a vector to one number, have few registers and do not benefit from
adjacent results. A tile consists of a few sums, to which dot products along the channels are added. Weights are stored in the order
in which a tile reads them: O/w KH KW C/g w g.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import Dot, find_dots
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_microcontroller.schedules.epilogue import Epilogue
from inlaid_microcontroller.schedules.product import Product, find_layer, merged
from inlaid_microcontroller.schedules.requantize import intrinsic_for
from inlaid_microcontroller.schedules.rows import Rows, build_rows
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import Layout, dtype

INT8, INT32 = dtype("int8"), dtype("int32")
UNROLLED = 16
"""Maximum number of products of a row that are unrolled if the target has no dot product."""
TILED = 4
"""Maximum number of groups that a tile of several pixels unrolls. More groups are not worth the code size."""


def tile_product(pixels: int, lanes: int, group: int) -> ir.LoopProgram:
    """Return the semantics total[p, i] += sum over j < group of a_p[j] * b[i, j] for each pixel p and lane i, int8 to int32."""
    data = tuple(ir.Buffer(f"a{p}", (group,), INT8) for p in range(pixels))
    weights, total = ir.Buffer("b", (lanes, group), INT8), ir.Buffer("total", (pixels, lanes), INT32)
    i, j = Var("i"), Var("j")
    stores = []
    for p, a in enumerate(data):
        product = ir.cast(ir.load(a, (j,)), INT32) * ir.cast(ir.load(weights, (i, j)), INT32)
        index = (arith.wrap(p), i)
        stores.append(ir.Store(total, index, ir.load(total, index) + product))
    body = ir.For(i, arith.wrap(lanes), ir.For(j, arith.wrap(group), ir.Seq(tuple(stores))))
    return ir.LoopProgram("tile", (*data, weights), (total,), body)


@dataclass(frozen=True)
class _Plan:
    """A product and its tile of `pixels` by `width` output channels. dot: intrinsic that sums `group` elements; None to sum
    elements one by one. tile: intrinsic that sums a group for the whole tile; None if unavailable. run: groups contain columns of a
    window instead of channels, since there is only one channel."""

    product: Product
    pixels: int
    width: int
    group: int
    dot: Dot | None
    run: bool
    tile: TensorIntrin | None = None

    @property
    def steps(self) -> int:
        """Number of groups per tap of the window; if `run`, per row of taps."""
        return -(-(self.product.columns.taps if self.run else self.product.depth) // self.group)

    @property
    def taps(self) -> int:
        """Number of window columns that are summed one after another."""
        return 1 if self.run else self.product.columns.taps

    @property
    def slack(self) -> int:
        """Number of elements that the last group reads past the end of a pixel."""
        return 0 if self.run else max(self.group - self.product.depth, 0)

    @property
    def layout(self) -> Layout:
        """Layout of the weights."""
        summed = self.steps * self.group
        channels, depth = (0, 3 if self.run else 1) if self.product.is_image else (1, 0)
        return Layout(((depth, summed), (channels, self.width), (depth, self.group)))


class DirectRule:
    """Schedule rule for int8 convolutions and matrix products that sum over all channels."""

    name = "direct"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines dilated windows and weights that are not constant."""
        product = find_layer(program, inputs)
        if product is None or product.by_channel:
            return None
        plan = _plan(merged(product), context)
        layouts = tuple(product.choose_layout(buffer, plan.layout) for buffer in program.params)
        return Offer(layouts, lambda _: _direct(plan, context).program())


def _plan(product: Product, context: KernelContext) -> _Plan:
    """Choose the tile: two pixels by two channels, or one pixel by four."""
    pixels = 2 if product.columns.outputs > 1 else 1
    dots = find_dots("int8", "int8", "int32", context)
    preferred_lanes = 2 if pixels > 1 else 4
    run = product.depth == 1 and product.columns.taps > 1
    length = product.columns.taps if run else product.depth

    def find_tile_intrinsic(dot: Dot) -> TensorIntrin | None:
        return intrinsic_for(tile_product(pixels, dot.lanes, dot.group), context) if pixels > 1 else None

    fitting = [
        dot for dot in dots if dot.lanes <= max(product.outputs, 1) and dot.group <= length and (not run or length % dot.group == 0)
    ]
    if not fitting and product.padded:
        # The group also reads elements of the ring past those of a pixel; their weights are zero.
        wider = (dot for dot in dots if dot.lanes <= product.outputs and dot.group == length + 1)
        fitting = [dot for dot in wider if find_tile_intrinsic(dot) is not None]
    if not fitting:
        return _Plan(product, pixels, min(preferred_lanes, product.outputs), 1, None, False)
    # The remainder of a group is added one by one.
    dot = min(fitting, key=lambda each: (abs(each.lanes - preferred_lanes), length % each.group, -each.group))
    return _Plan(product, pixels, dot.lanes, dot.group, dot, run, find_tile_intrinsic(dot))


def _direct(plan: _Plan, context: KernelContext) -> _Direct:
    product, epilogue = plan.product, Epilogue(plan.product, context)
    # Weights are [steps, output channels of a tile, elements of a group].
    count = -(-product.outputs // plan.width) * product.rows.taps * plan.taps * plan.steps
    weights = ir.Buffer(product.weights.name, (count, plan.width, plan.group), product.weights.dtype)
    return _Direct(plan, epilogue, build_rows(product, epilogue.flat[product.data], plan.slack), weights)


@dataclass(frozen=True)
class _Direct:
    """Builds the loop nest:

    for y, pixels, channels:
        total[pixel, channel] = 0
        for taps and groups:
            dot(data, weights, total)         # for each pixel
        out = after(total)
    """

    plan: _Plan
    epilogue: Epilogue
    rows: Rows
    weights: ir.Buffer

    def program(self) -> ir.LoopProgram:
        """Build the kernel."""
        pixels, count = self.plan.pixels, self.plan.product.columns.outputs
        y, x = Var("y"), Var("x")
        tiles, rest = divmod(count, pixels)
        parts: list[ir.Stmt] = []
        if tiles:
            parts.append(ir.For(x, arith.wrap(tiles), self._pixels(y, x * pixels, pixels)))
        if rest:
            parts.append(self._pixels(y, arith.wrap(tiles * pixels), rest))
        return self.epilogue.program(self.weights, self.rows.over(y, ir.Seq(tuple(parts))))

    def _pixels(self, y: Var, first: arith.Expr, pixels: int) -> ir.Stmt:
        """Build the loop over output channels for `pixels` pixels."""
        plan, o = self.plan, Var("o")
        total = ir.Buffer("total", (pixels, plan.width), INT32, "register")
        channel = arith.simplify(o * plan.width)
        pixel_numbers = [arith.simplify(y * plan.product.columns.outputs + first + p) for p in range(pixels)]
        results = self.epilogue.results(total, channel, pixel_numbers)
        start = self.epilogue.start(total, channel)
        body = ir.Alloc(total, ir.Seq((*start, self._sums(total, y, first, o), *results)))
        return ir.For(o, arith.wrap(-(-plan.product.outputs // plan.width)), body)

    def _sums(self, total: ir.Buffer, y: Var, first: arith.Expr, o: Var) -> ir.Stmt:
        """Build the loops that compute the sums of a tile."""
        plan, product = self.plan, self.plan.product
        ky, kx = Var("ky"), Var("kx")
        length = product.columns.taps if plan.run else product.depth
        groups, rest = divmod(length, plan.group)
        row = o * product.rows.taps + ky

        def indices_at(offset: arith.Expr | int) -> list[arith.Expr]:
            """Return the index of an element for each pixel."""
            stride = product.columns.stride * product.channels
            return [self.rows.element_index(y, ky, (first + p) * stride + offset) for p in range(int(total.shape[0]))]  # type: ignore[arg-type]

        if plan.slack:
            taps = [
                stmt
                for tap in range(plan.taps)
                for stmt in self._group(total, indices_at(tap * product.channels), row * plan.taps + tap)
            ]
            return ir.For(ky, arith.wrap(product.rows.taps), ir.Seq(tuple(taps)))
        if rest == 0:
            # The groups of channels of all taps of a row are contiguous in memory.
            count = plan.taps * groups
            if plan.dot is None and count <= UNROLLED:
                stores = [store for k in range(count) for store in self._ones(total, indices_at(arith.wrap(k)), row * count + k, 1)]
                return ir.For(ky, arith.wrap(product.rows.taps), ir.Seq(tuple(stores)))
            return ir.For(ky, arith.wrap(product.rows.taps), self._groups(total, indices_at, row * count, count))
        number = (row * plan.taps + kx) * plan.steps
        offset = kx * product.channels
        body: list[ir.Stmt] = []
        if groups:
            body.append(self._groups(total, lambda each: indices_at(offset + each), number, groups))
        body += self._ones(total, indices_at(offset + groups * plan.group), number + groups, rest)
        return ir.For(ky, arith.wrap(product.rows.taps), ir.For(kx, arith.wrap(plan.taps), ir.Seq(tuple(body))))

    def _groups(
        self, accumulators: ir.Buffer, indices_at: Callable[[arith.Expr], list[arith.Expr]], number: arith.Expr, count: int
    ) -> ir.Stmt:
        """Build the addition of the products of `count` consecutive groups, a few groups per iteration of a loop."""
        group, step = self.plan.group, Var("step")
        unrolled = TILED if self._is_tile(accumulators) else 1
        iterations = count // unrolled if count > unrolled else 0

        def add_groups(first: arith.Expr, length: int) -> list[ir.Stmt]:
            """Build the addition of `length` groups starting at `first`."""
            group_indices = (first + k for k in range(length))
            return [
                stmt for index in group_indices for stmt in self._group(accumulators, indices_at(index * group), number + index)
            ]

        loop = [ir.For(step, arith.wrap(iterations), ir.Seq(tuple(add_groups(step * unrolled, unrolled))))] if iterations else []
        return ir.Seq((*loop, *add_groups(arith.wrap(iterations * unrolled), count - iterations * unrolled)))

    def _is_tile(self, total: ir.Buffer) -> bool:
        return self.plan.tile is not None and total.shape[0] == self.plan.pixels

    def _group(self, total: ir.Buffer, indices: list[arith.Expr], number: arith.Expr) -> list[ir.Stmt]:
        """Build the addition of the products of a group of elements of each pixel. number: index of the group's weights."""
        plan = self.plan
        if plan.dot is None:
            return self._ones(total, indices, number, 1)
        group, width = arith.wrap(plan.group), arith.wrap(plan.width)
        weights = ir.BufferRegion(self.weights, ((arith.simplify(number), arith.ONE), (arith.ZERO, width), (arith.ZERO, group)))
        if plan.tile is not None and self._is_tile(total):
            data = (ir.BufferRegion(self.rows.buffer, ((index, group),)) for index in indices)
            sums = ir.BufferRegion(total, ((arith.ZERO, arith.wrap(plan.pixels)), (arith.ZERO, width)))
            return [plan.tile.on(*data, weights, sums)]
        return [
            plan.dot.intrinsic.on(
                ir.BufferRegion(self.rows.buffer, ((index, group),)),
                weights,
                ir.BufferRegion(total, ((arith.wrap(p), arith.ONE), (arith.ZERO, width))),
            )
            for p, index in enumerate(indices)
        ]

    def _ones(self, total: ir.Buffer, indices: list[arith.Expr], number: arith.Expr, length: int) -> list[ir.Stmt]:
        """Build the addition of the products of `length` elements, one by one."""
        stores: list[ir.Stmt] = []
        for k in range(length):
            for p, index in enumerate(indices):
                for j in range(self.plan.width):
                    a = ir.cast(ir.load(self.rows.buffer, (arith.simplify(index + k),)), INT32)
                    b = ir.cast(ir.load(self.weights, (arith.simplify(number), *_as_index(j, k))), INT32)
                    stores.append(ir.Store(total, _as_index(p, j), ir.load(total, _as_index(p, j)) + a * b))
        return stores


def _as_index(*indices: int) -> tuple[arith.Expr, ...]:
    return tuple(map(arith.wrap, indices))
