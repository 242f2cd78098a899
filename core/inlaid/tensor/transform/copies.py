"""Copies between buffers with different element orders, which implement transposes and layout changes.

An element's offset in either buffer is a sum over dimensions of a stride times an index. Dimensions contiguous in both buffers are
merged. If both buffers have the same innermost dimension, rows are copied. Otherwise tiles ("squares") of the two innermost
dimensions are copied, one target vector per source column, so that whole cache lines are read and written. If the innermost target
dimension has extent 2 or 3 and the innermost source dimension is the next one in the target, vectors of as many source rows are
interleaved and stored together. Axes split into blocks have static extents; all other axes may be symbolic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import DType, Layout

SQUARE = 16
"""Maximum side of a square, in elements: with 4-byte elements a side is a cache line, and 16 vectors are half of 32 registers."""
INTERLEAVED = (2, 3)
"""Extents of an innermost target dimension that is interleaved: vectors of the source are stored as alternating elements."""
SMALLEST = 4
"""Minimum side of a square. Smaller squares are not worth the code."""
LINE = 64
"""Maximum vector size in bytes."""
PATCH = 8
"""Side of a patch, in squares. Patches are copied one after another: distant rows compete for the same cache sets, and a partly
used cache line must stay resident until the next square uses the rest of it."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of a copy, with its strides in the source and the target, in elements."""

    extent: Dim
    source: Dim
    target: Dim


@dataclass(frozen=True)
class _AxisFactor:
    """A factor of an axis, also called a piece: its extent, its stride in elements, and the number of its buffer dimension."""

    extent: Dim
    step: Dim
    position: int


def copy_dimensions(
    shape: Sequence[Dim], source: Layout, target: Layout, perm: Sequence[int] | None = None
) -> list[Dimension] | None:
    """Return the dimensions of a copy of a tensor from one layout to another, in the target's order, outermost first. `perm`
    permutes axes (target axis k is source axis perm[k]). None if a block does not divide its axis, or if the blocks of an axis in
    the two layouts do not divide each other."""
    order = list(perm) if perm is not None else list(range(len(shape)))
    target_shape = [shape[axis] for axis in order]
    if source.pads(tuple(shape)) or target.pads(tuple(target_shape)):
        return None
    reads = _pieces(shape, source)
    return _paired([reads[axis] for axis in order], _pieces(target_shape, target))


def _paired(reads: list[list[_AxisFactor]], writes: list[list[_AxisFactor]]) -> list[Dimension] | None:
    """Split the pieces of every axis in source and target to common extents, in the target's order; None if the extents of two
    pieces do not divide each other."""
    dimensions: list[tuple[int, Dimension]] = []
    for axis_reads, axis_writes in zip(reads, writes, strict=True):
        a, b = list(axis_reads), list(axis_writes)
        while a:
            left, right = a.pop(), b.pop()
            size = left.extent
            if left.extent != right.extent:
                if not isinstance(left.extent, int) or not isinstance(right.extent, int):
                    return None
                size = math.gcd(left.extent, right.extent)
                if size != min(left.extent, right.extent):
                    return None
                if left.extent > size:
                    a.append(_AxisFactor(left.extent // size, arith.unwrap(arith.mul(left.step, size)), left.position))
                if right.extent > size:
                    b.append(_AxisFactor(right.extent // size, arith.unwrap(arith.mul(right.step, size)), right.position))
            dimensions.append((right.position, Dimension(size, left.step, right.step)))
    dimensions.reverse()  # pieces of one target dimension were found innermost first
    return [dim for _, dim in sorted(dimensions, key=lambda item: item[0])]


def _pieces(shape: Sequence[Dim], layout: Layout) -> list[list[_AxisFactor]]:
    """Return, for each axis, its pieces in the buffer, outermost first. Pieces of extent 1 are omitted."""
    dims = layout.shape(tuple(shape))
    steps = [arith.product(dims[position + 1 :]) for position in range(len(dims))]
    pieces = [[_AxisFactor(dims[axis], steps[axis], axis)] for axis in range(len(shape))]
    for position, (axis, _) in enumerate(layout.blocks, len(shape)):
        pieces[axis].append(_AxisFactor(dims[position], steps[position], position))
    return [[piece for piece in axis_pieces if piece.extent != 1] for axis_pieces in pieces]


def padded_program(
    name: str, dtype: DType, shape: Sequence[Dim], source: Layout, target: Layout, threads: int = 1
) -> ir.LoopProgram | None:
    """Build a kernel that copies a tensor between layouts, one or both of which pad the same axis. It copies whole blocks, then the
    partial last block, then fills the target's padding with zeros. None for other layouts."""
    layouts = (source, target)
    padded = {axis for layout in layouts for axis, _ in layout.blocks if layout.pads(tuple(shape))}
    if len(padded) != 1 or any(len(layout.blocks) > 1 for layout in layouts):
        return None
    (axis,) = padded
    size = shape[axis]
    if not isinstance(size, int):
        return None
    factors = [dict(layout.blocks).get(axis, 1) for layout in layouts]
    a, b = (ir.Buffer(role, (_size(shape, layout),), dtype) for role, layout in zip(("source", "target"), layouts, strict=True))
    nests: list[ir.Stmt] = []
    start = 0
    for factor in sorted({*factors, 1}, reverse=True):
        length = (size - start) // factor * factor
        if length:
            (reads, read_offset), (writes, write_offset) = (_range_pieces(shape, layout, axis, start, length) for layout in layouts)
            dims = _paired(reads, writes)
            if dims is None:
                return None
            nests += _nests(_merged(dims), a, b, read_offset, write_offset, threads)
            start += length
    if size % factors[1]:
        nests.append(_zeros(*_range_pieces(shape, target, axis, size, -size % factors[1]), b))
    return ir.LoopProgram(name, (a,), (b,), ir.Seq(() if arith.product(tuple(shape)) == 0 else tuple(nests)))


def _size(shape: Sequence[Dim], layout: Layout) -> Dim:
    return arith.product(layout.shape(tuple(shape)))


def _range_pieces(shape: Sequence[Dim], layout: Layout, axis: int, start: int, length: int) -> tuple[list[list[_AxisFactor]], Dim]:
    """Return the pieces of all axes, with `axis` cut to a range of indices, and the offset of the range in the buffer. The range is
    whole blocks, or a part of one block."""
    dims = layout.shape(tuple(shape))
    factor = dict(layout.blocks).get(axis, 1)
    outer = arith.product(dims[axis + 1 :])
    pieces = _pieces(shape, layout)
    inner_position = len(shape) if factor > 1 else axis
    has_full_blocks = length % factor == 0
    pieces[axis] = (
        [_AxisFactor(length // factor, outer, axis), _AxisFactor(factor, 1, inner_position)]
        if has_full_blocks
        else [_AxisFactor(length, 1, inner_position)]
    )
    begin = arith.add(arith.mul(start // factor, outer), start % factor)
    return [[piece for piece in axis_pieces if piece.extent != 1] for axis_pieces in pieces], arith.unwrap(begin)


def _zeros(pieces: list[list[_AxisFactor]], start: Dim, target: ir.Buffer) -> ir.Stmt:
    """Build loops that fill a part of a buffer with zeros."""
    offset = arith.wrap(start)
    loops: list[tuple[arith.Var, Dim]] = []
    for piece in (piece for axis_pieces in pieces for piece in axis_pieces):
        loops.append((arith.Var(f"i{len(loops)}"), piece.extent))
        offset = offset + loops[-1][0] * piece.step
    body: ir.Stmt = ir.Store(target, (offset,), ir.const(0, target.dtype))
    for variable, extent in reversed(loops):
        body = ir.For(variable, arith.wrap(extent), body)
    return body


def copy_program(name: str, dtype: DType, dims: Sequence[Dimension], threads: int = 1) -> ir.LoopProgram:
    """Build a kernel that copies every element between one-dimensional buffers. It runs in parallel unless `threads` is 1. A
    transpose in squares of 16 x 16 elements, for example, is

    for each index of the outer dimensions, for each square:
        for row in 16, vectorized:
            target[..., column 0, row] = source[..., row, column 0]
            ...
            target[..., column 15, row] = source[..., row, column 15]
    """
    size = arith.product(tuple(dim.extent for dim in dims))
    a, b = ir.Buffer("source", (size,), dtype), ir.Buffer("target", (size,), dtype)
    # Loops over an empty tensor would run zero times.
    nests = _nests(_merged(dims), a, b, 0, 0, threads) if size != 0 else []
    return ir.LoopProgram(name, (a,), (b,), nests[0] if len(nests) == 1 else ir.Seq(tuple(nests)))


def _merged(dims: Sequence[Dimension]) -> list[Dimension]:
    """Merge dimensions that are contiguous in both buffers, and drop dimensions of extent 1."""
    result: list[Dimension] = []
    for dim in (dim for dim in dims if dim.extent != 1):
        last = result[-1] if result else None
        if last and _is_contiguous(last.target, dim.target, dim.extent) and _is_contiguous(last.source, dim.source, dim.extent):
            result[-1] = Dimension(arith.unwrap(arith.mul(last.extent, dim.extent)), dim.source, dim.target)
        else:
            result.append(dim)
    return result


def _is_contiguous(step: Dim, inner: Dim, extent: Dim) -> bool:
    """Test whether a stride equals the size of an inner dimension."""
    return arith.simplify(step - arith.mul(inner, extent)) == arith.ZERO


def _nests(dims: list[Dimension], a: ir.Buffer, b: ir.Buffer, read_offset: Dim, write_offset: Dim, threads: int) -> list[ir.Stmt]:
    """Build loops that copy from `read_offset` to `write_offset`. An extent that squares do not divide is split in two."""
    row = next((axis for axis, dim in enumerate(dims) if dim.target == 1), None)
    column = next((axis for axis, dim in enumerate(dims) if dim.source == 1), None)
    if row is None or column is None:
        return [_nest(dims, {}, a, b, read_offset, write_offset, threads)]
    limit = LINE // a.dtype.bytes
    side = min(_side(dims[row].extent, limit), _side(dims[column].extent, limit), limit if row == column else min(limit, SQUARE))
    sides = {row: side, column: side}
    width = dims[row].extent
    if isinstance(width, int) and width in INTERLEAVED and dims[column].target == width:
        sides = {column: (side := min(_side(dims[column].extent, limit), limit)), row: width}
    if side < SMALLEST:
        return [_nest(dims, {}, a, b, read_offset, write_offset, threads)]
    for axis, side in sides.items():
        extent = dims[axis].extent
        main_extent = arith.unwrap(arith.simplify(extent // side * arith.wrap(side)))
        rest = arith.unwrap(arith.simplify(extent % arith.wrap(side)))
        if rest != 0:
            main, tail = list(dims), list(dims)
            main[axis], tail[axis] = replace(dims[axis], extent=main_extent), replace(dims[axis], extent=rest)
            if rest == 1:
                del tail[axis]
            source_offset = arith.unwrap(read_offset + arith.mul(main_extent, dims[axis].source))
            target_offset = arith.unwrap(write_offset + arith.mul(main_extent, dims[axis].target))
            first = _nests(main, a, b, read_offset, write_offset, threads)
            if not tail:
                return [*first, ir.Store(b, (arith.wrap(target_offset),), ir.load(a, (arith.wrap(source_offset),)))]
            return [*first, *_nests(tail, a, b, source_offset, target_offset, 1)]
    return [_nest(dims, sides, a, b, read_offset, write_offset, threads)]


def _side(extent: Dim, limit: int) -> int:
    """Return the largest side of a square, a power of two, that fits into an extent. A symbolic extent is assumed to reach the
    limit; its remainder uses the smallest squares, to limit the number of nests."""
    if isinstance(extent, int):
        return 1 << max(extent.bit_length() - 1, 0)  # 1 for an empty buffer
    _, max_extent = arith.bounds(extent)
    return limit if max_extent is None or max_extent >= limit else SMALLEST if max_extent >= SMALLEST else 1


def _nest(
    dims: list[Dimension], sides: dict[int, int], a: ir.Buffer, b: ir.Buffer, read_offset: Dim, write_offset: Dim, threads: int
) -> ir.Stmt:
    """Build loops around the copy of an element or of vectors. `sides` maps the dimension of the vector lanes to their number, and
    then, for a square, the dimension of the vectors to their number."""
    source_offset, target_offset = arith.wrap(read_offset), arith.wrap(write_offset)
    loops: list[tuple[arith.Var, Dim]] = []
    inner: list[tuple[arith.Var, Dim]] = []
    for axis, dim in enumerate(dims):
        side = sides.get(axis, 1)
        count = arith.unwrap(arith.simplify(dim.extent // arith.wrap(side)))
        patch = _patch(count, threads) if len(set(sides.values())) == 1 < len(sides) and axis in sides else 1
        outer = arith.Var(f"i{len(loops) + len(inner)}")
        patches = arith.unwrap(arith.simplify(arith.ceildiv(count, patch)))
        if patches != 1:
            loops.append((outer, patches))
            source_offset, target_offset = (
                source_offset + outer * (dim.source * arith.wrap(side * patch)),
                target_offset + outer * (dim.target * arith.wrap(side * patch)),
            )
        if patch > 1:
            variable = arith.Var(f"i{len(loops) + len(inner)}")
            inner.append((variable, patch if isinstance(count, int) else arith.minimum(patch, count - outer * patch)))
            source_offset, target_offset = (
                source_offset + variable * (dim.source * arith.wrap(side)),
                target_offset + variable * (dim.target * arith.wrap(side)),
            )
    stores: list[ir.Stmt] = []
    lane = arith.Var("lane")
    side, *vector_counts = sides.values() or (1,)
    lane_index, vector_count = lane if sides else arith.ZERO, vector_counts[0] if vector_counts else 1
    row, *vector_dims = [dims[axis] for axis in sides] or [Dimension(1, 0, 0)]
    column = vector_dims[0] if vector_dims else row
    for number in range(vector_count):
        value = ir.load(a, (source_offset + lane_index * row.source + arith.mul(number, column.source),))
        stores.append(ir.Store(b, (target_offset + lane_index * row.target + arith.mul(number, column.target),), value))
    body: ir.Stmt = stores[0] if len(stores) == 1 else ir.Seq(tuple(stores))
    if sides:
        body = ir.For(lane, arith.wrap(side), body, ir.ForKind.VECTORIZED)
    kinds = [ir.ForKind.SERIAL] * len(loops + inner)
    if threads != 1 and loops:
        # The longest loop is the one over image rows or tokens, which other kernels distribute over the same threads.
        longest = max(range(len(loops)), key=lambda axis: arith.size_hint(loops[axis][1]))
        loops.insert(0, loops.pop(longest))
        kinds[0] = ir.ForKind.PARALLEL
    for (variable, extent), kind in zip(reversed(loops + inner), reversed(kinds), strict=True):
        body = ir.For(variable, arith.wrap(extent), body, kind)
    return body


def _patch(count: Dim, threads: int) -> int:
    """Return the side of a patch, in squares, out of `count`. If possible, all threads get the same number of patches."""
    if not isinstance(count, int):
        max_count = arith.bounds(count)[1]
        return 1 if max_count is not None and max_count <= PATCH else PATCH
    divisors = [size for size in range(PATCH, 0, -1) if count % size == 0]
    return next((size for size in divisors if count // size % max(threads, 1) == 0), divisors[0])
