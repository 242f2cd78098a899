"""Rows of an input image that windows read, in place or from a copy with padding."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid_microcontroller.schedules.product import Product
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar, Var
from inlaid_runtime.types import dtype

INT8, BOOL = dtype("int8"), dtype("bool")


def _copy() -> ir.LoopProgram:
    size, i = SizeVar("n"), Var("i")
    source, target = ir.Buffer("source", (size,), INT8), ir.Buffer("target", (size,), INT8)
    return ir.LoopProgram("copy", (source,), (target,), ir.For(i, size, ir.Store(target, (i,), ir.load(source, (i,)))))


COPY = TensorIntrin("copy", _copy())
"""Intrinsic that copies a run of bytes to a run that does not overlap it."""


@dataclass(frozen=True)
class Rows:
    """The rows of a product's flattened data that the windows of an output row read. With padding, `ring` holds copies of these
    rows, padding included; else it is None. Rows that the next output row also reads are moved to the front of `ring`, so each row
    of the data is read once, in order."""

    product: Product
    data: ir.Buffer
    ring: ir.Buffer | None

    @property
    def buffer(self) -> ir.Buffer:
        """The buffer that windows read: `ring`, or the data if it is None."""
        return self.ring or self.data

    def element_index(self, y: arith.Expr, tap: arith.Expr | int, offset: arith.Expr | int) -> arith.Expr:
        """Return the index of element `offset` in the row of tap `tap` at output row `y`."""
        rows, columns = self.product.rows, self.product.columns
        if self.ring is not None:
            return arith.simplify(arith.wrap(tap) * self._width + offset)
        return arith.simplify((y * rows.stride + tap) * (columns.size * self.product.channels) + offset)

    def over(self, y: Var, body: ir.Stmt) -> ir.Stmt:
        """Build the loop over output rows around `body`."""
        rows = self.product.rows
        if self.ring is None:
            return ir.For(y, arith.wrap(rows.outputs), body)
        overlap = max(rows.taps - rows.stride, 0)
        fill = self._blank(0, int(self.ring.shape[0]))  # type: ignore[arg-type]
        first = [
            self._loaded(tap + rows.stride, arith.wrap(tap - rows.before))
            for tap in range(rows.before, min(overlap, rows.before + rows.size))
        ]
        moves = [
            copy_run(self.ring, arith.wrap((tap + rows.stride) * self._width), self.ring, tap * self._width, self._width)
            for tap in range(overlap)
        ]
        loads = [self._read(tap, y) for tap in range(overlap, rows.taps)]
        loop = ir.For(y, arith.wrap(rows.outputs), ir.Seq((*moves, *loads, body)))
        return ir.Alloc(self.ring, ir.Seq((fill, *first, loop)))

    @property
    def _width(self) -> int:
        """Number of elements of a row of the ring."""
        return self.product.columns.span * self.product.channels

    def _read(self, tap: int, y: Var) -> ir.Stmt:
        """Load the row of a tap into the ring, from the data or as padding."""
        rows = self.product.rows
        first = tap - rows.before
        row = arith.simplify(y * rows.stride + first)
        conditions = [arith.compare("<=", 0, row)] if first < 0 else []
        if (rows.outputs - 1) * rows.stride + first >= rows.size:
            conditions.append(arith.compare("<", row, rows.size))
        load = self._loaded(tap, row)
        if not conditions:
            return load
        is_inside = conditions[0] if len(conditions) == 1 else arith.logical_and(*conditions)
        return ir.If(ir.as_expr(is_inside, BOOL), load, self._blank(tap * self._width, self._width))

    def _loaded(self, tap: int, row: arith.Expr) -> ir.Stmt:
        """Copy a row of the data into the ring, between the padding columns."""
        columns, channels = self.product.columns, self.product.channels
        length = min(columns.size, columns.span - columns.before) * channels
        start = arith.simplify(row * (columns.size * channels))
        return copy_run(self.data, start, self.buffer, tap * self._width + columns.before * channels, length)

    def _blank(self, start: int, length: int) -> ir.Stmt:
        i = Var("i")
        store = ir.Store(self.buffer, (arith.simplify(i + start),), ir.const(self.product.fill, INT8))
        return ir.For(i, arith.wrap(length), store)


def build_rows(product: Product, data: ir.Buffer, slack: int = 0) -> Rows:
    """Create the rows of a product, with a ring buffer if it is padded. slack: readable elements past the last row of the ring."""
    if not product.padded:
        return Rows(product, data, None)
    size = product.rows.taps * product.columns.span * product.channels + slack
    return Rows(product, data, ir.Buffer("rows", (size,), INT8))


def copy_run(source: ir.Buffer, start: arith.Expr, target: ir.Buffer, to: int, length: int) -> ir.Stmt:
    """Copy a run of elements from one buffer to another, or within one buffer."""
    size = arith.wrap(length)
    return COPY.on(ir.BufferRegion(source, ((start, size),)), ir.BufferRegion(target, ((arith.wrap(to), size),)))
