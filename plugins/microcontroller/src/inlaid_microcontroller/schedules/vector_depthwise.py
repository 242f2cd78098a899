"""Schedule of int8 depthwise convolutions with channels last on processors with vectors. Computes one window at a time.

An intrinsic sums the products of a window for several adjacent channels and requantizes the sums. The shapes of its regions are
fixed, but the strides of a window depend on the image. So each window has a separate intrinsic, whose name includes the strides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_microcontroller.schedules.epilogue import Epilogue
from inlaid_microcontroller.schedules.product import Product, find_layer
from inlaid_microcontroller.schedules.requantize import ROUNDINGS, requantized_value
from inlaid_microcontroller.schedules.rows import build_rows
from inlaid_microcontroller.schedules.vector_direct import vector_dot
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import Layout, dtype

INT8, INT32 = dtype("int8"), dtype("int32")
LANES = 8
"""Channels per vector of 16-bit products."""
SCALARS = ("zero", "low", "high")
MAX_ZERO_POINT = 1 << 14
"""Limit of zero points. Within it, values that saturate at 16 bits still exceed the int8 limits after the zero point is added."""
_NAME = re.compile(r"window(\d)_(\w+)_(\d+)x(\d+)_(\d+)_(\d+)")


@dataclass(frozen=True)
class WindowSums:
    """Requantized sums over a window of `rows` by `columns`, for `lanes` adjacent channels of data with `channels` channels. row:
    stride of rows in elements. rounding: see `inlaid.ops.fixed_point`."""

    lanes: int
    rounding: str
    rows: int
    columns: int
    row: int
    channels: int

    @property
    def name(self) -> str:
        """Name of the intrinsic."""
        return f"{self.function}_{self.rows}x{self.columns}_{self.row}_{self.channels}"

    @property
    def function(self) -> str:
        """Name of the C function: the name of the intrinsic without sizes and strides."""
        return f"window{self.lanes}_{self.rounding}"

    @property
    def data(self) -> int:
        """Number of data elements from the first to the last element that is read."""
        return (self.rows - 1) * self.row + (self.columns - 1) * self.channels + self.lanes

    @property
    def weights(self) -> int:
        """Number of weights from the first to the last weight that is read."""
        return (self.rows * self.columns - 1) * self.channels + self.lanes

    def intrinsic(self) -> TensorIntrin:
        """Create the tensor intrinsic of the window."""
        a, b = ir.Buffer("a", (self.data,), INT8), ir.Buffer("b", (self.weights,), INT8)
        bias, multiplier, shift = parts = tuple(ir.Buffer(name, (self.lanes,), INT32) for name in ("bias", "multiplier", "shift"))
        scalars = tuple(ir.Buffer(name, (), INT32) for name in SCALARS)
        out, total = ir.Buffer("out", (self.lanes,), INT8), ir.Buffer("total", (), INT32)
        i, ky, kx = Var("i"), Var("ky"), Var("kx")
        data = ir.cast(ir.load(a, (ky * self.row + kx * self.channels + i,)), INT32)
        weight = ir.cast(ir.load(b, ((ky * self.columns + kx) * self.channels + i,)), INT32)
        taps = ir.For(kx, arith.wrap(self.columns), ir.Store(total, (), ir.load(total, ()) + data * weight))
        loads = (ir.load(total, ()), *(ir.load(part, (i,)) for part in (bias, multiplier, shift)))
        value = requantized_value(*loads, *(ir.load(scalar, ()) for scalar in scalars), rounding=self.rounding)
        body = ir.Seq(
            (ir.Store(total, (), ir.const(0, INT32)), ir.For(ky, arith.wrap(self.rows), taps), ir.Store(out, (i,), value))
        )
        loop = ir.For(i, arith.wrap(self.lanes), ir.Alloc(total, body))
        return TensorIntrin(self.name, ir.LoopProgram("window", (a, b, *parts, *scalars), (out,), loop))


def window_sums(name: str) -> WindowSums | None:
    """Parse the name of a window intrinsic; None for any other intrinsic."""
    match = _NAME.fullmatch(name)
    if match is None or match[2] not in ROUNDINGS:
        return None
    return WindowSums(int(match[1]), match[2], *map(int, match.groups()[2:]))


class VectorDepthwiseRule:
    """Schedule rule for requantized int8 depthwise convolutions on processors with vectors."""

    name = "vector_depthwise"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines dilated windows, weights that are not constant, and limits beyond int8."""
        product = find_layer(program, inputs)
        if product is None or vector_dot(context) is None or not product.by_channel:
            return None
        scaling = Epilogue(product, context).requantized
        if scaling is None or abs(scaling.zero) > MAX_ZERO_POINT or scaling.low < -128 or scaling.high > 127:
            return None
        # Weights have order KH KW C.
        weights = Layout(((0, product.outputs),))
        layouts = tuple(product.choose_layout(buffer, weights) for buffer in program.params)
        return Offer(layouts, lambda _: _windows(product, Epilogue(product, context)))


def _windows(product: Product, epilogue: Epilogue) -> ir.LoopProgram:
    """Build the loop nest:

    for y, x, channels: out = requantize(sums of the window)
    """
    scaling = epilogue.requantized
    assert scaling is not None
    weights = ir.Buffer(product.weights.name, (product.rows.taps * product.columns.taps * product.outputs,), INT8)
    rows = build_rows(product, epilogue.flat[product.data])
    y, x, o = Var("y"), Var("x"), Var("o")
    row_stride = rows.element_index(arith.ZERO, 1, 0)
    assert isinstance(row_stride, arith.Const)

    def sums(channel: arith.Expr, lanes: int) -> ir.Stmt:
        window = WindowSums(lanes, scaling.rounding, product.rows.taps, product.columns.taps, row_stride.value, product.outputs)
        offset = rows.element_index(y, 0, x * product.columns.stride * product.outputs + channel)
        pixel = y * product.columns.outputs + x
        parts = (scaling.bias, scaling.multiplier, scaling.shift)
        regions = (
            (rows.buffer, offset, window.data),
            (weights, channel, window.weights),
            *((epilogue.flat[part], channel, lanes) for part in parts),
            (epilogue.flat[product.program.outputs[0]], pixel * product.outputs + channel, lanes),
        )
        boxes = tuple(ir.BufferRegion(buffer, ((arith.simplify(first), arith.wrap(size)),)) for buffer, first, size in regions)
        return window.intrinsic().on(
            *boxes, args=tuple(ir.const(value, INT32) for value in (scaling.zero, scaling.low, scaling.high))
        )

    vectors, rest = divmod(product.outputs, LANES)
    tiles: list[ir.Stmt] = [ir.For(o, arith.wrap(vectors), sums(o * LANES, LANES))] if vectors else []
    tiles += [sums(arith.wrap(vectors * LANES), rest)] if rest else []
    return epilogue.program(weights, rows.over(y, ir.For(x, arith.wrap(product.columns.outputs), ir.Seq(tuple(tiles)))))
