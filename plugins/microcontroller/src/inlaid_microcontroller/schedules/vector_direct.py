"""Schedule of int8 convolutions and matrix products with channels last, by dot products of vectors.

A tile is one pixel by as many adjacent output channels as are requantized at once. Its sums are computed in chunks; a chunk reads
one vector of data. If a window has fewer contiguous elements than a vector, or the channels are not a multiple of a vector, the
weights of the rest of a chunk are 0, so the data there are irrelevant.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import Dot, find_dots
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_microcontroller.schedules.epilogue import Epilogue
from inlaid_microcontroller.schedules.product import Product, find_layer, merged
from inlaid_microcontroller.schedules.requantize import intrinsic_for
from inlaid_microcontroller.schedules.rows import Rows, build_rows, copy_run
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var
from inlaid_runtime.types import Layout, dtype

INT8, INT32 = dtype("int8"), dtype("int32")
LEAST = 16
"""Minimum bytes of a vector dot product. Shorter dot products operate on words."""


@dataclass(frozen=True)
class _Chunks:
    """Partition of sums into chunks of `rows` by `columns` of a window by `depth` channels. stride: number of weights of a chunk,
    of which `vector` are read. runs: number of runs along each axis of the window. A run has `length` contiguous elements of data,
    and fills whole chunks or a part of one chunk."""

    rows: int
    columns: int
    depth: int
    runs: tuple[int, int]
    length: int
    vector: int

    @property
    def stride(self) -> int:
        return self.rows * self.columns * self.depth

    @property
    def slot(self) -> int:
        """Stride in elements between the starts of consecutive runs in the chunks."""
        return self.length if self.rows > 1 else -(-self.length // self.vector) * self.vector

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.runs[0] * self.runs[1] * self.slot // self.vector)

    def weights(self, product: Product, lanes: int) -> Layout:
        """Return the layout of the weights: ordered by chunk, and within a chunk by channel of the tile."""
        if not product.is_image:
            return Layout(((0, self.slot), (1, lanes), (0, self.vector)))
        if self.stride == self.vector == self.depth:
            slot = -(-product.depth // self.vector) * self.vector
            return Layout(((1, slot), (0, lanes), (1, self.vector)))
        return Layout(((0, lanes), (2, self.rows), (3, self.columns), (1, self.depth)))


def _chunks(product: Product, vector: int) -> _Chunks:
    """Choose the fewest chunks: of several rows of a window, of one row, or of the channels of a pixel."""
    rows, columns, depth = product.rows.taps, product.columns.taps, product.depth
    row = columns * depth
    if rows > 1 and row < vector and vector % row == 0:
        return _Chunks(vector // row, columns, depth, (rows, 1), row, vector)
    if columns > 1 and row <= vector:
        return _Chunks(1, -(-vector // depth), depth, (rows, 1), row, vector)
    if depth % vector == 0:
        return _Chunks(1, 1, vector, (rows, 1), row, vector)
    return _Chunks(1, 1, vector, (rows, columns), depth, vector)


class VectorDirectRule:
    """Schedule rule for int8 sums over all channels on processors with a vector dot product."""

    name = "vector_direct"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines dilated windows and weights that are not constant."""
        product, dot = find_layer(program, inputs), vector_dot(context)
        if product is None or dot is None or product.by_channel:
            return None
        merged_product = merged(product)
        chunks = _chunks(merged_product, dot.group)
        layouts = tuple(product.choose_layout(buffer, chunks.weights(product, dot.lanes)) for buffer in program.params)
        run = intrinsic_for(run_of_dots(dot.lanes, dot.group), context) if chunks.stride == dot.group else None
        return Offer(layouts, lambda _: _Vector(merged_product, dot, run, chunks, Epilogue(merged_product, context)).program())


def run_of_dots(lanes: int, group: int) -> ir.LoopProgram:
    """Return the semantics total[i] += sum over j < group of a[group k + j] * b[k, i, j] for each group k and lane i, in int32."""
    n, k, i, j = SizeVar("n"), Var("k"), Var("i"), Var("j")
    a, b = ir.Buffer("a", (arith.unwrap(n * group),), INT8), ir.Buffer("b", (n, lanes, group), INT8)
    total = ir.Buffer("total", (lanes,), INT32)
    product = ir.cast(ir.load(a, (k * group + j,)), INT32) * ir.cast(ir.load(b, (k, i, j)), INT32)
    store = ir.Store(total, (i,), ir.load(total, (i,)) + product)
    body = ir.For(k, n, ir.For(i, arith.wrap(lanes), ir.For(j, arith.wrap(group), store)))
    return ir.LoopProgram("run", (a, b), (total,), body)


def vector_dot(context: KernelContext) -> Dot | None:
    """Find the target's largest vector dot product; None if the target has none."""
    return next((dot for dot in find_dots("int8", "int8", "int32", context) if dot.group >= LEAST), None)


@dataclass(frozen=True)
class _Vector:
    """Builds the loop nest:

    for y, pixel:
        patch = data                          # unless chunks are contiguous in the data
        for channels:
            total[channel] = 0
            for runs:
                dot(patch, weights, total)    # for each chunk, or all in one intrinsic
            out = after(total)
    """

    product: Product
    dot: Dot
    run: TensorIntrin | None
    chunks: _Chunks
    epilogue: Epilogue

    def program(self) -> ir.LoopProgram:
        """Build the kernel."""
        product, lanes = self.product, self.dot.lanes
        size = -(-product.outputs // lanes) * self.chunks.count
        weights = ir.Buffer(product.weights.name, (size, lanes, self.chunks.stride), product.weights.dtype)
        rows = build_rows(product, self.epilogue.flat[product.data], self.dot.group)
        y, x = Var("y"), Var("x")
        patch = self._patch(rows)
        tiles, rest = divmod(product.outputs, lanes)
        o = Var("o")
        parts: list[ir.Stmt] = [] if patch is None else self._gathered(rows, patch, y, x)
        if tiles:
            parts.append(ir.For(o, arith.wrap(tiles), self._tile(rows, patch, weights, (y, x, o), lanes)))
        if rest:
            parts.append(self._tile(rows, patch, weights, (y, x, arith.wrap(tiles)), rest))
        body = rows.over(y, ir.For(x, arith.wrap(product.columns.outputs), ir.Seq(tuple(parts))))
        if patch is not None:
            i = Var("i")
            blank = ir.For(i, arith.wrap(patch.shape[0]), ir.Store(patch, (i,), ir.const(0, INT8)))
            body = ir.Alloc(patch, ir.Seq((blank, body)))
        return self.epilogue.program(weights, body)

    def _patch(self, rows: Rows) -> ir.Buffer | None:
        """Create the buffer into which the elements under a window are gathered. Returns None if chunks are contiguous in the
        data."""
        chunks = self.chunks
        if chunks.rows == 1 and (chunks.slot == chunks.length or rows.ring is not None):
            return None
        return ir.Buffer("patch", (chunks.count * chunks.vector,), INT8)

    def _start(self, rows: Rows, y: Var, ky: arith.Expr | int, x: arith.Expr, kx: arith.Expr | int) -> arith.Expr:
        """Return the index of the first element of a run."""
        columns = self.product.columns
        return rows.element_index(y, ky, arith.simplify((x * columns.stride + kx) * self.product.channels))

    def _gathered(self, rows: Rows, patch: ir.Buffer, y: Var, x: Var) -> list[ir.Stmt]:
        chunks = self.chunks
        run_rows, run_columns = chunks.runs
        return [
            copy_run(rows.buffer, self._start(rows, y, ky, x, kx), patch, (ky * run_columns + kx) * chunks.slot, chunks.length)
            for ky in range(run_rows)
            for kx in range(run_columns)
        ]

    def _tile(
        self,
        rows: Rows,
        patch: ir.Buffer | None,
        weights: ir.Buffer,
        position: tuple[Var, Var, arith.Expr],
        lanes: int,
    ) -> ir.Stmt:
        """Build the statements of one tile: `lanes` output channels of a pixel."""
        chunks, (y, x, o) = self.chunks, position
        total = ir.Buffer("total", (1, self.dot.lanes), INT32, "register")
        start = [ir.Store(total, (arith.ZERO, arith.wrap(lane)), ir.const(0, INT32)) for lane in range(self.dot.lanes)]
        ky, kx = Var("ky"), Var("kx")
        number = o * chunks.count
        if patch is not None:
            sums = self._sum(total, (patch, arith.ZERO), (weights, number), chunks.count)
        else:
            run_rows, run_columns = chunks.runs
            chunks_per_run = chunks.slot // chunks.vector
            first = rows.buffer, self._start(rows, y, ky, x, kx)
            chunk = self._sum(total, first, (weights, number + (ky * run_columns + kx) * chunks_per_run), chunks_per_run)
            sums = ir.For(ky, arith.wrap(run_rows), ir.For(kx, arith.wrap(run_columns), chunk))
        pixel = arith.simplify(y * self.product.columns.outputs + x)
        results = self.epilogue.stored(total, 0, 0, lanes, arith.simplify(o * self.dot.lanes), pixel)
        return ir.Alloc(total, ir.Seq((*start, sums, *results)))

    def _sum(
        self, total: ir.Buffer, data: tuple[ir.Buffer, arith.Expr], weights: tuple[ir.Buffer, arith.Expr], count: int
    ) -> ir.Stmt:
        """Build the sums of `count` consecutive chunks."""
        vector, lanes, step = arith.wrap(self.dot.group), arith.wrap(self.dot.lanes), Var("step")

        def chunks(first: arith.Expr, number: int, intrinsic: TensorIntrin) -> ir.Stmt:
            offset = arith.simplify(data[1] + first * vector)
            regions = (
                ir.BufferRegion(data[0], ((offset, arith.simplify(vector * number)),)),
                ir.BufferRegion(
                    weights[0],
                    ((arith.simplify(weights[1] + first), arith.wrap(number)), (arith.ZERO, lanes), (arith.ZERO, vector)),
                ),
                ir.BufferRegion(total, ((arith.ZERO, arith.ONE), (arith.ZERO, lanes))),
            )
            return intrinsic.on(*regions)

        if self.run is not None:
            return chunks(arith.ZERO, count, self.run)
        return ir.For(step, arith.wrap(count), chunks(step, 1, self.dot.intrinsic))
