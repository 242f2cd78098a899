"""Deformable convolution and col2im."""

from __future__ import annotations

import itertools

import numpy as np

from inlaid.graph.conditions import require_at_least, require_equal, require_multiple, require_shape
from inlaid.graph.ir import Expr
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.compose import cast_to, count, expr_type, join, scalar, widened
from inlaid.ops.convolution import conv, grouped
from inlaid.ops.define import FLOAT, NUMERIC, Array, as_array, common_dtype, loop_nest, make_family, quiet, tensor_type, widen_array
from inlaid.ops.elementwise import add, mul, sub
from inlaid.ops.product import accumulator_dtype
from inlaid.ops.sample import grid_sample
from inlaid.ops.shape import broadcast_to, iota, reshape, simple, transpose
from inlaid.ops.window import WindowAttrs, WindowAxis, window_axes, window_shape
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, from_numpy


@dataclass(frozen=True)
class DeformConvAttrs(WindowAttrs):
    """`strides`, `dilations`, `pads`, `groups`: as in `conv`. `offset_groups`: the number of groups of input channels that share
    offsets."""

    groups: int = 1
    offset_groups: int = 1


def _infer_deform_conv(attrs: DeformConvAttrs, x: Type, w: Type, offset: Type, mask: Type | None = None) -> Type:
    data, weights, offset_type = (tensor_type(type_, FLOAT, what) for type_, what in ((x, "x"), (w, "w"), (offset, "the offset")))
    common_dtype(data, weights, offset_type)
    if data.rank < 3 or weights.rank != data.rank or offset_type.rank != data.rank:
        raise ValueError(f"x, w and offset must have one rank >= 3, got {data.rank}, {weights.rank} and {offset_type.rank}")
    kernel = weights.shape[2:]
    for number, extent in enumerate(data.shape[2:], 2):
        require_at_least(extent, 1, f"dimension {number} of the data")
    spatial = window_shape(data.shape[2:], window_axes(attrs, kernel))
    taps = arith.product(kernel)
    input_channels, output_channels = data.shape[1], weights.shape[0]
    require_equal(weights.shape[1], grouped(input_channels, attrs.groups, "input"), "the number of input channels per group of w")
    grouped(output_channels, attrs.groups, "output")
    grouped(input_channels, attrs.offset_groups, "input")
    require_shape(offset_type.shape, (data.shape[0], attrs.offset_groups * taps * len(kernel), *spatial), "the offset")
    if mask is not None:
        mask_type = tensor_type(mask, FLOAT, "the mask")
        common_dtype(data, mask_type)
        require_shape(mask_type.shape, (data.shape[0], attrs.offset_groups * taps, *spatial), "the mask")
    return TensorType((data.shape[0], output_channels, *spatial), data.dtype)


@quiet
def _reference_deform_conv(attrs: DeformConvAttrs, x: Array, w: Array, offset: Array, mask: Array | None = None) -> Array:
    axes = window_axes(attrs, w.shape[2:])
    data, weights = widen_array(x), widen_array(w)
    kernel, spatial, rank = w.shape[2:], offset.shape[2:], len(axes)
    group_channels = x.shape[1] // attrs.offset_groups
    offsets = widen_array(offset).reshape(len(x), attrs.offset_groups, *kernel, rank, *spatial)
    # Shape of `samples`: (N, offset groups, taps..., output positions..., channels of a group).
    coordinates = []
    for number, axis in enumerate(axes):
        base = np.arange(spatial[number]) * axis.stride - arith.evaluate(axis.before, {})
        tap = np.arange(kernel[number]) * axis.dilation
        grid = tap.reshape([-1 if k == number else 1 for k in range(2 * rank)]) + base.reshape(
            [-1 if k == rank + number else 1 for k in range(2 * rank)]
        )
        coordinates.append(grid.astype(data.dtype) + np.take(offsets, number, 2 + rank))
    images = np.arange(len(x)).reshape(-1, *(1,) * (2 * rank + 1))
    grouped_data = np.moveaxis(data.reshape(len(x), attrs.offset_groups, group_channels, *x.shape[2:]), 2, -1)
    groups = np.arange(attrs.offset_groups).reshape(1, -1, *(1,) * (2 * rank))
    samples = np.zeros((*offsets.shape[:2], *kernel, *spatial, group_channels), data.dtype)
    for corner in itertools.product((0, 1), repeat=rank):
        weight = np.ones_like(coordinates[0])
        inside = np.ones(weight.shape, bool)
        indices = []
        for coordinate, corner_offset, extent in zip(coordinates, corner, x.shape[2:], strict=True):
            low = np.floor(coordinate)
            weight = weight * (coordinate - low if corner_offset else 1 - (coordinate - low))
            index = np.nan_to_num(low, posinf=2.0**40, neginf=-(2.0**40)).astype(np.int64) + corner_offset
            inside &= (index >= 0) & (index < extent)
            indices.append(np.clip(index, 0, extent - 1))
        value = grouped_data[(images, groups, *indices)]
        samples += np.where(inside[..., None], value, 0) * weight[..., None]
    if mask is not None:
        samples *= widen_array(mask).reshape(len(x), attrs.offset_groups, *kernel, *spatial, 1)
    columns = np.moveaxis(samples, -1, 2).reshape(len(x), attrs.groups, w.shape[1], int(np.prod(kernel)), *spatial)
    grouped_weights = weights.reshape(attrs.groups, w.shape[0] // attrs.groups, w.shape[1], int(np.prod(kernel)))
    total = np.einsum("ngck...,gock->ngo...", columns, grouped_weights)
    return as_array(total.reshape(len(x), w.shape[0], *spatial), from_numpy(x.dtype))


def _decompose_deform_conv(attrs: DeformConvAttrs, args: tuple[Expr, ...]) -> Expr:
    """Sample the data at all taps of each output position. The samples of a position are adjacent along the last dimension; a
    convolution sums them."""
    x, w, offset, *masks = map(widened, args)
    data, weights, spatial = expr_type(x), expr_type(w), expr_type(offset).shape[2:]
    kernel, rank, dtype = weights.shape[2:], len(spatial), expr_type(offset).dtype
    offset_groups, taps = attrs.offset_groups, arith.product(kernel)
    batch, columns = (simple(arith.wrap(dim) * times) for dim, times in ((data.shape[0], offset_groups), (spatial[-1], taps)))

    def taps_last(tensor: Expr, *components: Dim) -> Expr:
        """Reshape (N, offset groups * taps * components, positions...) to (N, offset groups, positions..., taps, components)."""
        separated = reshape(tensor, shape=(data.shape[0], offset_groups, taps, *components, *spatial))
        first = 3 + len(components)
        return transpose(separated, perm=(0, 1, *range(first, first + rank), *range(2, first)))

    coordinates = add(taps_last(offset, rank), _tap_coordinates(window_axes(attrs, kernel), kernel, spatial, dtype))
    samples = grid_sample(
        reshape(x, shape=(batch, simple(arith.wrap(data.shape[1]) // offset_groups), *data.shape[2:])),
        reshape(coordinates, shape=(batch, *spatial[:-1], columns, rank)),
        elements=True,
    )
    for mask in masks:
        samples = mul(samples, reshape(taps_last(mask), shape=(batch, 1, *spatial[:-1], columns)))
    # Windows are adjacent; if their width is symbolic and so cannot be a stride, each window has a separate row.
    leading_ones, has_static_taps = (1,) * (rank - 1), isinstance(taps, int)
    image, window = (
        ((*spatial[:-1], columns), (*leading_ones, taps)) if has_static_taps else ((arith.product(spatial), taps), (1, taps))
    )
    result = conv(
        reshape(samples, shape=(*data.shape[:2], *image)),
        reshape(w, shape=(*weights.shape[:2], *window)),
        strides=window if has_static_taps else (),
        groups=attrs.groups,
    )
    return cast_to(reshape(result, shape=(data.shape[0], weights.shape[0], *spatial)), expr_type(args[0]).dtype)


def _tap_coordinates(axes: tuple[WindowAxis, ...], kernel: tuple[Dim, ...], spatial: tuple[Dim, ...], dtype: DType) -> Expr:
    """Return the coordinates of the taps without offsets, in elements of the data: (positions..., taps, dimensions)."""
    rank, coordinates = len(axes), []
    for number, axis in enumerate(axes):

        def index_along(size: Dim, dim: int, dtype: str = str(dtype)) -> Expr:
            return iota(shape=(*(1,) * dim, size, *(1,) * (2 * rank - dim)), axis=dim, dtype=dtype)

        coordinate = mul(index_along(spatial[number], number), scalar(axis.stride, dtype))
        coordinate = add(coordinate, mul(index_along(kernel[number], rank + number), scalar(axis.dilation, dtype)))
        coordinates.append(broadcast_to(sub(coordinate, count([axis.before], dtype)), shape=(*spatial, *kernel, 1)))
    return reshape(join(coordinates, 2 * rank), shape=(*spatial, arith.product(kernel), rank))


@dataclass(frozen=True)
class Col2ImAttrs(WindowAttrs):
    """`strides`, `dilations`, `pads`: as in `conv`. `shape`: the spatial shape of the images. `kernel`: the spatial shape of the
    windows."""

    shape: tuple[Dim, ...] = ()
    kernel: tuple[int, ...] = ()


def _windows(attrs: Col2ImAttrs) -> tuple[tuple[WindowAxis, ...], tuple[Dim, ...]]:
    axes = window_axes(attrs, attrs.kernel)
    return axes, window_shape(attrs.shape, axes)


def _infer_col2im(attrs: Col2ImAttrs, x: Type) -> Type:
    data = tensor_type(x, NUMERIC)
    if data.rank != 3 or len(attrs.shape) != len(attrs.kernel) or not attrs.kernel:
        raise ValueError(
            f"x must be (N, C * taps, windows), shape and kernel of equal length, got {data!r}, {attrs.shape}, {attrs.kernel}"
        )
    _, counts = _windows(attrs)
    channels = require_multiple(data.shape[1], arith.product(attrs.kernel), "dimension 1 of x, of channels and taps,")
    require_equal(data.shape[2], arith.product(counts), "dimension 2 of x, the number of windows,")
    return TensorType((data.shape[0], channels, *attrs.shape), data.dtype)


@quiet
def _reference_col2im(attrs: Col2ImAttrs, x: Array) -> Array:
    axes, counts = _windows(attrs)
    sizes = [arith.evaluate(size, {}) for size in attrs.shape]
    befores = [arith.evaluate(axis.before, {}) for axis in axes]
    window_counts = [arith.evaluate(count, {}) for count in counts]
    dtype = from_numpy(x.dtype)
    taps = int(np.prod(attrs.kernel))
    columns = x.astype(accumulator_dtype(dtype).numpy, copy=False).reshape(
        len(x), x.shape[1] // taps, *attrs.kernel, *window_counts
    )
    padded = [size + before + arith.evaluate(axis.after, {}) for size, before, axis in zip(sizes, befores, axes, strict=True)]
    total = np.zeros((*columns.shape[:2], *padded), columns.dtype)
    all_channels = (slice(None),) * 2
    for tap in np.ndindex(*attrs.kernel):
        starts = [k * axis.dilation for k, axis in zip(tap, axes, strict=True)]
        target = tuple(
            slice(start, start + (count - 1) * axis.stride + 1, axis.stride)
            for start, count, axis in zip(starts, window_counts, axes, strict=True)
        )
        total[all_channels + target] += columns[all_channels + tap]
    crop = tuple(slice(before, before + size) for before, size in zip(befores, sizes, strict=True))
    return as_array(total[all_channels + crop], dtype)


def _compute_col2im(attrs: Col2ImAttrs, x: te.Tensor) -> te.Tensor:
    """Add the elements of all windows to their places in the image, tap by tap; taps outside of the image are skipped."""
    axes, counts = _windows(attrs)
    acc = accumulator_dtype(x.dtype)
    taps = arith.product(attrs.kernel)

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with loop_nest(b, (x.shape[0], x.shape[1] // taps), ir.ForKind.PARALLEL) as (n, c):
            needs_accumulator = acc is not x.dtype
            total, leading_index = (b.alloc(attrs.shape, acc, "total"), ()) if needs_accumulator else (outputs[0], (n, c))
            with b.loops(attrs.shape) as position:
                b.store(total, (*leading_index, *position), te.const(0, acc))
            with b.loops(attrs.kernel) as tap:
                row: Dim = c
                firsts: list[Dim] = []
                extents: list[Dim] = []
                for k, axis, size, count in zip(tap, axes, attrs.shape, counts, strict=True):
                    row = row * axis.kernel + k
                    offset = arith.wrap(axis.before) - k * axis.dilation
                    first = arith.maximum(arith.ceildiv(offset, axis.stride), 0)
                    end = arith.minimum((offset + size - 1) // axis.stride + 1, count)
                    firsts.append(first)
                    extents.append(arith.maximum(end - first, 0))
                with b.loops(extents) as steps:
                    column: Dim = 0
                    target_index: list[Dim] = [*leading_index]
                    for index, begin, k, axis, count in zip(steps, firsts, tap, axes, counts, strict=True):
                        window = index + begin
                        column = column * count + window
                        target_index.append(window * axis.stride + k * axis.dilation - axis.before)
                    b.store(total, tuple(target_index), total[tuple(target_index)] + te.cast(inputs[0][n, row, column], acc))
            if needs_accumulator:
                with b.loops(attrs.shape) as position:
                    b.store(outputs[0], (n, c, *position), te.cast(total[position], x.dtype))

    return te.extern([((x.shape[0], x.shape[1] // taps, *attrs.shape), x.dtype)], [x], body, "col2im")[0]


deform_conv = Operator(
    "deform_conv",
    _infer_deform_conv,
    DeformConvAttrs,
    reference=_reference_deform_conv,
    decompose=_decompose_deform_conv,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(3, 4),
    inputs=("x", "w", "offset", "mask"),
    doc="""Deformable convolution (Zhu et al., 2019): each tap reads x, interpolated, at an offset.
Operands, of one float dtype: x (N, C, spatial...); w (O, C / groups, kernel...); offset (N, offset_groups * taps * dimensions,
output spatial...), in elements; mask? (N, offset_groups * taps, output spatial...), which scales the taps. Result: (N, O, output
spatial...). Outside of its bounds, x is read as 0.""",
)

col2im = Operator(
    "col2im",
    _infer_col2im,
    Col2ImAttrs,
    reference=_reference_col2im,
    compute=_compute_col2im,
    inputs=("x",),
    doc="""Sum overlapping windows into the images that they were extracted from.
Operand: x (N, C * taps, number of windows), numeric. Result: (N, C, *shape), dtype of x.""",
)

OPERATORS = make_family(deform_conv, col2im)
