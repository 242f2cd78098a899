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
    """Build a program of two blocks: one reduces columns of a plane of reduced rows in whole vectors, one stores the results."""
    block, final = blocks
    sums = block.writes[0].buffer
    width = arith.simplify(arith.ceildiv(sums.shape[3], lanes) * lanes)
    larger = replace(sums, shape=(*sums.shape[:3], arith.unwrap(width)))
    read = ir.load(plane, (block.iters[2].var * pitch + window.load.indices[3],))
    total = Rewriter(expr=lambda node: read if isinstance(node, ir.Load) and node.buffer is window.load.buffer else None)
    own, others = ((*item.iters[:3], replace(item.iters[3], extent=width)) for item in blocks)
    reduced = block_nest(block.name, (*own, *window.columns), total.stmt(block.body), block.init)
    stored = block_nest(final.name, others, final.body, None, arith.compare("<", final.iters[3].var, final.iters[3].extent))
    return replace(program, body=ir.Alloc(larger, Rewriter(buffers={sums: larger}).stmt(joined(reduced, stored))))


def reduce_rows(
    window: RowWindow, plane: ir.Buffer, at: Sequence[arith.Expr], height: arith.Expr, pitch: arith.Expr, lanes: int
) -> ir.Stmt:
    """Build loops that reduce the rows of the windows of plane `at` (image, channel) into rows of length `pitch`. Windows whose
    rows are all inside the data check no bounds per row."""
    tile, y, lane, data = Var("x"), Var("y"), Var("lane"), window.load.buffer
    column = tile * lanes + lane
    inside, whole = arith.simplify(arith.compare("<", column, data.shape[3])), arith.simplify(1)
    values, borders = list[ir.Expr](), list[ir.Expr]()
    for places in product(*(range(arith.size_hint(arith.unwrap(item.extent))) for item in window.rows)):
        chosen: dict[arith.Expr, arith.Expr] = {item.var: Const(place) for item, place in zip(window.rows, places, strict=True)}
        index = (*at, arith.substitute(window.load.indices[2], chosen | {window.y: y}), column)
        value, present = ir.as_expr(ir.load(data, index)), arith.simplify(1)
        if window.padding is not None:
            assert isinstance(window.padding.body, ir.Store)
            bound: dict[arith.Expr, arith.Expr] = dict(zip((item.var for item in window.padding.iters), index, strict=True))
            found = Rewriter(bound).expr(window.padding.body.value)
            assert isinstance(found, ir.Select) and isinstance(found.condition, ir.Index)
            value = found.then
            for part in conjuncts(found.condition.index):
                if lane not in arith.free_vars(part):
                    present, whole = arith.logical_and(present, part), arith.logical_and(whole, part)
                elif part not in conjuncts(inside):
                    inside = arith.logical_and(inside, part)
        values.append(value)
        borders.append(ir.select(present, value, window.outside))
    extents = {tile: arith.simplify(pitch // lanes), y: height, lane: arith.wrap(lanes)}
    analyzer = arith.Analyzer({var: (0, arith.unwrap(extent - 1)) for var, extent in extents.items()})
    inside, whole = map(analyzer.simplify, (inside, whole))

    def stored(name: str, values: Sequence[ir.Expr]) -> ir.Stmt:
        total = reduce(partial(ir.Binary, plane.dtype, window.op), values)
        loops, mapping = fresh_iters(tuple(ir.IterVar(var, extent) for var, extent in extents.items()))
        store = Rewriter(mapping).stmt(ir.Store(plane, (y * pitch + column,), ir.select(inside, total, window.outside)))
        block = with_footprint(ir.Block(name, loops, (tile, y, lane), (), (), store, None, arith.ONE))
        return ir.For(lane, extents[lane], block, ir.ForKind.VECTORIZED)

    made = stored(plane.name, values)
    some = made if whole == arith.ONE else ir.If(truth(whole), made, stored(f"{plane.name}_border", borders))
    return nest([(tile, extents[tile]), (y, height)], some)
