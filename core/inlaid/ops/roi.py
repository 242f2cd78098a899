"""Pooling of regions of interest."""

from __future__ import annotations

import functools
import operator

import numpy as np

from inlaid.graph.conditions import require_at_least, require_equal, require_shape
from inlaid.graph.operator import Attrs, Operator, Traits
from inlaid.ops.define import (
    FLOAT,
    INTEGER,
    Array,
    as_array,
    common_dtype,
    loop_nest,
    make_family,
    quiet,
    tensor_type,
    widen_array,
    working_dtype,
)
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type, from_numpy


@dataclass(frozen=True)
class RoiAlignAttrs(Attrs):
    """Attributes of roi_align.

    shape
        Height and width of the result.
    sampling
        Samples per output element along each dimension; 0: the region's extent in elements / output extent, rounded up.
    scale
        Factor from coordinates of regions to elements of x.
    half_pixel
        Whether to shift coordinates by half an element; if not, the sides of a region are extended to at least 1 element.
    maximum
        Whether to compute the maximum of the weighted elements instead of the mean of the samples.
    """

    shape: tuple[int, int] = (1, 1)
    sampling: int = 0
    scale: float = 1.0
    half_pixel: bool = True
    maximum: bool = False


def _infer_roi_align(attrs: RoiAlignAttrs, x: Type, rois: Type, images: Type) -> Type:
    data, regions, image_type = (
        tensor_type(x, FLOAT, "the data"),
        tensor_type(rois, FLOAT, "rois"),
        tensor_type(images, INTEGER, "images"),
    )
    if data.rank != 4 or regions.rank != 2 or image_type.rank != 1:
        raise ValueError(f"x must be (N, C, H, W), rois (R, 4) and images (R,), got {data!r}, {regions!r} and {image_type!r}")
    if min(attrs.shape) < 1 or attrs.sampling < 0:
        raise ValueError(f"expected shape >= 1 and sampling >= 0, got {attrs.shape} and {attrs.sampling}")
    require_equal(regions.shape[1], 4, "dimension 1 of rois")
    require_shape(image_type.shape, regions.shape[:1], "images")
    common_dtype(data, regions)
    for number, extent in enumerate(data.shape[2:], 2):
        require_at_least(extent, 1, f"dimension {number} of the data")
    return TensorType((regions.shape[0], data.shape[1], *attrs.shape), data.dtype)


def _samples(start: Array, size: Array, bins: int, count: int, extent: int) -> tuple[Array, Array, Array, Array]:
    """Return, for each bin and sample along one dimension, (low index, high index, weight of the high index, whether the sample is
    inside)."""
    # Not float64, which numpy makes of int64 and float32: rounding decides whether a sample on the border is inside.
    dtype = size.dtype
    step = dtype.type(size / bins)
    coordinate = (
        start
        + np.arange(bins, dtype=dtype)[:, None] * step
        + (np.arange(count, dtype=dtype) + dtype.type(0.5)) * step / dtype.type(max(count, 1))
    )
    is_inside = (coordinate >= -1) & (coordinate <= extent)
    coordinate = np.clip(np.nan_to_num(coordinate), 0, extent - 1).astype(dtype)
    low = coordinate.astype(np.int64)
    return low, np.minimum(low + 1, extent - 1), coordinate - low, is_inside


@quiet
def _reference_roi_align(attrs: RoiAlignAttrs, x: Array, rois: Array, images: Array) -> Array:
    dtype = from_numpy(x.dtype)
    data, regions = widen_array(x), widen_array(rois)
    result = np.zeros((len(regions), x.shape[1], *attrs.shape), data.dtype)
    shift = data.dtype.type(0.5 if attrs.half_pixel else 0)
    for number, (image, region) in enumerate(zip(images, regions, strict=True)):
        if not 0 <= image < len(data):
            raise KernelFault(f"the image of region {number} must be >= 0 and < {len(data)}, got {image}")
        x1, y1, x2, y2 = region * data.dtype.type(attrs.scale) - shift
        sizes = np.array([y2 - y1, x2 - x1])
        if not attrs.half_pixel:
            sizes = np.maximum(sizes, 1)
        axes = []
        for start, size, bins, extent in zip((y1, x1), sizes, attrs.shape, data.shape[2:], strict=True):
            count = attrs.sampling or max(int(np.ceil(size / bins)), 0)
            axes.append(_samples(start, size, bins, count, extent))
        (y_low, y_high, y_part, y_in), (x_low, x_high, x_part, x_in) = axes
        corners = []
        for ys, y_weight in ((y_low, 1 - y_part), (y_high, y_part)):
            for xs, x_weight in ((x_low, 1 - x_part), (x_high, x_part)):
                value = data[image][:, ys[:, :, None, None], xs]
                corners.append(value * (y_weight[:, :, None, None] * x_weight))
        is_inside = y_in[:, :, None, None] & x_in
        if not is_inside.size:
            continue
        if attrs.maximum:
            result[number] = np.where(is_inside, np.max(corners, axis=0), 0).max(axis=(2, 4))
        else:
            result[number] = np.where(is_inside, np.sum(corners, axis=0), 0).mean(axis=(2, 4))
    return as_array(result, dtype)


def _channels_last(x: te.Tensor) -> te.Tensor:
    """Transpose x (N, C, H, W) to (N, H, W, C), so that the channels of an element are contiguous."""
    last: te.Tensor = te.compute((x.shape[0], *x.shape[2:], x.shape[1]), lambda n, y, x_, c: x[n, c, y, x_], "channels_last")
    return last


def _channels_second(pooled: te.Tensor, prototype: te.Tensor) -> te.Tensor:
    """Transpose (R, height, width, C) in the working dtype to (R, C, height, width) of the dtype of `prototype`."""
    regions, *bins, channels = pooled.shape
    result: te.Tensor = te.compute(
        (regions, channels, *bins), lambda r, c, y, x: te.cast(pooled[r, y, x, c], prototype.dtype), "channels_second"
    )
    return result


def _compute_roi_align(attrs: RoiAlignAttrs, x: te.Tensor, rois: te.Tensor, images: te.Tensor) -> te.Tensor:
    """Build a loop program, as the number of samples of a region is data-dependent. All channels share indices and weights."""
    working = working_dtype(x.dtype)
    channels = x.shape[1]

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        data, regions, images = inputs
        total, weights = b.alloc((channels,), working, "total"), b.alloc((4,), working, "weights")
        start, step = b.alloc((2,), working, "start"), b.alloc((2,), working, "step")
        with b.loop(rois.shape[0], "r") as r:
            image, counts = b.let(te.cast(images[r], "int64"), "image", (0, x.shape[0] - 1)), []
            for axis in range(2):
                low, high = (
                    te.cast(regions[r, column], working) * attrs.scale - (0.5 if attrs.half_pixel else 0.0)
                    for column in (1 - axis, 3 - axis)
                )
                size = high - low if attrs.half_pixel else te.maximum(high - low, 1)
                b.store(start, axis, low)
                b.store(step, axis, size / attrs.shape[axis])
                sample_count = te.maximum(te.cast(te.unary("ceil", step[axis]), "int64"), 0)
                counts.append(arith.wrap(attrs.sampling) if attrs.sampling else b.let(sample_count, "count"))
            samples_per_bin = ir.as_expr(arith.maximum(counts[0] * counts[1], 1), working)
            with loop_nest(b, attrs.shape) as bins:
                with b.loop(channels, "c") as c:
                    b.store(total, c, te.const(0, working))
                with b.loop(counts[0], "y") as y, b.loop(counts[1], "x") as x_:
                    lows: list[tuple[Dim, Dim]] = []
                    fractions: list[ir.Expr] = []
                    is_inside: ir.Expr = te.const(True, "bool")
                    for axis, (bin_index, k) in enumerate(zip(bins, (y, x_), strict=True)):
                        extent = x.shape[2 + axis]
                        count = ir.as_expr(arith.maximum(counts[axis], 1), working)
                        # The order of operations is that of the reference, and of ONNX Runtime.
                        bin_offset = (ir.as_expr(k, working) + 0.5) * step[axis] / count
                        coordinate = start[axis] + ir.as_expr(bin_index, working) * step[axis] + bin_offset
                        length = ir.as_expr(arith.wrap(extent), working)
                        is_inside = is_inside & (coordinate >= -1) & (coordinate <= length)
                        coordinate = te.minimum(te.maximum(coordinate, 0), length - 1)
                        low_index = b.let(te.cast(coordinate, "int64"), "place", (0, extent - 1))
                        lows.append((low_index, arith.minimum(low_index + 1, extent - 1)))
                        fractions.append(coordinate - ir.as_expr(low_index, working))
                    for i, j in np.ndindex(2, 2):
                        b.store(
                            weights,
                            2 * i + j,
                            (fractions[0] if i else 1 - fractions[0]) * (fractions[1] if j else 1 - fractions[1]),
                        )
                    inside_index = b.let(te.cast(is_inside, "int64"), "inside")
                    with b.loop(channels, "c") as c:
                        corners = [
                            te.cast(data[image, lows[0][i], lows[1][j], c], working) * weights[2 * i + j]
                            for i, j in np.ndindex(2, 2)
                        ]
                        value = functools.reduce(te.maximum if attrs.maximum else operator.add, corners)
                        value = te.select(arith.compare("!=", inside_index, 0), value, te.const(0, working))
                        if attrs.maximum:
                            first = arith.logical_and(arith.compare("==", y, 0), arith.compare("==", x_, 0))
                            b.store(total, c, te.select(first, value, te.maximum(total[c], value)))
                        else:
                            b.store(total, c, total[c] + value)
                with b.loop(channels, "c") as c:
                    b.store(outputs[0], (r, *bins, c), total[c] if attrs.maximum else total[c] / samples_per_bin)

    shape = (rois.shape[0], *attrs.shape, channels)
    return _channels_second(te.extern([(shape, working)], [_channels_last(x), rois, images], body, "roi_align")[0], x)


@dataclass(frozen=True)
class RoiMaxPoolAttrs(Attrs):
    """`shape`: height and width of the result. `scale`: factor from coordinates of regions to elements of x."""

    shape: tuple[int, int] = (1, 1)
    scale: float = 1.0


def _infer_roi_max_pool(attrs: RoiMaxPoolAttrs, x: Type, rois: Type) -> Type:
    data, regions = tensor_type(x, FLOAT, "the data"), tensor_type(rois, FLOAT, "rois")
    if data.rank != 4 or regions.rank != 2 or min(attrs.shape) < 1:
        raise ValueError(f"x must be (N, C, H, W), rois (R, 5) and shape >= 1, got {data!r}, {regions!r} and {attrs.shape}")
    require_equal(regions.shape[1], 5, "dimension 1 of rois")
    common_dtype(data, regions)
    return TensorType((regions.shape[0], data.shape[1], *attrs.shape), data.dtype)


@quiet
def _reference_roi_max_pool(attrs: RoiMaxPoolAttrs, x: Array, rois: Array) -> Array:
    data, regions = widen_array(x), widen_array(rois)
    scalar = data.dtype.type
    result = np.zeros((len(regions), x.shape[1], *attrs.shape), data.dtype)
    for number, region in enumerate(regions):
        image = int(region[0])
        if not 0 <= image < len(data):
            raise KernelFault(f"the image of region {number} must be >= 0 and < {len(data)}, got {image}")
        scaled = region[1:] * scalar(attrs.scale)
        x1, y1, x2, y2 = np.where(scaled < 0, np.ceil(scaled - scalar(0.5)), np.floor(scaled + scalar(0.5)))
        for bin_indices in np.ndindex(*attrs.shape):
            window = []
            for bin_index, first, last, bins, extent in zip(bin_indices, (y1, x1), (y2, x2), attrs.shape, x.shape[2:], strict=True):
                step = np.maximum(last - first + 1, 1).astype(scalar) / scalar(bins)
                start, end = np.floor(bin_index * step) + first, np.ceil((bin_index + 1) * step) + first
                window.append(slice(*(int(np.clip(np.nan_to_num(edge), 0, extent)) for edge in (start, end))))
            elements = data[image][:, window[0], window[1]]
            if elements.size:
                result[(number, slice(None), *bin_indices)] = elements.max(axis=(1, 2))
    return as_array(result, from_numpy(x.dtype))


def _compute_roi_max_pool(attrs: RoiMaxPoolAttrs, x: te.Tensor, rois: te.Tensor) -> te.Tensor:
    """Build a loop program in which all channels share the windows."""
    working = working_dtype(x.dtype)
    channels = x.shape[1]

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        (data, regions), (maxima,) = inputs, outputs
        first, last = b.alloc((2,), working, "first"), b.alloc((2,), working, "last")
        with b.loop(rois.shape[0], "r") as r:
            image = b.let(te.cast(regions[r, 0], "int64"), "image", (0, x.shape[0] - 1))
            for axis in range(2):
                for edge, column in ((first, 2 - axis), (last, 4 - axis)):
                    scaled = te.cast(regions[r, column], working) * attrs.scale
                    rounded_edge = te.select(scaled < 0, te.unary("ceil", scaled - 0.5), te.unary("floor", scaled + 0.5))
                    b.store(edge, axis, rounded_edge)
            with loop_nest(b, attrs.shape) as bins:
                edges: list[tuple[arith.Expr, arith.Expr]] = []
                for axis, bin_index in enumerate(bins):
                    extent = x.shape[2 + axis]
                    step = te.maximum(last[axis] - first[axis] + 1, 1) / float(attrs.shape[axis])
                    ends = []
                    for rounding, number in (("floor", bin_index), ("ceil", bin_index + 1)):
                        edge_at = te.unary(rounding, ir.as_expr(number, working) * step) + first[axis]
                        clipped = te.minimum(te.maximum(edge_at, 0), ir.as_expr(arith.wrap(extent), working))
                        ends.append(b.let(te.cast(clipped, "int64"), "edge", (0, extent)))
                    edges.append((ends[0], arith.maximum(ends[1] - ends[0], 0)))
                (top, height), (left, width) = edges
                empty = arith.logical_or(arith.compare("==", height, 0), arith.compare("==", width, 0))
                with b.loop(channels, "c") as c:
                    b.store(maxima, (r, *bins, c), te.select(empty, te.const(0, working), te.lowest(working)))
                with b.loop(height, "y") as y, b.loop(width, "x") as column_, b.loop(channels, "c") as c:
                    value = te.cast(data[image, top + y, left + column_, c], working)
                    b.store(maxima, (r, *bins, c), te.maximum(maxima[(r, *bins, c)], value))

    shape = (rois.shape[0], *attrs.shape, channels)
    return _channels_second(te.extern([(shape, working)], [_channels_last(x), rois], body, "roi_max_pool")[0], x)


roi_align = Operator(
    "roi_align",
    _infer_roi_align,
    RoiAlignAttrs,
    reference=_reference_roi_align,
    compute=_compute_roi_align,
    traits=Traits(fails=True),
    arity=(3, 3),
    inputs=("x", "rois", "images"),
    doc="""Pool regions of interest by bilinear sampling (He et al., 2017).
Operands: x (N, C, H, W), float; rois (R, 4), dtype of x, rows (x1, y1, x2, y2); images (R,), integer, the image of each region.
Result: (R, C, *shape), dtype of x. A sample more than one element outside of the image is 0.""",
)

roi_max_pool = Operator(
    "roi_max_pool",
    _infer_roi_max_pool,
    RoiMaxPoolAttrs,
    reference=_reference_roi_max_pool,
    compute=_compute_roi_max_pool,
    traits=Traits(fails=True),
    arity=(2, 2),
    inputs=("x", "rois"),
    doc="""Pool regions of interest by maxima of bins (Girshick, 2015).
Operands: x (N, C, H, W), float; rois (R, 5), dtype of x, rows (image, x1, y1, x2, y2), rounded to elements, ends inclusive. Result:
(R, C, *shape), dtype of x. An empty bin is 0.""",
)

OPERATORS = make_family(roi_align, roi_max_pool)
