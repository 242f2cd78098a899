"""Epilogue of a kernel: initial values of sums, and results computed from the sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from inlaid.schedules.shape import inline_blocks, last_epilogue
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_microcontroller.schedules.product import Product
from inlaid_microcontroller.schedules.requantize import Requantized, intrinsic_for, requantization, requantized, rescaling
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

INT8, INT32, BOOL = dtype("int8"), dtype("int32"), dtype("bool")
MAX_PRODUCTS = 1 << 15
"""Exclusive limit of the number of int8 products in a sum for the requantizing intrinsics. Below it, the sum stays below 2^29."""


class Epilogue:
    """The epilogue of a kernel. requantized: the matched requantization, None for other epilogues. flat: one-dimensional buffers
    that replace parameters: the data and buffers of the result's shape (channels last), and per-channel parameters."""

    def __init__(self, product: Product, context: KernelContext) -> None:
        self._product, self._context = product, context
        self._value: ir.Expr | None = None
        self._iters: tuple[arith.Expr, ...] = ()
        final = last_epilogue(product.anchor)
        if final is not None:
            s = Schedule(product.program)
            # Blocks before the anchor are inlined too: the padding value may also be an operand of the epilogue, as in a relu.
            inlined = (*product.anchor.before[:-1], *(block for block in product.anchor.after if block.name != final))
            inline_blocks(s, [block.name for block in inlined])
            block = next(stmt for stmt in ir.walk_stmts(s.program.body) if isinstance(stmt, ir.Block) and stmt.name == final)
            assert isinstance(block.body, ir.Store)
            self._value, self._iters = block.body.value, block.body.indices
        self.requantized = None if self._value is None else requantized(self._value, product.anchor.buffer)
        scale_buffers = () if (scaling := self.requantized) is None else (scaling.bias, scaling.multiplier, scaling.shift)
        if any(_size(buffer) != product.outputs for buffer in scale_buffers) or product.summed >= MAX_PRODUCTS:
            self.requantized, scale_buffers = None, ()
        shape = product.anchor.buffer.shape
        self.flat = {
            buffer: ir.Buffer(buffer.name, (_size(buffer),), buffer.dtype)
            for buffer in product.program.params
            if buffer is product.data or buffer.shape == shape or buffer in scale_buffers
        }

    def program(self, weights: ir.Buffer, body: ir.Stmt) -> ir.LoopProgram:
        """Build the kernel with flattened parameters."""
        program = self._product.program
        replacements = {**self.flat, self._product.weights: weights}
        inputs, outputs = (tuple(replacements.get(buffer, buffer) for buffer in side) for side in (program.inputs, program.outputs))
        return ir.LoopProgram(program.name, inputs, outputs, body)

    def start(self, total: ir.Buffer, first: arith.Expr) -> list[ir.Stmt]:
        """Build stores of the initial values of rows of sums. A row covers adjacent output channels, starting at channel
        `first`."""
        rows, lanes = _shape(total)
        biased = self._begins_biased(lanes)
        bias = self.flat[self.requantized.bias] if biased and self.requantized is not None else None
        return [
            ir.Store(
                total,
                (arith.wrap(row), arith.wrap(lane)),
                ir.const(0, INT32) if bias is None else ir.load(bias, (arith.simplify(first + lane),)),
            )
            for lane in range(lanes)
            for row in range(rows)
        ]

    def results(self, total: ir.Buffer, first: arith.Expr, pixels: Sequence[arith.Expr]) -> list[ir.Stmt]:
        """Build stores of the results of rows of sums, one row per pixel, over adjacent output channels starting at `first`.
        Channels past the last output channel are skipped. The sums must have been initialized by `start`."""
        product = self._product
        rows, lanes = _shape(total)
        rescaled = self._rescaled(total, 0, rows, first, pixels) if self._begins_biased(lanes) else []
        if rescaled:
            return rescaled
        stores: list[ir.Stmt] = []
        for row, pixel in enumerate(pixels):
            if product.outputs % lanes == 0:
                stores += self.stored(total, row, 0, lanes, first, pixel)
                continue
            for lane in range(lanes):
                channel = arith.simplify(first + lane)
                (store,) = self.stored(total, row, lane, 1, channel, pixel)
                exists = arith.compare("<", channel, product.outputs)
                always_exists = lane < product.outputs % lanes or isinstance(first, arith.Const)
                stores.append(store if always_exists else ir.If(ir.as_expr(exists, BOOL), store))
        return stores

    def _begins_biased(self, lanes: int) -> bool:
        """Test whether to initialize sums with their biases, which saves an addition per sum. False if a tile may exceed the output
        channels, if the zero point is not an int8, or if the target has no rescaling intrinsic."""
        scaling = self.requantized
        if scaling is None or self._product.outputs % lanes or not INT8.limits[0] <= scaling.zero <= INT8.limits[1]:
            return False
        return intrinsic_for(rescaling(1, lanes, scaling.rounding), self._context) is not None

    def _rescaled(self, total: ir.Buffer, row: int, rows: int, first: arith.Expr, pixels: Sequence[arith.Expr]) -> list[ir.Stmt]:
        """Build stores of the results of rows of sums initialized with their biases: all rows at once if an intrinsic does, else
        row by row."""
        scaling, lanes = self.requantized, _shape(total)[1]
        assert scaling is not None
        intrinsic = intrinsic_for(rescaling(rows, lanes, scaling.rounding), self._context)
        if intrinsic is None:
            return [each for number in range(rows) for each in self._rescaled(total, row + number, 1, first, pixels[number:])]
        size, outputs = arith.wrap(lanes), self._product.outputs
        regions = (
            ir.BufferRegion(total, ((arith.wrap(row), arith.wrap(rows)), (arith.ZERO, size))),
            *(ir.BufferRegion(self.flat[buffer], ((first, size),)) for buffer in (scaling.multiplier, scaling.shift)),
            *(
                ir.BufferRegion(self.flat[self._product.program.outputs[0]], ((arith.simplify(pixel * outputs + first), size),))
                for pixel in pixels[:rows]
            ),
        )
        return [intrinsic.on(*regions, args=_limits(scaling))]

    def stored(self, total: ir.Buffer, row: int, lane: int, lanes: int, first: arith.Expr, pixel: arith.Expr) -> list[ir.Stmt]:
        """Build stores of the results of some lanes of a row of sums, starting at channel `first`. All channels must exist, and the
        sums must have been initialized with zero."""
        scaling, product = self.requantized, self._product
        offset = arith.simplify(pixel * product.outputs + first)
        intrinsic = None if scaling is None else intrinsic_for(requantization(lanes, scaling.rounding), self._context)
        if scaling is None or intrinsic is None:
            sums = [ir.load(total, (arith.wrap(row), arith.wrap(lane + each))) for each in range(lanes)]
            return [self._store(each, arith.simplify(first + number), pixel) for number, each in enumerate(sums)]
        size = arith.wrap(lanes)
        parts = (scaling.bias, scaling.multiplier, scaling.shift)
        regions = (
            ir.BufferRegion(total, ((arith.wrap(row), arith.ONE), (arith.wrap(lane), size))),
            *(ir.BufferRegion(self.flat[buffer], ((first, size),)) for buffer in parts),
            ir.BufferRegion(self.flat[product.program.outputs[0]], ((offset, size),)),
        )
        return [intrinsic.on(*regions, args=_limits(scaling))]

    def _store(self, total: ir.Expr, channel: arith.Expr, pixel: arith.Expr) -> ir.Stmt:
        """Build the store of the result of one sum."""
        product = self._product
        offset = arith.simplify(pixel * product.outputs + channel)
        result = self.flat[product.program.outputs[0]]
        if self._value is None:
            return ir.Store(result, (offset,), total)
        # Axes of one element have no variable. Pixels may be numbered as one row, regardless of the result's shape.
        columns = product.anchor.buffer.shape[-1]
        coordinates = (arith.ZERO, channel, pixel // columns, pixel % columns) if product.is_image else (pixel, channel)
        substitution: dict[arith.Expr, arith.Expr] = {
            index: coordinate for index, coordinate in zip(self._iters, coordinates, strict=True) if isinstance(index, arith.Var)
        }

        def load(node: ir.Expr) -> ir.Expr | None:
            if not isinstance(node, ir.Load):
                return None
            if node.buffer.name == product.anchor.buffer.name:
                return total
            if node.buffer not in self.flat:
                return None
            element = offset if node.buffer.shape == product.anchor.buffer.shape else channel
            return ir.load(self.flat[node.buffer], (element,))

        value = Rewriter(substitution, expr=load).expr(self._value)
        return ir.Store(result, (offset,), value)


def _shape(total: ir.Buffer) -> tuple[int, int]:
    rows, lanes = total.shape
    assert isinstance(rows, int) and isinstance(lanes, int)
    return rows, lanes


def _limits(scaling: Requantized) -> tuple[ir.Expr, ...]:
    return tuple(ir.const(value, INT32) for value in (scaling.zero, scaling.low, scaling.high))


def _size(buffer: ir.Buffer) -> int:
    return prod(dim for dim in buffer.shape if isinstance(dim, int))
