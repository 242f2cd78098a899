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
    data, weights, moves = (tensor_type(type_, FLOAT, what) for type_, what in ((x, "x"), (w, "w"), (offset, "the offset")))
    common_dtype(data, weights, moves)
    if data.rank < 3 or weights.rank != data.rank or moves.rank != data.rank:
        raise ValueError(f"x, w and offset must have one rank >= 3, got {data.rank}, {weights.rank} and {moves.rank}")
    kernel = weights.shape[2:]
    for number, extent in enumerate(data.shape[2:], 2):
        require_at_least(extent, 1, f"dimension {number} of the data")
    spatial = window_shape(data.shape[2:], window_axes(attrs, kernel))
    taps = arith.product(kernel)
    inputs, outputs = data.shape[1], weights.shape[0]
    require_equal(weights.shape[1], grouped(inputs, attrs.groups, "input"), "the number of input channels per group of w")
    grouped(outputs, attrs.groups, "output")
    grouped(inputs, attrs.offset_groups, "input")
    require_shape(moves.shape, (data.shape[0], attrs.offset_groups * taps * len(kernel), *spatial), "the offset")
    if mask is not None:
        factors = tensor_type(mask, FLOAT, "the mask")
        common_dtype(data, factors)
        require_shape(factors.shape, (data.shape[0], attrs.offset_groups * taps, *spatial), "the mask")
    return TensorType((data.shape[0], outputs, *spatial), data.dtype)


@quiet
def _reference_deform_conv(attrs: DeformConvAttrs, x: Array, w: Array, offset: Array, mask: Array | None = None) -> Array:
    axes = window_axes(attrs, w.shape[2:])
    data, weights = widen_array(x), widen_array(w)
    kernel, spatial, rank = w.shape[2:], offset.shape[2:], len(axes)
    share = x.shape[1] // attrs.offset_groups
    moves = widen_array(offset).reshape(len(x), attrs.offset_groups, *kernel, rank, *spatial)
    # Shape of `samples`: (N, offset groups, taps..., output positions..., channels of a group).
    coordinates = []
    for number, axis in enumerate(axes):
        base = np.arange(spatial[number]) * axis.stride - arith.evaluate(axis.before, {})
        tap = np.arange(kernel[number]) * axis.dilation
        grid = tap.reshape([-1 if k == number else 1 for k in range(2 * rank)]) + base.reshape(
            [-1 if k == rank + number else 1 for k in range(2 * rank)]
        )
        coordinates.append(grid.astype(data.dtype) + np.take(moves, number, 2 + rank))
    images = np.arange(len(x)).reshape(-1, *(1,) * (2 * rank + 1))
    grouped = np.moveaxis(data.reshape(len(x), attrs.offset_groups, share, *x.shape[2:]), 2, -1)
    groups = np.arange(attrs.offset_groups).reshape(1, -1, *(1,) * (2 * rank))
    samples = np.zeros((*moves.shape[:2], *kernel, *spatial, share), data.dtype)
    for corner in itertools.product((0, 1), repeat=rank):
        weight = np.ones_like(coordinates[0])
        inside = np.ones(weight.shape, bool)
        indices = []
        for at, high, extent in zip(coordinates, corner, x.shape[2:], strict=True):
            low = np.floor(at)
            weight = weight * (at - low if high else 1 - (at - low))
            index = np.nan_to_num(low, posinf=2.0**40, neginf=-(2.0**40)).astype(np.int64) + high
            inside &= (index >= 0) & (index < extent)
            indices.append(np.clip(index, 0, extent - 1))
        value = grouped[(images, groups, *indices)]
        samples += np.where(inside[..., None], value, 0) * weight[..., None]
    if mask is not None:
        samples *= widen_array(mask).reshape(len(x), attrs.offset_groups, *kernel, *spatial, 1)
    columns = np.moveaxis(samples, -1, 2).reshape(len(x), attrs.groups, w.shape[1], int(np.prod(kernel)), *spatial)
    grouped_weights = weights.reshape(attrs.groups, w.shape[0] // attrs.groups, w.shape[1], int(np.prod(kernel)))
    total = np.einsum("ngck...,gock->ngo...", columns, grouped_weights)
    return as_array(total.reshape(len(x), w.shape[0], *spatial), from_numpy(x.dtype))


def _decompose_deform_conv(attrs: DeformConvAttrs, args: tuple[Expr, ...]) -> Expr:
    """Sample the data at all taps of each output position, adjacent along the last dimension, and convolve the samples."""
    x, w, offset, *masks = map(widened, args)
    data, weights, spatial = expr_type(x), expr_type(w), expr_type(offset).shape[2:]
    kernel, rank, dtype = weights.shape[2:], len(spatial), expr_type(offset).dtype
    parts, taps = attrs.offset_groups, arith.product(kernel)
    batch, columns = (simple(arith.wrap(dim) * times) for dim, times in ((data.shape[0], parts), (spatial[-1], taps)))

    def taps_last(tensor: Expr, *more: Dim) -> Expr:
        """Reshape (N, offset groups * taps * `more`, positions...) to (N, offset groups, positions..., taps, `more`)."""
        apart = reshape(tensor, shape=(data.shape[0], parts, taps, *more, *spatial))
        first = 3 + len(more)
        return transpose(apart, perm=(0, 1, *range(first, first + rank), *range(2, first)))

    places = add(taps_last(offset, rank), _places(window_axes(attrs, kernel), kernel, spatial, dtype))
    samples = grid_sample(
        reshape(x, shape=(batch, simple(arith.wrap(data.shape[1]) // parts), *data.shape[2:])),
        reshape(places, shape=(batch, *spatial[:-1], columns, rank)),
        elements=True,
    )
    for mask in masks:
        samples = mul(samples, reshape(taps_last(mask), shape=(batch, 1, *spatial[:-1], columns)))
    # Windows are adjacent; if their width is symbolic and so cannot be a stride, each window has a separate row.
    ones, fixed = (1,) * (rank - 1), isinstance(taps, int)
    image, window = ((*spatial[:-1], columns), (*ones, taps)) if fixed else ((arith.product(spatial), taps), (1, taps))
    result = conv(
        reshape(samples, shape=(*data.shape[:2], *image)),
        reshape(w, shape=(*weights.shape[:2], *window)),
        strides=window if fixed else (),
        groups=attrs.groups,
    )
    return cast_to(reshape(result, shape=(data.shape[0], weights.shape[0], *spatial)), expr_type(args[0]).dtype)


def _places(axes: tuple[WindowAxis, ...], kernel: tuple[Dim, ...], spatial: tuple[Dim, ...], dtype: DType) -> Expr:
    """Return the coordinates of the taps without offsets, in elements of the data: (positions..., taps, dimensions)."""
    rank, coordinates = len(axes), []
    for number, axis in enumerate(axes):

        def along(size: Dim, dim: int, dtype: str = str(dtype)) -> Expr:
            return iota(shape=(*(1,) * dim, size, *(1,) * (2 * rank - dim)), axis=dim, dtype=dtype)

        at = mul(along(spatial[number], number), scalar(axis.stride, dtype))
        at = add(at, mul(along(kernel[number], rank + number), scalar(axis.dilation, dtype)))
        coordinates.append(broadcast_to(sub(at, count([axis.before], dtype)), shape=(*spatial, *kernel, 1)))
    return reshape(join(coordinates, 2 * rank), shape=(*spatial, arith.product(kernel), rank))


@dataclass(frozen=True)
class Col2ImAttrs(WindowAttrs):
    """`strides`, `dilations`, `pads`: as in `conv`. `shape`: the spatial shape of the images. `kernel`: the spatial shape of the
    windows."""

    shape: tuple[Dim, ...] = ()
    kernel: tuple[int, ...] = ()


def _columns(attrs: Col2ImAttrs) -> tuple[tuple[WindowAxis, ...], tuple[Dim, ...]]:
    axes = window_axes(attrs, attrs.kernel)
    return axes, window_shape(attrs.shape, axes)


def _infer_col2im(attrs: Col2ImAttrs, x: Type) -> Type:
    data = tensor_type(x, NUMERIC)
    if data.rank != 3 or len(attrs.shape) != len(attrs.kernel) or not attrs.kernel:
        raise ValueError(
            f"x must be (N, C * taps, windows), shape and kernel of equal length, got {data!r}, {attrs.shape}, {attrs.kernel}"
        )
    _, counts = _columns(attrs)
    channels = require_multiple(data.shape[1], arith.product(attrs.kernel), "dimension 1 of x, of channels and taps,")
    require_equal(data.shape[2], arith.product(counts), "dimension 2 of x, the number of windows,")
    return TensorType((data.shape[0], channels, *attrs.shape), data.dtype)


@quiet
def _reference_col2im(attrs: Col2ImAttrs, x: Array) -> Array:
    axes, counts = _columns(attrs)
    sizes = [arith.evaluate(size, {}) for size in attrs.shape]
    befores = [arith.evaluate(axis.before, {}) for axis in axes]
    steps = [arith.evaluate(count, {}) for count in counts]
    dtype = from_numpy(x.dtype)
    taps = int(np.prod(attrs.kernel))
    columns = x.astype(accumulator_dtype(dtype).numpy, copy=False).reshape(len(x), x.shape[1] // taps, *attrs.kernel, *steps)
    padded = [size + before + arith.evaluate(axis.after, {}) for size, before, axis in zip(sizes, befores, axes, strict=True)]
    total = np.zeros((*columns.shape[:2], *padded), columns.dtype)
    everything = (slice(None),) * 2
    for tap in np.ndindex(*attrs.kernel):
        starts = [k * axis.dilation for k, axis in zip(tap, axes, strict=True)]
        reached = tuple(
            slice(at, at + (count - 1) * axis.stride + 1, axis.stride) for at, count, axis in zip(starts, steps, axes, strict=True)
        )
        total[everything + reached] += columns[everything + tap]
    crop = tuple(slice(before, before + size) for before, size in zip(befores, sizes, strict=True))
    return as_array(total[everything + crop], dtype)


def _compute_col2im(attrs: Col2ImAttrs, x: te.Tensor) -> te.Tensor:
    """Add the elements of all windows to their places in the image, tap by tap; taps outside of the image are skipped."""
    axes, counts = _columns(attrs)
    acc = accumulator_dtype(x.dtype)
    taps = arith.product(attrs.kernel)

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        with loop_nest(b, (x.shape[0], x.shape[1] // taps), ir.ForKind.PARALLEL) as (n, c):
            apart = acc is not x.dtype
            total, before = (b.alloc(attrs.shape, acc, "total"), ()) if apart else (outputs[0], (n, c))
            with b.loops(attrs.shape) as at:
                b.store(total, (*before, *at), te.const(0, acc))
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
                with b.loops(extents) as moved:
                    column: Dim = 0
                    places: list[Dim] = [*before]
                    for index, begin, k, axis, count in zip(moved, firsts, tap, axes, counts, strict=True):
                        window = index + begin
                        column = column * count + window
                        places.append(window * axis.stride + k * axis.dilation - axis.before)
                    b.store(total, tuple(places), total[tuple(places)] + te.cast(inputs[0][n, row, column], acc))
            if apart:
                with b.loops(attrs.shape) as at:
                    b.store(outputs[0], (n, c, *at), te.cast(total[at], x.dtype))

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
