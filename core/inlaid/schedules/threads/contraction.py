"""What kernels are sums of products: matrix products and convolutions alike, as rows times columns over a depth.

Every spatial axis of such a sum belongs to one of its two factors (rows to the left one, columns to the right one) or to both (a
batch); the reduced axes are its depth. A convolution's rows are output channels, its columns the pixels of all images, its depth
input channels and places of the window; groups are a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from inlaid import arith
from inlaid.arith import Var
from inlaid.errors import ScheduleError
from inlaid.schedules.collapse import collapsed
from inlaid.schedules.shape import Anchor, blocks_of, find_anchor, inline_all, last_of, merge_chains
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.rewrite import Rewriter

MANY = 16
"""Rows or columns of one image, or matrix, that fill tiles well enough by themselves: those of others are a batch."""


@dataclass(frozen=True)
class Axis:
    """A coordinate of a sum of products."""

    var: Var
    extent: arith.Expr


@dataclass(frozen=True)
class Contraction:
    """acc[batch, rows, columns] = sum over depth of left[batch, rows, depth] * right[batch, columns, depth].

    `left` and `right` are values over the axes' variables, before they are widened to the type of the sum; `swapped`: the program
    multiplies them the other way round. `values` are the iteration variables of the anchor over the axes. `inverse` are those of
    the last block, over the axes too, where it stores each sum's element: None where it goes over other elements.
    """

    anchor: Anchor
    left: ir.Expr
    right: ir.Expr
    swapped: bool
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    values: Mapping[arith.Expr, arith.Expr]
    inverse: Mapping[arith.Expr, arith.Expr] | None


def extent_of(axes: Sequence[Axis]) -> arith.Expr:
    """How many elements axes have together."""
    return arith.simplify(arith.wrap(arith.product(tuple(arith.unwrap(axis.extent) for axis in axes))))


def coordinates(axes: Sequence[Axis], position: arith.Expr) -> dict[arith.Expr, arith.Expr]:
    """Where an element is along axes that are counted through, the last one fastest."""
    found: dict[arith.Expr, arith.Expr] = {}
    for number, axis in reversed(list(enumerate(axes))):
        found[axis.var] = position % axis.extent if number else position
        position = position // axis.extent
    return found


def prepared(program: ir.LoopProgram, intrinsics: tuple[TensorIntrin, ...] = ()) -> tuple[Schedule, Contraction] | None:
    """A schedule of a kernel that is a sum of products, in which what comes before is part of the factors and what follows one
    block where that can be, and what the sum is. None for any other kernel."""
    anchor = find_anchor(program)
    if anchor is None or not anchor.reduced or _factors(anchor) is None:
        return None
    s = collapsed(program, intrinsics)
    try:
        anchor = find_anchor(s.program)
        if anchor is None:
            return None
        inline_all(s, [block.name for block in reversed(anchor.before)])
    except ScheduleError:
        return None
    joined = s.copy()
    try:
        inline_all(joined, [block.name for block in anchor.after if block.name != last_of(anchor)])
    except ScheduleError:
        joined = s
        merge_chains(s)
    found = find_contraction(joined.program)
    return None if found is None else (joined, found)


def find_contraction(program: ir.LoopProgram) -> Contraction | None:
    """The sum of products that a kernel is; None where it is none, or has blocks before the sum."""
    anchor = find_anchor(program)
    if anchor is None or anchor.before or not anchor.reduced:
        return None
    if any(block.predicate != arith.ONE for block in (anchor.block, *anchor.after)):
        return None
    factors = _factors(anchor)
    if factors is None:
        return None
    axes: list[Axis] = []
    values: dict[arith.Expr, arith.Expr] = {}
    for item in anchor.spatial:
        size = _group_size(item, factors)
        if size:
            group, place = Var(f"{item.var.name}_group"), Var(f"{item.var.name}_place")
            values[item.var] = group * size + place
            axes += [Axis(group, arith.simplify(item.extent // size)), Axis(place, arith.Const(size))]
        else:
            values[item.var] = item.var
            axes.append(Axis(item.var, item.extent))
    first, second = (_over(factor, values, axes) for factor in factors) if len(axes) > len(values) else factors
    axes = [axis for axis in axes if axis.extent != arith.ONE]
    used = [factor.free_vars() for factor in (first, second)]
    alone = [tuple(axis for axis in axes if axis.var in mine and axis.var not in other) for mine, other in (used, used[::-1])]
    swapped = bool(axes) and axes[-1] in alone[0]
    if swapped:
        first, second, alone = second, first, alone[::-1]
    inverse = _inverse(anchor, values)
    rows, columns = (_together(side, _stored(anchor, values, inverse)) for side in alone)
    batch = tuple(axis for axis in axes if axis not in rows and axis not in columns)
    depth = tuple(Axis(item.var, item.extent) for item in anchor.reduced if item.extent != arith.ONE)
    return Contraction(anchor, first, second, swapped, batch, rows, columns, depth, values, inverse)


def _factors(anchor: Anchor) -> tuple[ir.Expr, ir.Expr] | None:
    """The factors of acc = acc + a * b, before both are widened."""
    assert isinstance(anchor.block.body, ir.Store)
    match anchor.block.body.value:
        case ir.Binary(op="add", a=ir.Load(buffer=buffer), b=ir.Binary(op="mul", a=a, b=b)) if buffer is anchor.buffer:
            if isinstance(a, ir.Cast) and isinstance(b, ir.Cast):
                return a.a, b.a
            return a, b
    return None


def _group_size(item: ir.IterVar, factors: tuple[ir.Expr, ir.Expr]) -> int:
    """Into groups of how many an axis of both factors falls of which one knows only the group, as data of a convolution in groups
    know of output channels; 0 for any other axis."""
    if not isinstance(item.extent, arith.Const) or not all(item.var in factor.free_vars() for factor in factors):
        return 0
    group, place = Var("group"), Var("place")
    for size in sorted({size for factor in factors for size in _divisors(factor, item.var)}):
        analyzer = arith.Analyzer({group: (0, item.extent.value // size - 1), place: (0, size - 1)})
        values: dict[arith.Expr, arith.Expr] = {item.var: group * size + place}
        if item.extent.value % size == 0 and any(not _uses(factor, values, place, analyzer) for factor in factors):
            return size
    return 0


def _over(value: ir.Expr, values: Mapping[arith.Expr, arith.Expr], axes: Sequence[Axis]) -> ir.Expr:
    """A factor over axes instead of iteration variables."""
    analyzer = arith.Analyzer({axis.var: (0, arith.unwrap(axis.extent - 1)) for axis in axes})

    def simplified(node: ir.Expr) -> ir.Expr | None:
        if isinstance(node, ir.Load):
            return ir.load(node.buffer, tuple(map(analyzer.simplify, node.indices)))
        return ir.Index(node.dtype, analyzer.simplify(node.index)) if isinstance(node, ir.Index) else None

    return Rewriter(values, expr=simplified).expr(value)


def _stored(
    anchor: Anchor, values: Mapping[arith.Expr, arith.Expr], inverse: Mapping[arith.Expr, arith.Expr] | None
) -> tuple[arith.Expr, ...]:
    """Where the result is stored, over the axes."""
    block, own = (anchor.block, values) if inverse is None or not anchor.after else (anchor.after[-1], inverse)
    assert isinstance(block.body, ir.Store)
    return tuple(arith.substitute(index, own) for index in block.body.indices)


def _together(axes: Sequence[Axis], stored: Sequence[arith.Expr]) -> tuple[Axis, ...]:
    """The last of a side's axes that are tiled as one: as many as have constant extents, up to `MANY` elements, or are neighbouring
    dimensions of the result. Where a place along several axes of any size is told by divisions, nobody knows that threads store
    elements of their own."""
    kept: list[Axis] = []
    for axis in reversed(axes):
        if kept:
            run = list(stored).index(kept[0].var) if kept[0].var in stored else 0
            neighbours = run > 0 and stored[run - 1] is axis.var
            sizes = [item.extent.value for item in (axis, *kept) if isinstance(item.extent, arith.Const)]
            if not neighbours and (len(sizes) <= len(kept) or prod(sizes[1:]) >= MANY):
                break
        kept.insert(0, axis)
    return tuple(kept)


def _indices(value: ir.Expr) -> Iterable[arith.Expr]:
    """The integers in a value."""
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


def _uses(value: ir.Expr, values: Mapping[arith.Expr, arith.Expr], place: Var, analyzer: arith.Analyzer) -> bool:
    return any(place in arith.free_vars(analyzer.simplify(arith.substitute(index, values))) for index in _indices(value))


def _inverse(anchor: Anchor, values: Mapping[arith.Expr, arith.Expr]) -> dict[arith.Expr, arith.Expr] | None:
    """What the iteration variables of the one block after the sum are for an element of the sum; None where there are several
    blocks, or where elements of it and of the sum are not one to one."""
    if not anchor.after:
        return dict(values)
    if len(anchor.after) > 1:
        return None
    (block,) = anchor.after
    assert isinstance(block.body, ir.Store)
    loads = [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) and node.buffer is anchor.buffer]
    if not loads or any(load.indices != loads[0].indices for load in loads):
        return None
    places = [Var(f"place_{item.var.name}") for item in anchor.spatial]
    ranges: arith.Bounds = {place: (0, arith.unwrap(item.extent - 1)) for place, item in zip(places, anchor.spatial, strict=True)}
    found = _solved(block, loads[0].indices, places, anchor, arith.Analyzer(ranges))
    if found is None:
        return None
    own: dict[arith.Expr, arith.Expr] = {place: values[item.var] for place, item in zip(places, anchor.spatial, strict=True)}
    return {var: arith.substitute(value, own) for var, value in found.items()}


def _solved(
    block: ir.Block, indices: Sequence[arith.Expr], places: Sequence[Var], anchor: Anchor, analyzer: arith.Analyzer
) -> dict[arith.Expr, arith.Expr] | None:
    """The iteration variables of a block at which its indices are `places`."""
    found: dict[arith.Expr, arith.Expr] = {item.var: arith.ZERO for item in block.iters if item.extent == arith.ONE}
    extents: dict[arith.Expr, arith.Expr] = {item.var: item.extent for item in block.iters}
    for number, index in enumerate(indices):
        used = sorted(arith.free_vars(index) & (extents.keys() - found.keys()), key=lambda var: list(extents).index(var))
        if len(used) == 1 and index is not used[0]:
            # Several dimensions of the sum are one of the block's.
            value: arith.Expr = arith.ZERO
            size: arith.Expr = arith.ONE
            for other, place, of in reversed(list(zip(indices, places, anchor.spatial, strict=True))):
                if used[0] in arith.free_vars(other):
                    value, size = value + place * size, size * of.extent
            if not analyzer.equal(size, extents[used[0]]):
                return None
            found[used[0]] = analyzer.simplify(value)
            continue
        stride: arith.Expr = arith.ONE
        for var in _rising(index, used):
            rest = places[number] // stride
            stride = arith.simplify(stride * extents[var])
            found[var] = analyzer.simplify(rest if var is used[0] and len(used) == 1 else rest % extents[var])
    if found.keys() != extents.keys():
        return None
    right = all(analyzer.equal(arith.substitute(index, found), place) for index, place in zip(indices, places, strict=True))
    return found if right and analyzer.equal(_size(block.iters), _size(anchor.spatial)) else None


def _rising(index: arith.Expr, used: Sequence[arith.Expr]) -> list[arith.Expr]:
    """Variables by their multiples in an index; those without a constant one are left out."""
    steps = {var: arith.affine(index, var) for var in used if isinstance(var, Var)}
    known: dict[arith.Expr, int] = {
        var: step[0].value for var, step in steps.items() if step is not None and isinstance(step[0], arith.Const)
    }
    return sorted(known, key=lambda var: known[var])


def _size(items: Iterable[ir.IterVar]) -> arith.Expr:
    return arith.wrap(arith.product(tuple(arith.unwrap(item.extent) for item in items)))


def is_window(found: Contraction) -> bool:
    """Whether the depth is a window over the columns and nothing else, as that of a convolution of single channels is: neighbouring
    columns share elements of it, rows, of which there is one, do not."""
    if found.rows:
        return False
    columns = {axis.var for axis in found.columns}
    used = (arith.free_vars(index) for index in _indices(found.right))
    moving = frozenset().union(*(variables for variables in used if not columns.isdisjoint(variables)))
    return all(axis.var in moving for axis in found.depth)


def is_alone(program: ir.LoopProgram, buffer: ir.Buffer) -> bool:
    """Whether a buffer is read at one place only."""
    bodies = (block.body.value for block in blocks_of(program) if isinstance(block.body, ir.Store))
    return len({node.indices for node in ir.walk_exprs(*bodies) if isinstance(node, ir.Load) and node.buffer is buffer}) == 1
