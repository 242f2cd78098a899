"""Window reductions over planes that reduce rows before columns: see `schedules.plane_window`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import product

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.transform.lower_blocks import conjuncts, joined, truth
from inlaid.tensor.transform.paths import block_nest, fresh_iters, nest
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, Var
from inlaid_runtime.records import dataclass, replace


@dataclass(frozen=True)
class RowWindow:
    """A window reduction by `op` of the elements that `load` reads, with output row variable `y`. Along a row, windows advance by
    `step` elements, and a window's last element is `reach` after its first. `rows` and `columns` are iteration variables of
    constant extents. `padding` is the block that pads the data with `outside`."""

    op: str
    load: ir.Load
    y: Var
    rows: tuple[ir.IterVar, ...]
    columns: tuple[ir.IterVar, ...]
    step: int
    reach: int
    padding: ir.Block | None
    outside: ir.Const


def over_vectors(
    program: ir.LoopProgram, blocks: Sequence[ir.Block], window: RowWindow, plane: ir.Buffer, pitch: arith.Expr, lanes: int
) -> ir.LoopProgram:
    """Build a program of two blocks. One reduces the columns of windows, over a plane of reduced rows, in whole vectors; the other
    stores the results."""
    block, final = blocks
    sums = block.writes[0].buffer
    width = arith.simplify(arith.ceildiv(sums.shape[3], lanes) * lanes)
    larger = replace(sums, shape=(*sums.shape[:3], arith.unwrap(width)))
    plane_load = ir.load(plane, (block.iters[2].var * pitch + window.load.indices[3],))
    rewriter = Rewriter(expr=lambda node: plane_load if isinstance(node, ir.Load) and node.buffer is window.load.buffer else None)
    sum_iters, final_iters = ((*item.iters[:3], replace(item.iters[3], extent=width)) for item in blocks)
    sum_nest = block_nest(block.name, (*sum_iters, *window.columns), rewriter.stmt(block.body), block.init)
    final_nest = block_nest(
        final.name, final_iters, final.body, None, arith.compare("<", final.iters[3].var, final.iters[3].extent)
    )
    return replace(program, body=ir.Alloc(larger, Rewriter(buffers={sums: larger}).stmt(joined(sum_nest, final_nest))))


def reduce_rows(
    window: RowWindow, plane: ir.Buffer, plane_index: Sequence[arith.Expr], height: arith.Expr, pitch: arith.Expr, lanes: int
) -> ir.Stmt:
    """Build loops that reduce the rows of the windows of plane `plane_index` (image, channel) into rows of length `pitch`. Windows
    whose rows are all inside the data check no bounds per row."""
    tile, y, lane, data = Var("x"), Var("y"), Var("lane"), window.load.buffer
    column = tile * lanes + lane
    in_bounds, is_interior = arith.simplify(arith.compare("<", column, data.shape[3])), arith.simplify(1)
    values, borders = list[ir.Expr](), list[ir.Expr]()
    for positions in product(*(range(arith.size_hint(arith.unwrap(item.extent))) for item in window.rows)):
        row_values: dict[arith.Expr, arith.Expr] = {
            item.var: Const(position) for item, position in zip(window.rows, positions, strict=True)
        }
        index = (*plane_index, arith.substitute(window.load.indices[2], row_values | {window.y: y}), column)
        value, is_present = ir.as_expr(ir.load(data, index)), arith.simplify(1)
        if window.padding is not None:
            assert isinstance(window.padding.body, ir.Store)
            bindings: dict[arith.Expr, arith.Expr] = dict(zip((item.var for item in window.padding.iters), index, strict=True))
            padding_value = Rewriter(bindings).expr(window.padding.body.value)
            assert isinstance(padding_value, ir.Select) and isinstance(padding_value.condition, ir.Index)
            value = padding_value.then
            for part in conjuncts(padding_value.condition.index):
                if lane not in arith.free_vars(part):
                    is_present, is_interior = arith.logical_and(is_present, part), arith.logical_and(is_interior, part)
                elif part not in conjuncts(in_bounds):
                    in_bounds = arith.logical_and(in_bounds, part)
        values.append(value)
        borders.append(ir.select(is_present, value, window.outside))
    extents = {tile: arith.simplify(pitch // lanes), y: height, lane: arith.wrap(lanes)}
    analyzer = arith.Analyzer({var: (0, arith.unwrap(extent - 1)) for var, extent in extents.items()})
    in_bounds, is_interior = map(analyzer.simplify, (in_bounds, is_interior))

    def stored(name: str, values: Sequence[ir.Expr]) -> ir.Stmt:
        total = reduce(partial(ir.Binary, plane.dtype, window.op), values)
        loops, mapping = fresh_iters(tuple(ir.IterVar(var, extent) for var, extent in extents.items()))
        store = Rewriter(mapping).stmt(ir.Store(plane, (y * pitch + column,), ir.select(in_bounds, total, window.outside)))
        block = with_footprint(ir.Block(name, loops, (tile, y, lane), (), (), store, None, arith.ONE))
        return ir.For(lane, extents[lane], block, ir.ForKind.VECTORIZED)

    interior = stored(plane.name, values)
    body = interior if is_interior == arith.ONE else ir.If(truth(is_interior), interior, stored(f"{plane.name}_border", borders))
    return nest([(tile, extents[tile]), (y, height)], body)
