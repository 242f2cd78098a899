"""Copies between buffers whose elements lie in other orders: what transposes, and changes of layout, come down to.

Every element has a place in the source and one in the target; both are sums over dimensions of a stride times an index. Dimensions
that are neighbours in both become one. Where the same dimension is the innermost of both, rows are copied; otherwise squares of the
two innermost dimensions, a vector of the target's for each column of the source's, so that both are read and written by lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inlaid import arith
from inlaid.tensor import ir
from inlaid.types import DType, Layout

SQUARE = 16
"""Elements along a side of a square at most: with 4 bytes each a side is a line of cache, and 16 vectors half of AVX-512's."""
SMALLEST = 4
"""The least side of a square that is worth it."""
LINE = 64
"""Bytes of a vector at most."""
PATCH = 8
"""Squares along a side of a patch, which is copied before the next: rows far apart share few places in a cache, and lines that a
square has used in part must stay until the next has used the rest."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of a copy, with steps in elements of the source and the target."""

    extent: int
    source: int
    target: int


def between(shape: Sequence[int], source: Layout, target: Layout, perm: Sequence[int] | None = None) -> list[Dimension] | None:
    """The dimensions of a copy of a tensor of a shape from one layout to another, its axes permuted (target axis k is source axis
    perm[k]); None where blocks do not divide an axis, or not one another."""
    order = list(perm) if perm is not None else list(range(len(shape)))
    moved = [shape[axis] for axis in order]
    if source.pads(tuple(shape)) or target.pads(tuple(moved)):
        return None
    reads = _pieces(shape, source)
    return _paired([reads[axis] for axis in order], _pieces(moved, target))


def _paired(reads: list[list[tuple[int, int]]], writes: list[list[tuple[int, int]]]) -> list[Dimension] | None:
    """The pieces of every axis in the source and in the target, cut alike; None where they do not divide one another."""
    found: list[Dimension] = []
    for ours, theirs in zip(reads, writes, strict=True):
        a, b = list(ours), list(theirs)
        while a:
            (left, step), (right, stride) = a.pop(), b.pop()
            size = math.gcd(left, right)
            if size != min(left, right):
                return None
            if left > size:
                a.append((left // size, step * size))
            if right > size:
                b.append((right // size, stride * size))
            found.append(Dimension(size, step, stride))
    return found


def _pieces(shape: Sequence[int], layout: Layout) -> list[list[tuple[int, int]]]:
    """Per axis (extent, step) of the buffer dimensions that it is cut into, outermost first; those of one element left out."""
    dims = layout.shape(tuple(shape))
    steps = [1]
    for dim in reversed(dims[1:]):
        assert isinstance(dim, int)
        steps.insert(0, steps[0] * dim)
    pieces = [[(dims[axis], steps[axis])] for axis in range(len(shape))]
    for place, (axis, _) in enumerate(layout.blocks, len(shape)):
        pieces[axis].append((dims[place], steps[place]))
    return [[(extent, step) for extent, step in piece if isinstance(extent, int) and extent != 1] for piece in pieces]


def padded_program(
    name: str, dtype: DType, shape: Sequence[int], source: Layout, target: Layout, threads: int = 1
) -> ir.LoopProgram | None:
    """A kernel that copies a tensor between layouts of which one pads an axis, or both the same one: whole blocks, then what the
    last one holds, then zeros into the target's padding. None for other layouts."""
    sides = (source, target)
    padded = {axis for layout in sides for axis, factor in layout.blocks if shape[axis] % factor}
    if len(padded) != 1 or any(len(layout.blocks) > 1 for layout in sides):
        return None
    (axis,) = padded
    factors = [dict(layout.blocks).get(axis, 1) for layout in sides]
    a, b = (ir.Buffer(role, (_size(shape, layout),), dtype) for role, layout in zip(("source", "target"), sides, strict=True))
    nests: list[ir.Stmt] = []
    start = 0
    for factor in sorted({*factors, 1}, reverse=True):
        length = (shape[axis] - start) // factor * factor
        if length:
            (reads, read), (writes, write) = (_run(shape, layout, axis, start, length) for layout in sides)
            dims = _paired(reads, writes)
            if dims is None:
                return None
            nests += _nests(_merged(dims), a, b, read, write, threads)
            start += length
    if shape[axis] % factors[1]:
        nests.append(_zeros(*_run(shape, target, axis, shape[axis], -shape[axis] % factors[1]), b))
    return ir.LoopProgram(name, (a,), (b,), ir.Seq(tuple(nests) if math.prod(shape) else ()))


def _size(shape: Sequence[int], layout: Layout) -> int:
    return math.prod(dim for dim in layout.shape(tuple(shape)) if isinstance(dim, int))


def _run(shape: Sequence[int], layout: Layout, axis: int, start: int, length: int) -> tuple[list[list[tuple[int, int]]], int]:
    """The pieces of what lies at a run of indices of an axis, and where it begins. The run covers whole blocks, or part of one."""
    dims = layout.shape(tuple(shape))
    factor = dict(layout.blocks).get(axis, 1)
    outer = math.prod(dim for dim in dims[axis + 1 :] if isinstance(dim, int))
    pieces = _pieces(shape, layout)
    pieces[axis] = [(length // factor, outer), (factor, 1)] if length % factor == 0 else [(length, 1)]
    return [[piece for piece in each if piece[0] != 1] for each in pieces], start // factor * outer + start % factor


def _zeros(pieces: list[list[tuple[int, int]]], start: int, target: ir.Buffer) -> ir.Stmt:
    """Loops that fill a part of a buffer with zeros."""
    place: arith.Expr = arith.Const(start)
    loops: list[tuple[arith.Var, int]] = []
    for extent, step in (piece for each in pieces for piece in each):
        loops.append((arith.Var(f"i{len(loops)}"), extent))
        place = place + loops[-1][0] * step
    body: ir.Stmt = ir.Store(target, (place,), ir.const(0, target.dtype))
    for variable, extent in reversed(loops):
        body = ir.For(variable, arith.Const(extent), body)
    return body


def copy_program(name: str, dtype: DType, dims: Sequence[Dimension], threads: int = 1) -> ir.LoopProgram:
    """A kernel that copies every element, between buffers of one dimension. `threads` that is not 1 lets it run in parallel.

    for outer dimensions, rows of squares, columns of squares:
        row vectorised:
            target[..., column 0, row] = source[..., row, column 0]
            ...
            target[..., column 15, row] = source[..., row, column 15]
    """
    size = math.prod(dim.extent for dim in dims)
    a, b = ir.Buffer("source", (size,), dtype), ir.Buffer("target", (size,), dtype)
    # Steps say nothing where there are no elements: loops over other dimensions would copy all the same.
    nests = _nests(_merged(dims), a, b, 0, 0, threads) if size else []
    return ir.LoopProgram(name, (a,), (b,), nests[0] if len(nests) == 1 else ir.Seq(tuple(nests)))


def _merged(dims: Sequence[Dimension]) -> list[Dimension]:
    """The dimensions as the target has them, outermost first; neighbours in both as one, those of one element left out."""
    found: list[Dimension] = []
    for dim in sorted((dim for dim in dims if dim.extent != 1), key=lambda dim: -dim.target):
        last = found[-1] if found else None
        if last and last.target == dim.target * dim.extent and last.source == dim.source * dim.extent:
            found[-1] = Dimension(last.extent * dim.extent, dim.source, dim.target)
        else:
            found.append(dim)
    return found


def _nests(dims: list[Dimension], a: ir.Buffer, b: ir.Buffer, read: int, write: int, threads: int) -> list[ir.Stmt]:
    """Loops that copy, from given places on. Extents that squares do not divide are cut in two."""
    row = next((place for place, dim in enumerate(dims) if dim.target == 1), None)
    column = next((place for place, dim in enumerate(dims) if dim.source == 1), None)
    if row is None or column is None:
        return [_nest(dims, {}, a, b, read, write, threads)]
    limit = LINE // a.dtype.bytes
    side = min(dims[row].extent, dims[column].extent, limit if row == column else min(limit, SQUARE))
    side = 1 << max(side.bit_length() - 1, 0)  # an empty buffer has none
    if side < SMALLEST:
        return [_nest(dims, {}, a, b, read, write, threads)]
    for place in {row, column}:
        rest = dims[place].extent % side
        if rest:
            whole = dims[place].extent - rest
            main, tail = list(dims), list(dims)
            main[place], tail[place] = replace(dims[place], extent=whole), replace(dims[place], extent=rest)
            if rest == 1:
                del tail[place]
            from_, to = read + whole * dims[place].source, write + whole * dims[place].target
            first = _nests(main, a, b, read, write, threads)
            if not tail:
                return [*first, ir.Store(b, (arith.Const(to),), ir.load(a, (arith.Const(from_),)))]
            return [*first, *_nests(tail, a, b, from_, to, 1)]
    return [_nest(dims, {row: side, column: side}, a, b, read, write, threads)]


def _nest(dims: list[Dimension], sides: dict[int, int], a: ir.Buffer, b: ir.Buffer, read: int, write: int, threads: int) -> ir.Stmt:
    """Loops over all dimensions, those with sides by squares, around what copies a square, or a row, or an element."""
    from_: arith.Expr = arith.Const(read)
    to: arith.Expr = arith.Const(write)
    loops: list[tuple[arith.Var, int]] = []
    inner: list[tuple[arith.Var, int]] = []
    for place, dim in enumerate(dims):
        side = sides.get(place, 1)
        count = dim.extent // side
        patch = _patch(count, threads) if len(sides) == 2 and place in sides else 1
        for loop, size, step in ((loops, count // patch, side * patch), (inner, patch, side)):
            if size > 1:
                variable = arith.Var(f"i{len(loops) + len(inner)}")
                loop.append((variable, size))
                from_, to = from_ + variable * (dim.source * step), to + variable * (dim.target * step)
    stores: list[ir.Stmt] = []
    lane = arith.Var("lane")
    side = max(sides.values(), default=1)
    lanes, columns = (lane, side if len(sides) == 2 else 1) if sides else (arith.ZERO, 1)
    row = next((dims[place] for place in sides if dims[place].target == 1), Dimension(1, 0, 0))
    column = next((dims[place] for place in sides if dims[place].source == 1), row)
    for number in range(columns):
        value = ir.load(a, (from_ + lanes * row.source + number * column.source,))
        stores.append(ir.Store(b, (to + lanes * row.target + number * column.target,), value))
    body: ir.Stmt = stores[0] if len(stores) == 1 else ir.Seq(tuple(stores))
    if sides:
        body = ir.For(lane, arith.wrap(side), body, ir.ForKind.VECTORIZED)
    kinds = [ir.ForKind.SERIAL] * len(loops + inner)
    if threads != 1 and loops:
        # The longest is that over rows of an image, or tokens, whose parts other kernels give the same threads.
        longest = max(range(len(loops)), key=lambda place: loops[place][1])
        loops.insert(0, loops.pop(longest))
        kinds[0] = ir.ForKind.PARALLEL
    for (variable, extent), kind in zip(reversed(loops + inner), reversed(kinds), strict=True):
        body = ir.For(variable, arith.wrap(extent), body, kind)
    return body


def _patch(count: int, threads: int) -> int:
    """How many of so many squares make a side of a patch: so that threads have the same number of patches, where that can be."""
    fitting = [size for size in range(PATCH, 0, -1) if count % size == 0]
    return next((size for size in fitting if count // size % max(threads, 1) == 0), fitting[0])
