"""Slices, padding, and space-to-depth and space-to-batch blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from inlaid import ops
from inlaid.frontends.shapes import cut, normal_range
from inlaid.graph.conditions import require_at_most, require_multiple, require_shape
from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, expand_dims, join, reversed_axis, scalar, slice_axis, squeeze
from inlaid.ops.shape import simple
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_tflite.node import Converter, Node, tensor_type

# --- slices -----------------------------------------------------------------------------------------------------------


def _slice(node: Node) -> Expr:
    """Convert SLICE: `size` elements from `begin` on along each axis; a size of -1 is the rest of the axis."""
    shape, value = node.shape(0), node.input(0)
    begins, sizes = (node.scope.dims(node.input(index)) for index in (1, 2))
    if begins is not None and sizes is not None:
        ends = [extent if size == -1 else arith.add(begin, size) for begin, size, extent in zip(begins, sizes, shape, strict=True)]
        return cut(value, {axis: (begin, simple(end), 1) for axis, (begin, end) in enumerate(zip(begins, ends, strict=True))})
    with node.relations():
        for index in (1, 2):
            require_shape(node.shape(index), (len(shape),), f"input {index}")
    if sizes is None or -1 in sizes:
        return _sliced_at_run(node)
    for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True)):
        if size != extent:
            first = ops.reshape(slice_axis(node.input(1), 0, axis, axis + 1), shape=())
            positions = ops.add(ops.iota(shape=(size,), axis=0, dtype=node.tensor(1).dtype.name), first)
            value = ops.take(value, positions, axis=axis)
    return value


def _sliced_at_run(node: Node) -> Expr:
    """Convert a slice of data-dependent size."""
    axes = tuple(range(len(node.shape(0))))
    starts, sizes = (cast_to(node.input(index), "int64") for index in (1, 2))
    extents = ops.sizes(dims=node.shape(0))
    ends = ops.where(ops.less(sizes, scalar(0, "int64")), extents, ops.add(starts, sizes))
    return ops.dynamic_slice(node.input(0), starts, ends, axes=axes, strides=(1,) * len(axes))


@dataclass(frozen=True)
class _Plan:
    """The plan of a strided slice. `ranges` are pairs (axis, index into begin, end and strides), `dropped` the axes that are
    indexed by an integer, `added` the positions of new axes in the result."""

    ranges: list[tuple[int, int]]
    dropped: list[int]
    added: list[int]


def _plan(node: Node, count: int, rank: int) -> _Plan:
    """Plan a strided slice that has `count` ranges."""
    ellipsis = node.option("EllipsisMask")
    new_axis_mask = node.option("NewAxisMask") & ~ellipsis & ((1 << count) - 1)
    ellipsis_axes = rank - (count - new_axis_mask.bit_count() - (ellipsis > 0))
    if ellipsis.bit_count() > 1 or ellipsis_axes < 0:
        raise node.error(f"expected at most {rank} ranges and one ellipsis, got {count} ranges")
    if ellipsis and ellipsis_axes == 0:
        raise node.error("an ellipsis must cover at least one axis, as TensorFlow and LiteRT differ for an empty one: remove it")
    plan = _Plan([], [], [])
    axis = 0
    for number in range(count):
        if ellipsis >> number & 1:
            axis += ellipsis_axes
        elif new_axis_mask >> number & 1:
            plan.added.append(axis - len(plan.dropped) + len(plan.added))
        else:
            plan.ranges.append((axis, number))
            if node.option("ShrinkAxisMask") >> number & 1:
                plan.dropped.append(axis)
            axis += 1
    return plan


def _strided_slice(node: Node) -> Expr:
    shape, value = node.shape(0), node.input(0)
    strides = [int(step) for step in node.array(3).reshape(-1)]
    if 0 in strides:
        raise node.error("strides must not be 0")
    plan = _plan(node, len(strides), len(shape))
    begins, ends = (node.scope.dims(node.input(index)) for index in (1, 2))
    ranges: dict[int, tuple[Dim, Dim, int]] = {}
    data_dependent: list[tuple[int, int]] = []
    for axis, number in plan.ranges:
        step = strides[number]
        first, last = (bool(node.option(f"{side}Mask") >> number & 1) for side in ("Begin", "End"))
        if axis in plan.dropped:
            if begins is None:
                value = ops.take(value, slice_axis(node.input(1), 0, number, number + 1), axis=axis)
            else:
                start = arith.wrap(begins[number])
                start = arith.wrap(simple(arith.select(arith.compare("<", start, 0), start + shape[axis], start)))
                ranges[axis] = (arith.unwrap(start), simple(start + 1), 1)
        elif first and last:
            ranges[axis] = _range(shape[axis], 0 if step > 0 else _BEYOND_END, _BEYOND_END if step > 0 else -_BEYOND_END, step)
        elif begins is None or ends is None:
            if first or last or node.option("Offset", False):
                raise node.error("a data-dependent range must have a begin and an end")
            data_dependent.append((axis, number))
        else:
            begin = (0 if step > 0 else _BEYOND_END) if first else begins[number]
            end = simple(arith.add(begins[number], ends[number])) if node.option("Offset", False) else ends[number]
            ranges[axis] = _range(shape[axis], begin, (_BEYOND_END if step > 0 else -_BEYOND_END) if last else end, step)
    value = cut(value, ranges) if ranges else value
    if data_dependent:
        limits = (
            join([slice_axis(cast_to(node.input(index), "int64"), 0, number, number + 1) for _, number in data_dependent], 0)
            for index in (1, 2)
        )
        axes, steps = zip(*((axis, strides[number]) for axis, number in data_dependent), strict=True)
        value = ops.dynamic_slice(value, *limits, axes=axes, strides=steps)
    return expand_dims(squeeze(value, *plan.dropped), *plan.added) if plan.dropped or plan.added else value


_BEYOND_END = 2**31 - 1
"""An index beyond the end of any axis."""


def _range(extent: Dim, begin: Dim, end: Dim, step: int) -> tuple[Dim, Dim, int]:
    """Convert Python's slice of an axis to (begin, end, stride) for `ops.strided_slice`."""
    return normal_range(extent, begin, end, step, least=0 if step > 0 else -1)


def _reverse(node: Node) -> Expr:
    value, rank = node.input(0), len(node.shape(0))
    for axis in node.array(1).reshape(-1):
        value = reversed_axis(value, node.axis(int(axis), rank))
    return value


def _dynamic_update_slice(node: Node) -> Expr:
    """Convert DYNAMIC_UPDATE_SLICE: replace a block of the operand. Start indices are clamped so that the block is inside."""
    operand, update = node.input(0), node.input(1)
    dtype = node.tensor(2).dtype
    in_block: Expr | None = None
    pairs = list(enumerate(zip(node.shape(0), node.shape(1), strict=True)))
    with node.relations():
        require_shape(node.shape(2), (len(pairs),), "the start indices")
        for axis, (extent, size) in pairs:
            require_at_most(size, extent, f"dimension {axis} of the update")
    for axis, (extent, size) in pairs:
        if extent == size:
            continue
        zero = scalar(0, dtype)
        last, end = (
            cast_to(ops.reshape(ops.sizes(dims=(dim,)), shape=()), dtype) for dim in (simple(arith.wrap(extent) - size), size)
        )
        first = ops.reshape(slice_axis(node.input(2), 0, axis, axis + 1), shape=())
        first = ops.maximum(ops.minimum(first, last), zero)
        # An empty update has no element to take, not even one that is discarded.
        padding = simple(arith.maximum(1 - arith.wrap(size), 0))
        if padding != 0:
            after = tuple(padding if other == axis else 0 for other in range(len(pairs)))
            update = ops.pad(update, scalar(0, node.tensor(1).dtype), pads=(*(0 for _ in pairs), *after))
        offset = ops.sub(ops.iota(shape=(extent,), axis=0, dtype=dtype.name), first)
        within = ops.logical_and(ops.less_equal(zero, offset), ops.less(offset, end))
        update = ops.take(update, ops.where(within, offset, zero), axis=axis)
        shaped = ops.reshape(within, shape=tuple(extent if other == axis else 1 for other in range(len(node.shape(0)))))
        in_block = shaped if in_block is None else ops.logical_and(in_block, shaped)
    return update if in_block is None else ops.where(in_block, update, operand)


# --- padding ----------------------------------------------------------------------------------------------------------


def _pads(node: Node) -> list[tuple[Dim, Dim]]:
    """Return the pads (before, after) of each axis, from input 1."""
    flat = node.dims(1)
    rank = len(node.shape(0))
    if len(flat) != 2 * rank:
        raise node.error(f"pads must have {2 * rank} elements for {rank} axes, got {len(flat)}")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _zero(node: Node) -> Expr:
    """Return the quantized value that represents 0 in the result."""
    tensor = node.result
    zero_point = 0 if tensor.quantization is None or tensor.dtype.is_float else node.pair(tensor)[1]
    return scalar(zero_point, tensor.dtype)


def _padded(value: Expr, fill: Expr, pads: list[tuple[Dim, Dim]]) -> Expr:
    return ops.pad(value, fill, pads=(*(before for before, _ in pads), *(after for _, after in pads)))


def _pad(node: Node) -> Expr:
    return _padded(node.input(0), _zero(node), _pads(node))


def _padv2(node: Node) -> Expr:
    return _padded(node.input(0), ops.reshape(node.input(2), shape=()), _pads(node))


def _mirror_pad(node: Node) -> Expr:
    """Convert MIRROR_PAD. Mode 0 mirrors without repeating the edge, mode 1 repeats it."""
    pads = _pads(node)
    mode = node.option("Mode")
    with node.relations():
        for axis, (extent, amounts) in enumerate(zip(node.shape(0), pads, strict=True)):
            for side, pad in zip(("before", "after"), amounts, strict=True):
                require_at_most(pad, simple(arith.add(extent, -1)) if mode == 0 else extent, f"the pad {side} dimension {axis}")
    if mode == 0:
        return ops.pad(node.input(0), pads=(*(before for before, _ in pads), *(after for _, after in pads)), mode="reflect")
    value = node.input(0)
    for axis, (before, after) in enumerate(pads):
        extent = node.shape(0)[axis]
        sides = []
        if before != 0:
            sides.append(reversed_axis(slice_axis(value, axis, 0, before), axis))
        sides.append(value)
        if after != 0:
            sides.append(reversed_axis(slice_axis(value, axis, simple(arith.wrap(extent) - after), extent), axis))
        value = join(sides, axis)
    return value


# --- blocks -----------------------------------------------------------------------------------------------------------


def _block_size(node: Node) -> int:
    size = int(node.option("BlockSize"))
    if size < 1 or len(node.shape(0)) != 4:
        raise node.error(f"expected a block size >= 1 and rank 4, got {size} and rank {len(node.shape(0))}")
    return size


def _divided(node: Node, dim: Dim, block_size: int, axis: int) -> Dim:
    """Divide the extent of an axis into blocks. States that it is a multiple of their size."""
    with node.relations():
        return simple(require_multiple(dim, block_size, f"dimension {axis}, which is divided into blocks,"))


def _space_to_depth(node: Node) -> Expr:
    (n, h, w, c), size = node.shape(0), _block_size(node)
    rows, columns = _divided(node, h, size, 1), _divided(node, w, size, 2)
    parts = ops.reshape(node.input(0), shape=(n, rows, size, columns, size, c))
    transposed = ops.transpose(parts, perm=(0, 1, 3, 2, 4, 5))
    return ops.reshape(transposed, shape=(n, rows, columns, arith.product((c, size * size))))


def _depth_to_space(node: Node) -> Expr:
    (n, h, w, c), size = node.shape(0), _block_size(node)
    depth = _divided(node, c, size * size, 3)
    parts = ops.reshape(node.input(0), shape=(n, h, w, size, size, depth))
    transposed = ops.transpose(parts, perm=(0, 1, 3, 2, 4, 5))
    return ops.reshape(transposed, shape=(n, arith.product((h, size)), arith.product((w, size)), depth))


def _blocks(node: Node) -> tuple[tuple[int, ...], list[tuple[Dim, Dim]]]:
    """Return the block sizes, and the pads or crops before and after each spatial axis."""
    sizes = tuple(int(size) for size in node.array(1).reshape(-1))
    flat = node.dims(2)
    if not sizes or min(sizes) < 1 or len(flat) != 2 * len(sizes) or len(node.shape(0)) < len(sizes) + 1:
        raise node.error(f"expected block sizes >= 1 and two pads or crops per spatial axis, got {sizes} and {len(flat)} pads")
    return sizes, list(zip(flat[::2], flat[1::2], strict=True))


def _space_to_batch(node: Node) -> Expr:
    sizes, pads = _blocks(node)
    count, rest = len(sizes), node.shape(0)[len(sizes) + 1 :]
    filled = _padded(node.input(0), _zero(node), [(0, 0), *pads, *((0, 0) for _ in rest)])
    batch, *space = tensor_type(filled).shape[: count + 1]
    inner = [_divided(node, dim, size, axis) for axis, (dim, size) in enumerate(zip(space, sizes, strict=True), 1)]
    split = [part for pair in zip(inner, sizes, strict=True) for part in pair]
    parts = ops.reshape(filled, shape=(batch, *split, *rest))
    block_axes, grid_axes = tuple(range(2, 2 * count + 1, 2)), tuple(range(1, 2 * count + 1, 2))
    transposed = ops.transpose(parts, perm=(*block_axes, 0, *grid_axes, *range(2 * count + 1, 2 * count + 1 + len(rest))))
    return ops.reshape(transposed, shape=(arith.product((batch, *sizes)), *inner, *rest))


def _batch_to_space(node: Node) -> Expr:
    sizes, crops = _blocks(node)
    count = len(sizes)
    batch, *space = node.shape(0)[: count + 1]
    rest = node.shape(0)[count + 1 :]
    outer = _divided(node, batch, math.prod(sizes), 0)
    parts = ops.reshape(node.input(0), shape=(*sizes, outer, *space, *rest))
    pairs = [axis for index in range(count) for axis in (count + 1 + index, index)]
    transposed = ops.transpose(parts, perm=(count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest))))
    uncropped = [simple(arith.product((dim, size))) for dim, size in zip(space, sizes, strict=True)]
    joined = ops.reshape(transposed, shape=(outer, *uncropped, *rest))
    return cut(
        joined,
        {
            axis: (before, simple(arith.wrap(extent) - after), 1)
            for axis, (extent, (before, after)) in enumerate(zip(uncropped, crops, strict=True), 1)
        },
    )


CONVERTERS: Mapping[str, Converter] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "DEPTH_TO_SPACE": _depth_to_space,
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "MIRROR_PAD": _mirror_pad,
    "PAD": _pad,
    "PADV2": _padv2,
    "REVERSE_V2": _reverse,
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
    "STRIDED_SLICE": _strided_slice,
}
