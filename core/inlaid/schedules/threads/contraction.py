"""Match contractions: matrix products and convolutions in the common form batch x rows x columns x depth.

A spatial axis is a row axis if only the left factor uses it, a column axis if only the right factor uses it, and a batch axis if
both do. The reduction axes are the depth. In a convolution, rows are output channels, columns are the pixels of all images, the
depth is input channels and window positions, and groups are a batch axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from inlaid.schedules.collapse import collapsed
from inlaid.schedules.shape import Anchor, find_anchor, inline_blocks, last_epilogue, merge_chains
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError

TILE_FILL = 16
"""Number of rows or columns of one image or matrix that fills a tile. Further row or column axes then become batch axes."""


@dataclass(frozen=True)
class ContractionAxis:
    """An axis of a contraction: its variable and extent."""

    var: Var
    extent: arith.Expr


@dataclass(frozen=True)
class Contraction:
    """acc[batch, rows, columns] = sum over depth of left[batch, rows, depth] * right[batch, columns, depth].

    `left` and `right` are expressions over the axes' variables, before the cast to the accumulator's dtype. `swapped`: the program
    multiplies right * left. `values` maps the anchor's iteration variables to expressions over the axes. `inverse` maps those of
    the epilogue block to the axes of the accumulator element that it reads; None if this mapping is not one to one.
    """

    anchor: Anchor
    left: ir.Expr
    right: ir.Expr
    swapped: bool
    batch: tuple[ContractionAxis, ...]
    rows: tuple[ContractionAxis, ...]
    columns: tuple[ContractionAxis, ...]
    depth: tuple[ContractionAxis, ...]
    values: Mapping[arith.Expr, arith.Expr]
    inverse: Mapping[arith.Expr, arith.Expr] | None


def total_extent(axes: Sequence[ContractionAxis]) -> arith.Expr:
    """Return the product of the axes' extents."""
    return arith.simplify(arith.wrap(arith.product(tuple(arith.unwrap(axis.extent) for axis in axes))))


def coordinates(axes: Sequence[ContractionAxis], position: arith.Expr) -> dict[arith.Expr, arith.Expr]:
    """Unflatten a row-major position into one index per axis."""
    indices: dict[arith.Expr, arith.Expr] = {}
    for number, axis in reversed(list(enumerate(axes))):
        indices[axis.var] = position % axis.extent if number else position
        position = position // axis.extent
    return indices


def prepared(program: ir.LoopProgram, intrinsics: tuple[TensorIntrin, ...] = ()) -> tuple[Schedule, Contraction] | None:
    """Inline a contraction's prologue into its factors, and merge its epilogue into one block, or as far as `merge_chains` does.

    Returns the schedule and the contraction; None for any other kernel, and if the prologue cannot be inlined."""
    anchor = find_anchor(program)
    if anchor is None or not anchor.reduced or _factors(anchor) is None:
        return None
    s = collapsed(program, intrinsics)
    try:
        anchor = find_anchor(s.program)
        if anchor is None:
            return None
        inline_blocks(s, [block.name for block in reversed(anchor.before)])
    except ScheduleError:
        return None
    joined = s.copy()
    try:
        inline_blocks(joined, [block.name for block in anchor.after if block.name != last_epilogue(anchor)])
    except ScheduleError:
        joined = s
        merge_chains(s)
    contraction = find_contraction(joined.program)
    return None if contraction is None else (joined, contraction)


def find_contraction(program: ir.LoopProgram) -> Contraction | None:
    """Match a kernel as a contraction; None if the kernel is not a contraction, has no elements, or has blocks before the
    reduction."""
    anchor = find_anchor(program)
    if anchor is None or anchor.before or not anchor.reduced:
        return None
    # Tiles have at least one row and one column, whose positions are not compared with an extent of 0.
    if any(item.extent == arith.ZERO for item in anchor.spatial):
        return None
    if any(block.predicate != arith.ONE for block in (anchor.block, *anchor.after)):
        return None
    factors = _factors(anchor)
    if factors is None:
        return None
    axes: list[ContractionAxis] = []
    values: dict[arith.Expr, arith.Expr] = {}
    for item in anchor.spatial:
        size = _group_size(item, factors)
        if size:
            group, offset = Var(f"{item.var.name}_group"), Var(f"{item.var.name}_place")
            values[item.var] = group * size + offset
            axes += [ContractionAxis(group, arith.simplify(item.extent // size)), ContractionAxis(offset, arith.Const(size))]
        else:
            values[item.var] = item.var
            axes.append(ContractionAxis(item.var, item.extent))
    first, second = (_over_axes(factor, values, axes) for factor in factors) if len(axes) > len(values) else factors
    axes = [axis for axis in axes if axis.extent != arith.ONE]
    factor_vars = [factor.free_vars() for factor in (first, second)]
    side_axes = [
        tuple(axis for axis in axes if axis.var in mine and axis.var not in other)
        for mine, other in (factor_vars, factor_vars[::-1])
    ]
    swapped = bool(axes) and axes[-1] in side_axes[0]
    if swapped:
        first, second, side_axes = second, first, side_axes[::-1]
    inverse = _inverse(anchor, values)
    rows, columns = (_tiled_axes(side, _store_indices(anchor, values, inverse)) for side in side_axes)
    batch = tuple(axis for axis in axes if axis not in rows and axis not in columns)
    depth = tuple(ContractionAxis(item.var, item.extent) for item in anchor.reduced if item.extent != arith.ONE)
    return Contraction(anchor, first, second, swapped, batch, rows, columns, depth, values, inverse)


def _factors(anchor: Anchor) -> tuple[ir.Expr, ir.Expr] | None:
    """Match acc = acc + a * b and return (a, b) without their widening casts."""
    assert isinstance(anchor.block.body, ir.Store)
    match anchor.block.body.value:
        case ir.Binary(op="add", a=ir.Load(buffer=buffer), b=ir.Binary(op="mul", a=a, b=b)) if buffer is anchor.buffer:
            if isinstance(a, ir.Cast) and isinstance(b, ir.Cast):
                return a.a, b.a
            return a, b
    return None


def _group_size(item: ir.IterVar, factors: tuple[ir.Expr, ir.Expr]) -> int:
    """Return the group size of an axis if one factor reads only its group index, as data does for the output channels of a grouped
    convolution; 0 for any other axis."""
    if not isinstance(item.extent, arith.Const) or not all(item.var in factor.free_vars() for factor in factors):
        return 0
    group, offset = Var("group"), Var("place")
    for size in sorted({size for factor in factors for size in _divisors(factor, item.var)}):
        analyzer = arith.Analyzer({group: (0, item.extent.value // size - 1), offset: (0, size - 1)})
        values: dict[arith.Expr, arith.Expr] = {item.var: group * size + offset}
        if item.extent.value % size == 0 and any(not _depends(factor, values, offset, analyzer) for factor in factors):
            return size
    return 0


def _over_axes(value: ir.Expr, values: Mapping[arith.Expr, arith.Expr], axes: Sequence[ContractionAxis]) -> ir.Expr:
    """Rewrite a factor from iteration variables to axes."""
    analyzer = arith.Analyzer({axis.var: (0, arith.unwrap(axis.extent - 1)) for axis in axes})

    def simplified(node: ir.Expr) -> ir.Expr | None:
        if isinstance(node, ir.Load):
            return ir.load(node.buffer, tuple(map(analyzer.simplify, node.indices)))
        return ir.Index(node.dtype, analyzer.simplify(node.index)) if isinstance(node, ir.Index) else None

    return Rewriter(values, expr=simplified).expr(value)


def _store_indices(
    anchor: Anchor, values: Mapping[arith.Expr, arith.Expr], inverse: Mapping[arith.Expr, arith.Expr] | None
) -> tuple[arith.Expr, ...]:
    """Return the indices of the result's store, over the axes."""
    block, axis_values = (anchor.block, values) if inverse is None or not anchor.after else (anchor.after[-1], inverse)
    assert isinstance(block.body, ir.Store)
    return tuple(arith.substitute(index, axis_values) for index in block.body.indices)


def _tiled_axes(axes: Sequence[ContractionAxis], store_indices: Sequence[arith.Expr]) -> tuple[ContractionAxis, ...]:
    """Select the innermost axes of a side, which are tiled as one axis.

    Selects adjacent dimensions of the result, and axes of constant extents up to `TILE_FILL` elements. Any other symbolic axis
    would need divisions, with which the race check cannot prove that threads store distinct elements."""
    tiled_axes: list[ContractionAxis] = []
    for axis in reversed(axes):
        if tiled_axes:
            run = list(store_indices).index(tiled_axes[0].var) if tiled_axes[0].var in store_indices else 0
            neighbors = run > 0 and store_indices[run - 1] is axis.var
            sizes = [item.extent.value for item in (axis, *tiled_axes) if isinstance(item.extent, arith.Const)]
            if not neighbors and (len(sizes) <= len(tiled_axes) or prod(sizes[1:]) >= TILE_FILL):
                break
        tiled_axes.insert(0, axis)
    return tuple(tiled_axes)


def _indices(value: ir.Expr) -> Iterable[arith.Expr]:
    """Yield the index expressions in a value."""
    for node in ir.walk_exprs(value):
        if isinstance(node, ir.Load):
            yield from node.indices
        elif isinstance(node, ir.Index):
            yield node.index


def _divisors(value: ir.Expr, var: Var) -> Iterable[int]:
    for index in _indices(value):
        for node in arith.walk(index):
            match node:
                case arith.FloorDiv(operands=(operand, arith.Const(value=size))) if operand == var:
                    yield size


def _depends(value: ir.Expr, values: Mapping[arith.Expr, arith.Expr], var: Var, analyzer: arith.Analyzer) -> bool:
    return any(var in arith.free_vars(analyzer.simplify(arith.substitute(index, values))) for index in _indices(value))


def _inverse(anchor: Anchor, values: Mapping[arith.Expr, arith.Expr]) -> dict[arith.Expr, arith.Expr] | None:
    """Map the epilogue's iteration variables to the axes of the accumulator element that it reads.

    None if there are several epilogue blocks, or if elements of epilogue and accumulator do not correspond one to one."""
    if not anchor.after:
        return dict(values)
    if len(anchor.after) > 1:
        return None
    (block,) = anchor.after
    assert isinstance(block.body, ir.Store)
    loads = [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) and node.buffer is anchor.buffer]
    if not loads or any(load.indices != loads[0].indices for load in loads):
        return None
    positions = [Var(f"place_{item.var.name}") for item in anchor.spatial]
    ranges: arith.Bounds = {
        position: (0, arith.unwrap(item.extent - 1)) for position, item in zip(positions, anchor.spatial, strict=True)
    }
    solution = _solve(block, loads[0].indices, positions, anchor, arith.Analyzer(ranges))
    if solution is None:
        return None
    axis_values: dict[arith.Expr, arith.Expr] = {
        position: values[item.var] for position, item in zip(positions, anchor.spatial, strict=True)
    }
    return {var: arith.substitute(value, axis_values) for var, value in solution.items()}


def _solve(
    block: ir.Block, indices: Sequence[arith.Expr], positions: Sequence[Var], anchor: Anchor, analyzer: arith.Analyzer
) -> dict[arith.Expr, arith.Expr] | None:
    """Solve `indices` == `positions` for the iteration variables of a block; None if the mapping is not one to one."""
    solution: dict[arith.Expr, arith.Expr] = {item.var: arith.ZERO for item in block.iters if item.extent == arith.ONE}
    extents: dict[arith.Expr, arith.Expr] = {item.var: item.extent for item in block.iters}
    for number, index in enumerate(indices):
        unknowns = sorted(arith.free_vars(index) & (extents.keys() - solution.keys()), key=lambda var: list(extents).index(var))
        if len(unknowns) == 1 and index is not unknowns[0]:
            # The block fuses several dimensions of the accumulator.
            value: arith.Expr = arith.ZERO
            size: arith.Expr = arith.ONE
            for other, position, axis in reversed(list(zip(indices, positions, anchor.spatial, strict=True))):
                if unknowns[0] in arith.free_vars(other):
                    value, size = value + position * size, size * axis.extent
            if not analyzer.equal(size, extents[unknowns[0]]):
                return None
            solution[unknowns[0]] = analyzer.simplify(value)
            continue
        stride: arith.Expr = arith.ONE
        for var in _by_stride(index, unknowns):
            rest = positions[number] // stride
            stride = arith.simplify(stride * extents[var])
            solution[var] = analyzer.simplify(rest if var is unknowns[0] and len(unknowns) == 1 else rest % extents[var])
    if solution.keys() != extents.keys():
        return None
    is_solution = all(
        analyzer.equal(arith.substitute(index, solution), position) for index, position in zip(indices, positions, strict=True)
    )
    return solution if is_solution and analyzer.equal(_size(block.iters), _size(anchor.spatial)) else None


def _by_stride(index: arith.Expr, variables: Sequence[arith.Expr]) -> list[arith.Expr]:
    """Return the variables with a constant stride in an index, by increasing stride."""
    steps = {var: arith.affine(index, var) for var in variables if isinstance(var, Var)}
    strides: dict[arith.Expr, int] = {
        var: step[0].value for var, step in steps.items() if step is not None and isinstance(step[0], arith.Const)
    }
    return sorted(strides, key=lambda var: strides[var])


def _size(items: Iterable[ir.IterVar]) -> arith.Expr:
    return arith.wrap(arith.product(tuple(arith.unwrap(item.extent) for item in items)))


def is_window(contraction: Contraction) -> bool:
    """Test whether the depth is only a sliding window over the columns, as in a depthwise convolution: there is one row, so only
    adjacent columns reuse elements."""
    if contraction.rows:
        return False
    columns = {axis.var for axis in contraction.columns}
    index_vars = (arith.free_vars(index) for index in _indices(contraction.right))
    window_vars = frozenset().union(*(variables for variables in index_vars if not columns.isdisjoint(variables)))
    return all(axis.var in window_vars for axis in contraction.depth)


def has_single_index(program: ir.LoopProgram, buffer: ir.Buffer) -> bool:
    """Test whether all loads of a buffer have the same indices."""
    bodies = (block.body.value for block in collect_blocks(program) if isinstance(block.body, ir.Store))
    return len({node.indices for node in ir.walk_exprs(*bodies) if isinstance(node, ir.Load) and node.buffer is buffer}) == 1
