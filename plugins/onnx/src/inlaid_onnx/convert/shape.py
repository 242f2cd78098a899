"""Operators that move, repeat, slice and generate elements."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.frontends.bind import extract_element, integer
from inlaid.frontends.shapes import cut, normal_range, quotient, range_size, require_parts, require_squeezed
from inlaid.graph.conditions import broadcast_shapes, require_multiple
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import expr_type
from inlaid.ops.conversion import bitcast, cast
from inlaid.ops.elementwise import (
    add,
    ceil,
    div,
    equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    maximum,
    minimum,
    mul,
    sub,
    where,
)
from inlaid.ops.index import take
from inlaid.ops.reduce import reduce_max, reduce_min, reduce_prod, reduce_sum
from inlaid.ops.shape import broadcast_to, concat, full, iota, pad, reshape, simple, sizes, tile, transpose
from inlaid.ops.slicing import dynamic_slice
from inlaid_onnx.node import Converter, Node
from inlaid_onnx.proto import decode_dtype
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType


def zero(type_: TensorType) -> Expr:
    """Return the 0-d zero of a tensor's dtype; for strings, the empty string."""
    dtype = type_.dtype
    return constant(np.asarray("", object) if dtype.kind == "string" else np.zeros((), dtype.numpy))


def integers(node: Node, attribute: str, index: int) -> tuple[int, ...] | None:
    """Return integers that are an attribute in old opsets and a static input in new opsets; None if omitted."""
    if node.optional(index) is not None:
        return tuple(int(value) for value in node.require_static(index).reshape(-1))
    values = node.attrs.get(attribute)
    return None if values is None else tuple(values)


def resolve_axes(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Resolve axes that may be negative. Raises `ModelImportError` for an axis that is out of range or occurs twice."""
    resolved = tuple(node.axis(axis, rank) for axis in axes)
    if len(set(resolved)) != len(resolved):
        raise node.error(f"axes must be unique, got {tuple(axes)}")
    return resolved


# --- shapes -----------------------------------------------------------------------------------------------------------


def _reshape(node: Node) -> Expr:
    x = node.input(0)
    old = expr_type(x)
    entries = tuple(node.attrs["shape"]) if node.opset < 5 else node.entries(1)
    dims = [node.scope.binder.bound_dim(entry) for entry in entries]
    shape: list[Dim] = []
    inferred_axis: int | None = None
    for axis, dim in enumerate(dims):
        if dim is None:
            return _reshape_computed(node, dims)
        if dim == 0 and not node.attrs.get("allowzero", 0):
            if axis >= old.rank:
                raise node.error(f"a 0 in the new shape copies a dimension, so its axis must be < {old.rank}, got {axis}")
            dim = old.shape[axis]
        elif isinstance(dim, int) and dim < 0:
            if dim != -1 or inferred_axis is not None:
                raise node.error(f"the new shape must have at most one -1 and no other negative dimension, got {tuple(dims)}")
            inferred_axis = axis
        elif not node.attrs.get("allowzero", 0):
            dim = _or_copied(dim, old.shape, axis)
        shape.append(dim)
    if inferred_axis is not None:
        shape[inferred_axis] = quotient(old.shape, tuple(dim for axis, dim in enumerate(shape) if axis != inferred_axis))
    return reshape(x, shape=tuple(shape))


def _or_copied(dim: Dim, shape: Sequence[Dim], axis: int) -> Dim:
    """Return element `axis` of a new shape. If `dim` is 0 at run time, the element is the dimension of the old `shape` instead.
    This is not checked if `dim` is computed from the old shape: it is 0 only if the tensor is empty, and the check would become a
    condition on a size of every model that merges or splits axes."""
    if isinstance(dim, int) or axis >= len(shape) or arith.free_vars(dim) <= arith.free_vars(arith.product(tuple(shape))):
        return dim
    return simple(arith.select(arith.compare("==", dim, 0), shape[axis], dim))


_SIZE_MISMATCH = "the new shape must have as many elements as the input"


def _reshape_computed(node: Node, dims: Sequence[Dim | None]) -> Expr:
    """Convert a Reshape with data-dependent dimensions: 0 and -1 are resolved, and the sizes compared, at run time."""
    x = node.tensor(0)
    shape = integer(node.input(1))
    copies = not node.attrs.get("allowzero", 0)
    copied = tuple(x.shape[axis] if axis < x.rank else 0 for axis in range(len(dims)))
    if copies:
        shape = where(equal(shape, int64(0)), sizes(dims=copied), shape)
    is_inferred = equal(shape, int64(-1))
    fixed_size = reduce_prod(where(is_inferred, int64(1), shape), axes=(0,))
    count = reshape(sizes(dims=(x.size,)), shape=())
    shape = where(is_inferred, div(count, maximum(fixed_size, int64(1))), shape)
    at_most_one_inferred = less_equal(reduce_sum(cast(is_inferred, dtype="int64"), axes=(0,)), int64(1))
    checked = node.asserted(
        logical_and(equal(reduce_prod(shape, axes=(0,)), count), at_most_one_inferred), _SIZE_MISMATCH, node.input(0)
    )
    new_shape: list[Dim] = []
    for axis, dim in enumerate(dims):
        if dim == 0 and copies:
            new_shape.append(copied[axis])
        elif dim is None or (isinstance(dim, int) and dim < 0):
            new_shape.append(node.size(extract_element(shape, axis), f"dimension {axis} of the new shape"))
        else:
            new_shape.append(_or_copied(dim, x.shape, axis) if copies else dim)
    return reshape(checked, shape=tuple(new_shape))


def _flatten(node: Node) -> Expr:
    shape = node.tensor(0).shape
    axis = node.attrs.get("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.error(f"axis must be >= -{len(shape)} and <= {len(shape)}, got {axis}")
    axis = axis if axis >= 0 else axis + len(shape)
    return reshape(node.input(0), shape=(arith.product(shape[:axis]), arith.product(shape[axis:])))


def _squeeze(node: Node) -> Expr:
    shape = node.tensor(0).shape
    x = node.input(0)
    axes = integers(node, "axes", 1)
    with node.relations():
        dropped = require_squeezed(shape, None if axes is None else resolve_axes(node, axes, len(shape)), "Squeeze")
    return reshape(x, shape=tuple(dim for axis, dim in enumerate(shape) if axis not in dropped))


def _unsqueeze(node: Node) -> Expr:
    axes = integers(node, "axes", 1)
    if axes is None:
        raise node.error("expected axes, got none")
    rank = node.rank(0) + len(axes)
    new_axes = resolve_axes(node, axes, rank)
    rest = iter(node.tensor(0).shape)
    return reshape(node.input(0), shape=tuple(1 if axis in new_axes else next(rest) for axis in range(rank)))


def _transpose(node: Node) -> Expr:
    rank = node.rank(0)
    perm = node.attrs.get("perm")
    resolved_perm = tuple(reversed(range(rank))) if perm is None else resolve_axes(node, perm, rank)
    return transpose(node.input(0), perm=resolved_perm)


def _shape(node: Node) -> Expr:
    shape = node.tensor(0).shape
    requested_dims = shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return sizes(dims=requested_dims)


def _size(node: Node) -> Expr:
    return reshape(sizes(dims=(node.tensor(0).size,)), shape=())


def _expand(node: Node) -> Expr:
    with node.relations():
        shape = broadcast_shapes(node.tensor(0).shape, node.sizes(1, "shape"))
    return broadcast_to(node.input(0), shape=shape)


# --- joining and cutting ----------------------------------------------------------------------------------------------


def _concat(node: Node) -> Expr:
    axis = node.axis(node.attrs.get("axis", 1), node.rank(0))
    return concat(*(node.input(index) for index in range(len(node.inputs))), axis=axis)


def _split(node: Node) -> tuple[Expr, ...]:
    shape = node.tensor(0).shape
    axis = node.axis(node.attrs.get("axis", 0), len(shape))
    x, extent, count = node.input(0), shape[axis], len(node.outputs)
    parts: tuple[Dim, ...] | None = node.attrs.get("split")
    if node.optional(1) is not None:
        parts = node.sizes(1, "split")
    if parts is not None and len(parts) != count:
        raise node.error(f"split must have {count} parts, got {tuple(parts)}")
    if parts is None and node.opset >= 18:
        size = arith.ceildiv(extent, count)
        ends: list[Dim] = [simple(arith.minimum(size * number, extent)) for number in range(count + 1)]
        ranges = list(itertools.pairwise(ends))
    else:
        with node.relations():
            if parts is None:
                parts = (require_multiple(extent, count, f"dimension {axis}, which is split into equal parts,"),) * count
            ranges = require_parts(parts, extent, axis)
    return tuple(cut(x, {axis: (begin, end, 1)}) for begin, end in ranges)


def _slice(node: Node) -> Expr:
    shape = node.tensor(0).shape
    starts: tuple[Dim, ...] | None
    ends: tuple[Dim, ...] | None
    if node.opset < 10:
        starts, ends = tuple(node.attrs["starts"]), tuple(node.attrs["ends"])
        axes_argument, steps, count = node.attrs.get("axes"), None, len(starts)
    else:
        starts, ends, count = node.dims(1), node.dims(2), _length(node, 1)
        if any(node.optional(index) is not None and node.static(index) is None for index in (3, 4)):
            return _slice_computed(node, count)
        axes_argument, steps = integers(node, "axes", 3), integers(node, "steps", 4)
    axes = resolve_axes(node, range(count) if axes_argument is None else axes_argument, len(shape))
    steps = (1,) * len(axes) if steps is None else steps
    if not count == len(axes) == len(steps) or 0 in steps:
        raise node.error(f"expected an axis and a step != 0 per start, got {count} starts, axes {axes}, steps {steps}")
    if starts is None or ends is None:
        return dynamic_slice(*(node.input(index) for index in range(3)), axes=axes, strides=steps)
    if len(ends) != count:
        raise node.error(f"expected {count} ends, as many as starts, got {len(ends)}")
    return cut(
        node.input(0),
        {
            axis: normal_range(shape[axis], start, end, step)
            for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
        },
    )


def _slice_computed(node: Node, count: int) -> Expr:
    """Convert a Slice with data-dependent axes or steps. All axes are sliced; an axis that is not in `axes` is kept in full."""
    result, rank = node.input(0), node.rank(0)
    if any(node.optional(index) is not None and _length(node, index) != count for index in range(2, 5)):
        raise node.error(f"expected {count} ends, axes and steps, as many as starts")
    starts, ends, axes, steps = (None if node.optional(index) is None else integer(node.input(index)) for index in range(1, 5))
    assert starts is not None and ends is not None
    resolved_axes = constant(np.arange(count)) if axes is None else axes
    if axes is not None:
        in_range = logical_and(less_equal(int64(-rank), axes), less(axes, int64(rank)))
        result = node.asserted(_conjunction(in_range), f"axes must be >= -{rank} and < {rank}", result)
        resolved_axes = where(less(axes, int64(0)), add(axes, int64(rank)), axes)
    if steps is not None:
        result = node.asserted(_conjunction(logical_not(equal(steps, int64(0)))), "steps must not be 0", result)
    for axis in range(rank):
        is_axis = equal(resolved_axes, int64(axis))
        extent = reshape(sizes(dims=(expr_type(result).shape[axis],)), shape=())

        def select_element(values: Expr | None, default: Expr, is_axis: Expr = is_axis) -> Expr:
            """Return the element for the axis, or the default."""
            if values is None:
                return default
            element = reduce_sum(where(is_axis, values, int64(0)), axes=(0,))
            return where(reduce_max(is_axis, axes=(0,)), element, default)

        step = select_element(steps, int64(1))
        is_backward = less(step, int64(0))
        low, high = where(is_backward, int64(-1), int64(0)), where(is_backward, sub(extent, int64(1)), extent)

        def clamped(position: Expr, least: Expr, extent: Expr = extent, high: Expr = high) -> Expr:
            positive = where(less(position, int64(0)), add(position, extent), position)
            return minimum(maximum(positive, least), high)

        begin, end = clamped(select_element(starts, int64(0)), int64(0)), clamped(select_element(ends, extent), low)
        size = _steps(node, begin, end, step, f"the number of elements along axis {axis}")
        result = take(result, add(mul(iota(shape=(size,)), step), begin), axis=axis)
    return result


def _conjunction(conditions: Expr) -> Expr:
    return reduce_min(conditions, axes=(0,))


def _steps(node: Node, begin: Expr, end: Expr, step: Expr, name: str, check: Expr | None = None) -> Dim:
    """Compute max(ceil((end - begin) / step), 0) of 0-d int64 as a dimension. The step is 0 only if `check` fails."""
    is_backward = less(step, int64(0))
    low, high = where(is_backward, end, begin), where(is_backward, begin, end)
    # Distances of up to 2^64 - 1, and the magnitude of -2^63, are exact as unsigned integers.
    first, last, stride = (bitcast(value, dtype="uint64") for value in (low, high, step))
    unsigned_zero, one = constant(np.uint64(0)), constant(np.uint64(1))
    stride = where(is_backward, sub(unsigned_zero, stride), where(equal(step, int64(0)), one, stride))
    count = add(div(sub(sub(last, first), one), stride), one)
    return node.size(where(less(low, high), bitcast(count, dtype="int64"), int64(0)), name, check)


def _length(node: Node, index: int) -> int:
    """Return the number of elements of an input that must be a vector of static length."""
    shape = node.tensor(index).shape
    if len(shape) != 1 or not isinstance(shape[0], int):
        raise node.error(f"input {index} must be a vector of static length, got {node.tensor(index)!r}")
    return shape[0]


# --- padding and repeating --------------------------------------------------------------------------------------------


def _pad(node: Node) -> Expr:
    x = node.tensor(0)
    mode = node.attrs.get("mode", "constant")
    value = node.optional(2)
    pads: tuple[Dim, ...]
    if node.opset < 11:
        pads = tuple(node.attrs["pads" if node.opset > 1 else "paddings"])
        value = constant(np.asarray(node.attrs.get("value", 0.0), x.dtype.numpy))
    else:
        pads = node.signed(1, "pads")
        axes = integers(node, "axes", 3)
        if axes is not None:
            pads = _full_rank_pads(node, pads, resolve_axes(node, axes, x.rank), x.rank)
    if len(pads) != 2 * x.rank:
        raise node.error(f"pads must have {2 * x.rank} elements for rank {x.rank}, got {len(pads)}")
    if mode != "constant":
        return pad(node.input(0), pads=pads, mode=mode)
    value = zero(x) if value is None else scalar(node, value)
    return pad(node.input(0), value, pads=pads, mode=mode)


def _full_rank_pads(node: Node, pads: tuple[Dim, ...], axes: tuple[int, ...], rank: int) -> tuple[Dim, ...]:
    if len(pads) != 2 * len(axes):
        raise node.error(f"pads must have {2 * len(axes)} elements for {len(axes)} axes, got {len(pads)}")
    full_pads: list[Dim] = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        full_pads[axis] = pads[position]
        full_pads[rank + axis] = pads[len(axes) + position]
    return tuple(full_pads)


def int64(value: int) -> Expr:
    """Make a 0-d int64."""
    return constant(np.int64(value))


def scalar(node: Node, value: Expr) -> Expr:
    """Reshape an input with one value, 0-d or of shape (1,), to 0-d."""
    if not isinstance(value.type, TensorType) or value.type.rank > 1:
        raise node.error(f"expected a tensor of one element, got {value.type!r}")
    return reshape(value, shape=()) if value.type.rank else value


def _center_crop_pad(node: Node) -> Expr:
    x = node.tensor(0)
    axes = resolve_axes(node, node.attrs.get("axes", range(x.rank)), x.rank)
    target_sizes = node.sizes(1, "shape")
    if len(target_sizes) != len(axes):
        raise node.error(f"expected {len(axes)} sizes, one per axis, got {len(target_sizes)}")
    pads: list[Dim] = [0] * (2 * x.rank)
    for axis, size in zip(axes, target_sizes, strict=True):
        difference = arith.add(size, arith.mul(x.shape[axis], -1))
        # The number of elements added or cropped at the start rounds towards zero.
        before = arith.select(arith.compare("<", difference, 0), -(-difference // 2), difference // 2)
        pads[axis] = simple(before)
        pads[x.rank + axis] = simple(difference - before)
    return pad(node.input(0), zero(x), pads=tuple(pads))


def _tile(node: Node) -> Expr:
    rank = node.rank(0)
    repeats = node.sizes(1, "repeats")
    if node.opset < 6:
        axis = node.axis(int(node.require_static(2).item()), rank)
        repeats = (1,) * axis + repeats + (1,) * (rank - 1 - axis)
    return tile(node.input(0), repeats=repeats)


# --- space and depth blocks ------------------------------------------------------------------------------------------


def _depth_to_space(node: Node) -> Expr:
    n, c, h, w = _image(node)
    block = node.attrs["blocksize"]
    depth = simple(arith.floordiv(c, block * block))
    if node.attrs.get("mode", "DCR") == "DCR":
        parts = reshape(node.input(0), shape=(n, block, block, depth, h, w))
        transposed = transpose(parts, perm=(0, 3, 4, 1, 5, 2))
    else:
        parts = reshape(node.input(0), shape=(n, depth, block, block, h, w))
        transposed = transpose(parts, perm=(0, 1, 4, 2, 5, 3))
    return reshape(transposed, shape=(n, depth, arith.product((h, block)), arith.product((w, block))))


def _space_to_depth(node: Node) -> Expr:
    n, c, h, w = _image(node)
    block = node.attrs["blocksize"]
    rows, columns = (simple(arith.floordiv(dim, block)) for dim in (h, w))
    parts = reshape(node.input(0), shape=(n, c, rows, block, columns, block))
    perm = (0, 3, 5, 1, 2, 4) if node.attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    transposed = transpose(parts, perm=perm)
    return reshape(transposed, shape=(n, arith.product((c, block * block)), rows, columns))


def _image(node: Node) -> tuple[Dim, ...]:
    shape = node.tensor(0).shape
    if len(shape) != 4:
        raise node.error(f"the input must be (N, C, H, W), got rank {len(shape)}")
    return shape


# --- generated tensors ------------------------------------------------------------------------------------------------


def _constant_of_shape(node: Node) -> Expr:
    value: Any = node.attrs.get("value")
    scalar = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    return full(constant(scalar), shape=node.sizes(0, "shape"))


def _range(node: Node) -> Expr:
    dtype = node.dtype(0)
    start, limit, delta = (scalar(node, node.input(index)) for index in range(3))
    static_arguments = [node.static(index) for index in range(3)]
    if static_arguments[2] is not None and static_arguments[2].item() == 0:
        raise node.error("delta must not be 0")
    if dtype.is_float and all(value is not None for value in static_arguments):
        first, last, step = (float(value.item()) for value in static_arguments if value is not None)
        return constant(np.arange(first, last, step).astype(dtype.numpy))
    indices = iota(shape=(_range_length(node, start, limit, delta),), axis=0, dtype=dtype.name)
    return add(mul(indices, delta), start)


def _range_length(node: Node, start: Expr, limit: Expr, delta: Expr) -> Dim:
    """Return the number of elements of a range."""
    name, step, check = "the number of elements", node.static(2), None
    if step is None:
        check = node.assertion(logical_not(equal(delta, zero(expr_type(delta)))), "delta must not be 0")
    if expr_type(delta).dtype.is_float:
        first, last, increment = (cast(value, dtype="float64") for value in (start, limit, delta))
        increment = where(
            equal(increment, zero(expr_type(increment))), constant(np.float64(1)), increment
        )  # the division may be evaluated before the check
        return node.size(maximum(cast(ceil(div(sub(last, first), increment)), dtype="int64"), int64(0)), name, check)
    begin, end = node.dims(0), node.dims(1)
    if step is not None and begin is not None and end is not None:
        size = range_size(begin[0], end[0], int(step.item()))
        if size is not None:
            return size
    if begin == (0,) and step is not None and step.item() == 1:
        return node.scope.binder.clamped(integer(node.input(1)), f"{node.name}: {name}", node.span)
    return _steps(node, integer(start), integer(limit), integer(delta), name, check)


def _index_grids(shape: tuple[Dim, ...], offset: Expr) -> tuple[Expr, Expr]:
    """Return two int64 tensors: the row index plus `offset`, and the column index, of every element of a matrix."""
    rows = add(iota(shape=shape, axis=0), offset)
    return rows, iota(shape=shape, axis=1)


def _trilu(node: Node) -> Expr:
    x = node.tensor(0)
    if x.rank < 2:
        raise node.error(f"the input must have rank >= 2, got {x.rank}")
    offset = zero(TensorType((), "int64")) if node.optional(1) is None else scalar(node, node.input(1))
    rows, columns = _index_grids(x.shape[-2:], offset)
    ends = (rows, columns) if node.attrs.get("upper", 1) else (columns, rows)
    return where(less_equal(*ends), node.input(0), zero(x))


def _eye_like(node: Node) -> Expr:
    shape = node.tensor(0).shape
    if len(shape) != 2:
        raise node.error(f"the input must be a matrix, got rank {len(shape)}")
    dtype = decode_dtype(node.attrs["dtype"]) if "dtype" in node.attrs else node.dtype(0)
    offset = constant(np.asarray(node.attrs.get("k", 0), np.int64))
    return cast(equal(*_index_grids(shape, offset)), dtype=dtype.name)


CONVERTERS: Mapping[str, Converter] = {
    "CenterCropPad": _center_crop_pad,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
