"""Matching of int8 convolutions and matrix products: window, operands and anchor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlaid.schedules.dot import narrow_product
from inlaid.schedules.shape import Anchor, constant_extent, find_anchor, is_static, last_epilogue
from inlaid.tensor import ir
from inlaid.tensor.scheduling.rule import InputInfo
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout


@dataclass(frozen=True)
class Window:
    """A sliding window of `taps` taps along one axis, at `outputs` positions with stride `stride`. The source has `size` elements,
    preceded by `before` elements of padding."""

    taps: int
    stride: int
    dilation: int
    before: int
    size: int
    outputs: int

    @property
    def span(self) -> int:
        """Number of elements, padding included, from the first tap of the first position to the last tap of the last position."""
        return (self.outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def is_point(self) -> bool:
        return self.taps == 1 and self.stride == 1 and self.before == 0 and self.span == self.size


POINT = Window(1, 1, 1, 0, 1, 1)
"""The window of one tap at one position over one element."""


@dataclass(frozen=True)
class Product:
    """The sums of a kernel over a window and `depth` channels of the data. Each output channel has separate weights. by_channel:
    each channel is summed separately (depthwise). fill: padding value."""

    program: ir.LoopProgram
    anchor: Anchor
    data: ir.Buffer
    weights: ir.Buffer
    depth: int
    outputs: int
    rows: Window
    columns: Window
    by_channel: bool
    fill: int

    @property
    def padded(self) -> bool:
        """True if any window position includes padding."""
        return any(axis.before > 0 or axis.span > axis.before + axis.size for axis in (self.rows, self.columns))

    @property
    def channels(self) -> int:
        """Number of channels of the data."""
        return self.outputs if self.by_channel else self.depth

    @property
    def summed(self) -> int:
        """Number of products in a sum."""
        return self.depth * self.rows.taps * self.columns.taps

    @property
    def is_image(self) -> bool:
        """True if the result has layout N C H W, False if it is a matrix."""
        return len(self.anchor.buffer.shape) == 4

    def choose_layout(self, buffer: ir.Buffer, weights: Layout) -> Layout:
        """Return the layout of a parameter: channels last for images, the argument `weights` for the weights."""
        if buffer is self.weights:
            return weights
        if self.is_image and (buffer is self.data or buffer.shape == self.anchor.buffer.shape):
            return Layout(((1, self.channels if buffer is self.data else self.outputs),))
        return ROW_MAJOR


def find_layer(program: ir.LoopProgram, inputs: tuple[InputInfo, ...]) -> Product | None:
    """Match a product with constant weights and without dilation. Returns None for any other kernel."""
    product = find_product(program)
    if product is None or max(product.rows.dilation, product.columns.dilation) > 1:
        return None
    return product if inputs[program.inputs.index(product.weights)].constant else None


def find_product(program: ir.LoopProgram) -> Product | None:
    """Match a product of int8 operands with int32 sums, on one image or on a matrix. Returns None for any other kernel."""
    if not is_static(program) or len(program.outputs) != 1 or 0 in program.outputs[0].shape:
        return None
    anchor = find_anchor(program)
    product = None if anchor is None else narrow_product(anchor)
    if anchor is None or product is None or anchor.buffer.dtype.name != "int32":
        return None
    if {load.dtype.name for load in product} != {"int8"} or product[1].buffer not in program.inputs:
        return None
    if last_epilogue(anchor) is not None and anchor.after[-1].writes[0].buffer is not program.outputs[0]:
        return None
    if program.outputs[0].shape != anchor.buffer.shape:
        return None
    if len(anchor.spatial) == 2 and len(anchor.reduced) == 1:
        return _matrix(program, anchor, *product)
    return _image(program, anchor, *product) if len(anchor.spatial) == 4 and len(anchor.reduced) == 3 else None


def merged(product: Product) -> Product:
    """Return the product with all pixels in one row if the window is a single pixel, else the product unchanged."""
    if not (product.rows.is_point and product.columns.is_point and product.is_image):
        return product
    return replace(product, rows=POINT, columns=_line(product.rows.outputs * product.columns.outputs))


def _line(pixels: int) -> Window:
    """Return a window of one tap that visits each of `pixels` pixels."""
    return Window(1, 1, 1, 0, pixels, pixels)


def _matrix(program: ir.LoopProgram, anchor: Anchor, data: ir.Load, weights: ir.Load) -> Product | None:
    m, n = (item.var for item in anchor.spatial)
    k = anchor.reduced[0].var
    if data.indices != (m, k) or weights.indices != (k, n) or data.buffer not in program.inputs or anchor.before:
        return None
    rows, outputs = (constant_extent(item) for item in anchor.spatial)
    depth = constant_extent(anchor.reduced[0])
    return Product(program, anchor, data.buffer, weights.buffer, depth, outputs, POINT, _line(rows), False, 0)


def _image(program: ir.LoopProgram, anchor: Anchor, data: ir.Load, weights: ir.Load) -> Product | None:
    _, o, *positions = (item.var for item in anchor.spatial)
    c, *taps = (item.var for item in anchor.reduced)
    images, outputs, *counts = (constant_extent(item) for item in anchor.spatial)
    depth, *kernel = (constant_extent(item) for item in anchor.reduced)
    if images != 1 or weights.indices != (o, c, *taps):
        return None
    by_channel = arith.simplify(data.indices[1] - (o + c)) == arith.ZERO and depth == 1
    if not by_channel and data.indices[1] != c and outputs > 1:
        return None
    source, before, fill = _source(program, anchor, data.buffer)
    if source is None or source.shape[1] != (outputs if by_channel else depth):
        return None
    windows = []
    for axis, (position, tap, count, extent) in enumerate(zip(positions, taps, counts, kernel, strict=True)):
        form = arith.linear(data.indices[axis + 2])
        stride, dilation = form.terms.get(position, 0), form.terms.get(tap, 0)
        if form.constant or set(form.terms) - {position, tap}:
            return None
        size = source.shape[axis + 2]
        assert isinstance(size, int)
        windows.append(Window(extent, stride if count > 1 else 1, dilation if extent > 1 else 1, before[axis], size, count))
    return Product(program, anchor, source, weights.buffer, depth, outputs, windows[0], windows[1], by_channel, fill)


def _source(program: ir.LoopProgram, anchor: Anchor, data: ir.Buffer) -> tuple[ir.Buffer | None, tuple[int, int], int]:
    """Return the convolved buffer (None if unknown), its leading padding in rows and columns, and the padding value."""
    if not anchor.before:
        return (data if data in program.inputs else None), (0, 0), 0
    no_match = None, (0, 0), 0
    *literals, block = anchor.before
    if block.writes[0].buffer is not data or len(literals) > 1 or not isinstance(block.body, ir.Store):
        return no_match
    fills = {literal.writes[0].buffer: literal.body.value for literal in literals if isinstance(literal.body, ir.Store)}
    match block.body.value:
        case ir.Select(condition=ir.Index(), then=ir.Load(buffer=source, indices=indices), otherwise=otherwise):
            if isinstance(otherwise, ir.Load):
                otherwise = fills.get(otherwise.buffer, otherwise)
            if not isinstance(otherwise, ir.Const) or source not in program.inputs:
                return no_match
            block_vars = [item.var for item in block.iters]
            shifts = [arith.simplify(var - index) for var, index in zip(block_vars, indices, strict=True)]
            if block.body.indices != tuple(block_vars) or not all(isinstance(shift, arith.Const) for shift in shifts):
                return no_match
            padding = [shift.value for shift in shifts if isinstance(shift, arith.Const)]
            return (
                (source, (padding[2], padding[3]), int(otherwise.value))
                if padding[:2] == [0, 0] and min(padding) >= 0
                else no_match
            )
    return no_match
