"""Schedule of low-precision matrix products by instructions on tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlaid.schedules.collapse import collapse
from inlaid.schedules.dot import narrow_product
from inlaid.schedules.shape import Anchor, constant_extent, expected_extent, find_anchor, is_constant, layouts_by_name
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid.tensor.transform.layouts import with_layouts
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


class TileMatmulRule:
    """Schedule rule for out[..., m, n] = sum over k of a[..., m, k] * b[..., k, n] of low-precision operands, with constant extents
    of n and k. b need not be constant."""

    name = "tile_matmul"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines products of few rows, and consumers that are not element-wise."""
        if not context.capabilities.scopes or 0 in program.outputs[0].shape:
            return None
        merged = collapse(program)
        plan = _plan(merged, context)
        if plan is not None and not all(map(plan.keeps, program.params, merged.params)):
            merged, plan = program, _plan(program, context)
        if plan is None:
            return None
        final_plan = plan
        params = tuple(
            _shifted(final_plan.layouts.get(merged_buffer, ROW_MAJOR), len(buffer.shape) - len(merged_buffer.shape))
            for buffer, merged_buffer in zip(program.params, merged.params, strict=True)
        )
        return Offer(params, lambda _: final_plan.nest(context.threads))


def _shifted(layout: Layout, axes: int) -> Layout:
    """Shift a layout to a buffer with `axes` additional leading axes."""
    return Layout(tuple((axis + axes, factor) for axis, factor in layout.blocks))


def _plan(program: ir.LoopProgram, context: KernelContext) -> _Plan | None:
    """Plan the computation of a kernel by tiles; None if it is not a supported product."""
    anchor = find_anchor(program)
    if anchor is None or anchor.before or len(anchor.reduced) != 1 or len(anchor.spatial) < 2:
        return None
    if not is_constant(anchor.spatial[-1], anchor.reduced[0]):
        return None
    product = narrow_product(anchor)
    if product is None or expected_extent(anchor.spatial[-2]) < LEAST_ROWS or not _is_product(program, anchor, *product):
        return None
    a, b = product
    unit = find_unit(context, a.dtype.name, b.dtype.name, anchor.buffer.dtype.name)
    schedule = with_epilogue(program, anchor)
    if unit is None or schedule is None or read_epilogue(schedule.program, anchor) is None:
        return None
    return _Plan(anchor, schedule, a, b, unit)


def _is_product(program: ir.LoopProgram, anchor: Anchor, a: ir.Load, b: ir.Load) -> bool:
    """Test whether a is [..., m, k], b is [..., k, n], and both are inputs of the kernel."""
    *_, m, n = (item.var for item in anchor.spatial)
    k = anchor.reduced[0].var
    if a.buffer not in program.inputs or b.buffer not in program.inputs or a.buffer is b.buffer:
        return False
    if a.indices[-2:] != (m, k) or b.indices[-2:] != (k, n):
        return False
    outer = frozenset[Expr]().union(*map(arith.free_vars, (*a.indices[:-2], *b.indices[:-2])))
    return outer.isdisjoint((m, n, k))


@dataclass(frozen=True)
class _Plan:
    """A product and its tiling. `schedule`: schedule of the program, with the epilogue fused into the last block."""

    anchor: Anchor
    schedule: Schedule
    a: ir.Load
    b: ir.Load
    unit: TileUnit

    @property
    def depth(self) -> int:
        return constant_extent(self.anchor.reduced[0])

    @property
    def length(self) -> Expr:
        return self.anchor.spatial[-2].extent

    @property
    def steps(self) -> int:
        """Number of tile products along the reduction axis."""
        return -(-self.depth // self.unit.depth)

    @property
    def step(self) -> int:
        """Reduction length of one tile product, in whole groups."""
        return -(-self.depth // (self.steps * self.unit.group)) * self.unit.group

    @property
    def padded(self) -> bool:
        """True if the steps cover more than the reduction axis, so that the left operand is zero-padded."""
        return self.steps * self.step != self.depth

    @property
    def tall(self) -> int:
        """Number of rows of a tile of a padded left operand."""
        rows = self.unit.rows_per_tile(self.length)
        return rows.value if isinstance(rows, arith.Const) else self.unit.scope.rows

    def keeps(self, buffer: ir.Buffer, merged: ir.Buffer) -> bool:
        """Test whether merging axes keeps the rows and columns of a buffer. True also for a buffer that gets no new layout."""
        return merged not in self.layouts or merged.shape[-2:] == buffer.shape[-2:]

    @property
    def layouts(self) -> dict[ir.Buffer, Layout]:
        """Layouts by buffer. The right operand is in panels as wide as a tile. The left operand, if padded, is tiled and
        zero-padded to whole steps."""
        rank, padded_depth = len(self.b.indices), self.steps * self.step
        layouts = {self.b.buffer: Layout(((rank - 2, padded_depth), (rank - 1, self.unit.columns), (rank - 2, self.unit.group)))}
        if self.padded:
            rank = len(self.a.indices)
            layouts[self.a.buffer] = Layout(((rank - 2, self.tall), (rank - 1, padded_depth)))
        return layouts

    def nest(self, threads: int) -> ir.LoopProgram:
        """Build the loop nest. Outer axes that index the right operand are batches; others are lines."""
        right_vars = frozenset[Expr]().union(*map(arith.free_vars, self.b.indices[:-2]))
        batches = [item for item in self.anchor.spatial[:-2] if item.var in right_vars]
        lines = [item for item in self.anchor.spatial[:-2] if item.var not in right_vars]
        laid_out = with_layouts(self.schedule.program, layouts_by_name(self.schedule.program, self.layouts))
        a, b = (find_buffer(laid_out, load.buffer.name) for load in (self.a, self.b))
        rows = arith.wrap(self.tall) if self.padded else self.unit.rows_per_tile(self.length)
        step, epilogue = Var("step"), read_epilogue(laid_out, self.anchor)
        assert epilogue is not None

        def outer(batch: Expr, line: Expr) -> dict[Expr, Expr]:
            return {**_indices(batches, batch), **_indices(lines, line)}

        def left(batch: Expr, line: Expr, tile: Expr, row: Expr) -> ir.BufferRegion:
            front = [arith.substitute(index, outer(batch, line)) for index in self.a.indices[:-2]]
            back = [tile, arith.ZERO, (arith.ZERO, rows)] if self.padded else [(row, rows)]
            return box(a, *front, *back, (step * self.step, self.step))

        def right(batch: Expr, tile: Expr) -> ir.BufferRegion:
            front = [arith.substitute(index, _indices(batches, batch)) for index in self.b.indices[:-2]]
            groups = self.step // self.unit.group
            inner = ((step * groups, groups), (arith.ZERO, self.unit.columns), (arith.ZERO, self.unit.group))
            return box(b, *front, arith.ZERO, tile, *inner)

        def store(batch: Expr, line: Expr, row: Expr, column: Expr, value: ir.Expr) -> ir.Stmt:
            outer_values = outer(batch, line)
            axes = tuple(outer_values[item.var] for item in self.anchor.spatial[:-2])
            return epilogue.at((*axes, row, column), value)

        product = TiledProduct(
            self.unit, _count(batches), _count(lines), self.length, rows, constant_extent(self.anchor.spatial[-1]), self.step,
            ((step, self.steps),), left, right, store, self.padded,
        )  # fmt: skip
        return with_nest(laid_out, self.anchor, product.nest(threads))


def _count(items: Sequence[ir.IterVar]) -> Expr:
    return arith.simplify(arith.product(tuple(arith.unwrap(item.extent) for item in items)))


def _indices(items: Sequence[ir.IterVar], number: Expr) -> dict[Expr, Expr]:
    """Compute the values of iteration variables from a row-major number."""
    return dict(zip((item.var for item in items), unravel(number, [item.extent for item in items]), strict=True))
