"""Operators that move, repeat, cut and make elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid import arith
from inlaid.arith import Dim
from inlaid.frontends.onnx.node import Converter, Node
from inlaid.frontends.onnx.proto import dtype_of
from inlaid.frontends.shapes import cut, normal_range, quotient
from inlaid.graph.ir import Expr, constant
from inlaid.ops.conversion import cast
from inlaid.ops.define import broadcast_shapes
from inlaid.ops.elementwise import add, equal, less_equal, mul, where
from inlaid.ops.select import dynamic_slice
from inlaid.ops.shape import broadcast_to, concat, full, iota, pad, reshape, simple, sizes, tile, transpose
from inlaid.types import TensorType


def zero(type_: TensorType) -> Expr:
    """The 0-d zero of a tensor's element type; of strings the empty one."""
    of = type_.dtype
    return constant(np.asarray("", object) if of.kind == "string" else np.zeros((), of.numpy))


def integers(node: Node, attribute: str, index: int) -> tuple[int, ...] | None:
    """Integers that old opsets give as an attribute and new ones as an input, which must be known; None when left out."""
    if node.optional(index) is not None:
        return tuple(int(value) for value in node.require_static(index).reshape(-1))
    found = node.attrs.get(attribute)
    return None if found is None else tuple(found)


def known_axes(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes made positive. Raises `ModelImportError` for one out of range or given twice."""
    found = tuple(node.axis(axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise node.error(f"an axis occurs twice in {tuple(axes)}")
    return found


# --- shapes -----------------------------------------------------------------------------------------------------------


def _reshape(node: Node) -> Expr:
    given: tuple[Dim, ...] = tuple(node.attrs["shape"]) if node.opset < 5 else node.require_dims(1)
    x = node.tensor(0)
    shape = list(given)
    free: int | None = None
    for axis, dim in enumerate(given):
        if dim == 0 and not node.attrs.get("allowzero", 0):
            if axis >= x.rank:
                raise node.error(f"dimension {axis} of the new shape is copied, but the input has rank {x.rank}")
            shape[axis] = x.shape[axis]
        elif isinstance(dim, int) and dim < 0:
            if dim != -1 or free is not None:
                raise node.error(f"the new shape {given} has more than one unknown dimension, or a negative one")
            free = axis
    if free is not None:
        shape[free] = quotient(x.shape, tuple(dim for axis, dim in enumerate(shape) if axis != free))
    return reshape(node.input(0), shape=tuple(shape))


def _flatten(node: Node) -> Expr:
    shape = node.tensor(0).shape
    axis = node.attrs.get("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.error(f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis if axis >= 0 else axis + len(shape)
    return reshape(node.input(0), shape=(arith.product(shape[:axis]), arith.product(shape[axis:])))


def _squeeze(node: Node) -> Expr:
    shape = node.tensor(0).shape
    axes = integers(node, "axes", 1)
    dropped = known_axes(node, axes, len(shape)) if axes is not None else tuple(k for k, dim in enumerate(shape) if dim == 1)
    for axis in dropped:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise node.error(f"axis {axis} has {shape[axis]} elements and cannot be dropped")
    kept = tuple(dim for axis, dim in enumerate(shape) if axis not in dropped)
    return reshape(node.input(0), shape=kept)


def _unsqueeze(node: Node) -> Expr:
    axes = integers(node, "axes", 1)
    if axes is None:
        raise node.error("the axes are missing")
    rank = node.rank(0) + len(axes)
    added = known_axes(node, axes, rank)
    rest = iter(node.tensor(0).shape)
    return reshape(node.input(0), shape=tuple(1 if axis in added else next(rest) for axis in range(rank)))


def _transpose(node: Node) -> Expr:
    rank = node.rank(0)
    perm = node.attrs.get("perm")
    chosen = tuple(reversed(range(rank))) if perm is None else known_axes(node, perm, rank)
    return transpose(node.input(0), perm=chosen)


def _shape(node: Node) -> Expr:
    shape = node.tensor(0).shape
    chosen = shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return sizes(dims=chosen)


def _size(node: Node) -> Expr:
    return reshape(sizes(dims=(node.tensor(0).size,)), shape=())


def _expand(node: Node) -> Expr:
    try:
        shape = broadcast_shapes(node.tensor(0).shape, node.require_dims(1))
    except ValueError as error:
        raise node.error(str(error)) from error
    return broadcast_to(node.input(0), shape=shape)


# --- joining and cutting ----------------------------------------------------------------------------------------------


def _concat(node: Node) -> Expr:
    axis = node.axis(node.attrs.get("axis", 1), node.rank(0))
    return concat(*(node.input(index) for index in range(len(node.inputs))), axis=axis)


def _split(node: Node) -> tuple[Expr, ...]:
    shape = node.tensor(0).shape
    axis = node.axis(node.attrs.get("axis", 0), len(shape))
    extent, count = shape[axis], len(node.outputs)
    parts: tuple[Dim, ...] | None = node.attrs.get("split")
    if node.optional(1) is not None:
        parts = node.require_dims(1)
    ends: list[Dim]
    if parts is None:
        if node.opset < 18 and isinstance(extent, int) and extent % count:
            raise node.error(f"{extent} elements cannot be split into {count} equal parts")
        if node.opset < 18:  # equal parts; a symbolic extent is taken to be divisible
            ends = [simple(arith.floordiv(extent, count) * (part + 1)) for part in range(count)]
        else:
            ends = [simple(arith.minimum(arith.ceildiv(extent, count) * (part + 1), extent)) for part in range(count)]
    else:
        if len(parts) != count or (all(isinstance(dim, int) for dim in (*parts, extent)) and sum(parts) != extent):
            raise node.error(f"the split {tuple(parts)} does not divide {extent} elements into {count} parts")
        ends = [0]
        for size in parts:
            ends.append(simple(arith.add(ends[-1], size)))
        ends = ends[1:]
    starts = [0, *ends[:-1]]
    return tuple(cut(node.input(0), {axis: (start, end, 1)}) for start, end in zip(starts, ends, strict=True))


def _slice(node: Node) -> Expr:
    shape = node.tensor(0).shape
    starts: tuple[Dim, ...] | None
    ends: tuple[Dim, ...] | None
    if node.opset < 10:
        starts, ends = tuple(node.attrs["starts"]), tuple(node.attrs["ends"])
        given, steps, count = node.attrs.get("axes"), None, len(starts)
    else:
        starts, ends, count = node.dims(1), node.dims(2), _length(node, 1)
        given, steps = integers(node, "axes", 3), integers(node, "steps", 4)
    axes = known_axes(node, range(count) if given is None else given, len(shape))
    steps = (1,) * len(axes) if steps is None else steps
    if not count == len(axes) == len(steps) or 0 in steps:
        raise node.error(f"{count} starts, axes {axes} and steps {steps} do not go together")
    if starts is None or ends is None:
        return dynamic_slice(*(node.input(index) for index in range(3)), axes=axes, strides=steps)
    if len(ends) != count:
        raise node.error(f"{count} starts and {len(ends)} ends")
    return cut(
        node.input(0),
        {
            axis: normal_range(shape[axis], start, end, step)
            for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
        },
    )


def _length(node: Node, index: int) -> int:
    """The number of elements of an input that must be a vector of known length."""
    shape = node.tensor(index).shape
    if len(shape) != 1 or not isinstance(shape[0], int):
        raise node.error(f"input {index} must be a vector of known length, not {node.tensor(index)!r}")
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
        pads = node.require_dims(1)
        axes = integers(node, "axes", 3)
        if axes is not None:
            pads = _pads_of_all(node, pads, known_axes(node, axes, x.rank), x.rank)
    if len(pads) != 2 * x.rank:
        raise node.error(f"{len(pads)} pads for {x.rank} axes")
    if mode != "constant":
        return pad(node.input(0), pads=pads, mode=mode)
    value = zero(x) if value is None else scalar(node, value)
    return pad(node.input(0), value, pads=pads, mode=mode)


def _pads_of_all(node: Node, pads: tuple[Dim, ...], axes: tuple[int, ...], rank: int) -> tuple[Dim, ...]:
    if len(pads) != 2 * len(axes):
        raise node.error(f"{len(pads)} pads for {len(axes)} axes")
    every: list[Dim] = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        every[axis] = pads[position]
        every[rank + axis] = pads[len(axes) + position]
    return tuple(every)


def scalar(node: Node, value: Expr) -> Expr:
    """An input that holds one value, 0-d or of shape (1,), as 0-d."""
    if not isinstance(value.type, TensorType) or value.type.rank > 1:
        raise node.error(f"{value.type!r} is not a single value")
    return reshape(value, shape=()) if value.type.rank else value


def _center_crop_pad(node: Node) -> Expr:
    x = node.tensor(0)
    axes = known_axes(node, node.attrs.get("axes", range(x.rank)), x.rank)
    wanted = node.require_dims(1)
    if len(wanted) != len(axes):
        raise node.error(f"{len(wanted)} sizes for {len(axes)} axes")
    pads: list[Dim] = [0] * (2 * x.rank)
    for axis, size in zip(axes, wanted, strict=True):
        more = arith.add(size, arith.mul(x.shape[axis], -1))
        # Both halves round towards zero: what is added before, or taken away before.
        before = arith.select(arith.compare("<", more, 0), -(-more // 2), more // 2)
        pads[axis] = simple(before)
        pads[x.rank + axis] = simple(more - before)
    return pad(node.input(0), zero(x), pads=tuple(pads))


def _tile(node: Node) -> Expr:
    rank = node.rank(0)
    repeats = node.require_dims(1)
    if node.opset < 6:
        axis = node.axis(int(node.require_static(2).item()), rank)
        repeats = (1,) * axis + repeats + (1,) * (rank - 1 - axis)
    return tile(node.input(0), repeats=repeats)


# --- blocks of space and depth ----------------------------------------------------------------------------------------


def _depth_to_space(node: Node) -> Expr:
    n, c, h, w = _image(node)
    block = node.attrs["blocksize"]
    depth = simple(arith.floordiv(c, block * block))
    if node.attrs.get("mode", "DCR") == "DCR":
        parts = reshape(node.input(0), shape=(n, block, block, depth, h, w))
        moved = transpose(parts, perm=(0, 3, 4, 1, 5, 2))
    else:
        parts = reshape(node.input(0), shape=(n, depth, block, block, h, w))
        moved = transpose(parts, perm=(0, 1, 4, 2, 5, 3))
    return reshape(moved, shape=(n, depth, arith.product((h, block)), arith.product((w, block))))


def _space_to_depth(node: Node) -> Expr:
    n, c, h, w = _image(node)
    block = node.attrs["blocksize"]
    rows, columns = (simple(arith.floordiv(dim, block)) for dim in (h, w))
    parts = reshape(node.input(0), shape=(n, c, rows, block, columns, block))
    perm = (0, 3, 5, 1, 2, 4) if node.attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = transpose(parts, perm=perm)
    return reshape(moved, shape=(n, arith.product((c, block * block)), rows, columns))


def _image(node: Node) -> tuple[Dim, ...]:
    shape = node.tensor(0).shape
    if len(shape) != 4:
        raise node.error(f"the input has rank {len(shape)}, but must be N C H W")
    return shape


# --- tensors from nothing ---------------------------------------------------------------------------------------------


def _constant_of_shape(node: Node) -> Expr:
    value: Any = node.attrs.get("value")
    scalar = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    return full(constant(scalar), shape=node.require_dims(0))


def _range(node: Node) -> Expr:
    of = node.dtype(0)
    start, delta = scalar(node, node.input(0)), scalar(node, node.input(2))
    if of.is_float:
        first, last, step = (float(node.require_static(index).item()) for index in range(3))
        if step == 0:
            raise node.error("a delta of 0")
        return constant(np.arange(first, last, step).astype(of.numpy))
    step = int(node.require_static(2).item())
    if step == 0:
        raise node.error("a delta of 0")
    (begin,), (end,) = node.require_dims(0), node.require_dims(1)
    distance = arith.add(end, arith.mul(begin, -1)) if step > 0 else arith.add(begin, arith.mul(end, -1))
    count = simple(arith.maximum(0, arith.ceildiv(distance, abs(step))))
    counted = iota(shape=(count,), axis=0, dtype=of.name)
    return add(mul(counted, delta), start)


def _diagonal(shape: tuple[Dim, ...], offset: Expr) -> tuple[Expr, Expr]:
    """The row index plus `offset`, and the column index, of every element of a matrix; int64."""
    rows = add(iota(shape=shape, axis=0), offset)
    return rows, iota(shape=shape, axis=1)


def _trilu(node: Node) -> Expr:
    x = node.tensor(0)
    if x.rank < 2:
        raise node.error(f"the input has rank {x.rank}, but must hold matrices")
    offset = zero(TensorType((), "int64")) if node.optional(1) is None else scalar(node, node.input(1))
    rows, columns = _diagonal(x.shape[-2:], offset)
    ends = (rows, columns) if node.attrs.get("upper", 1) else (columns, rows)
    return where(less_equal(*ends), node.input(0), zero(x))


def _eye_like(node: Node) -> Expr:
    shape = node.tensor(0).shape
    if len(shape) != 2:
        raise node.error(f"the input has rank {len(shape)}, but must be a matrix")
    of = dtype_of(node.attrs["dtype"]) if "dtype" in node.attrs else node.dtype(0)
    offset = constant(np.asarray(node.attrs.get("k", 0), np.int64))
    return cast(equal(*_diagonal(shape, offset)), dtype=of.name)


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
