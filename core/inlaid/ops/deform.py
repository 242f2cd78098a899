"""Deformable convolution, and the sum of windows into an image."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import arith
from inlaid.arith import Dim
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.define import (
    FLOAT,
    NUMERIC,
    Array,
    as_array,
    common_dtype,
    dims_may_equal,
    loop_nest,
    quiet,
    tensor_type,
    widen,
    widen_array,
    working_dtype,
)
from inlaid.ops.product import accumulator_dtype, rounded
from inlaid.ops.window import Axis, WindowAttrs, tap_axes, window_axes, window_shape
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid.types import TensorType, Type, from_numpy


@dataclass(frozen=True)
class DeformConvAttrs(WindowAttrs):
    """`groups` divides the channels as in a convolution; channels of one of `offset_groups` share their offsets."""

    groups: int = 1
    offset_groups: int = 1


def _infer_deform_conv(attrs: DeformConvAttrs, x: Type, w: Type, offset: Type, mask: Type | None = None) -> Type:
    data, weights, moves = (tensor_type(type_, FLOAT, what) for type_, what in ((x, "x"), (w, "w"), (offset, "the offset")))
    common_dtype(data, weights, moves)
    if data.rank < 3 or weights.rank != data.rank or moves.rank != data.rank:
        raise ValueError("data, weights and offset have one rank, with a batch, a channel and spatial dimensions")
    kernel = weights.shape[2:]
    spatial = window_shape(data.shape[2:], window_axes(attrs, kernel))
    taps = arith.product(kernel)
    inputs, outputs = data.shape[1], weights.shape[0]
    for what, size, parts in (
        ("input", inputs, attrs.groups),
        ("output", outputs, attrs.groups),
        ("input", inputs, attrs.offset_groups),
    ):
        if parts < 1 or (isinstance(size, int) and size % parts):
            raise ValueError(f"{size} {what} channels do not divide into {parts} groups")
    if not dims_may_equal(inputs // attrs.groups, weights.shape[1]):
        raise ValueError(f"weights for {weights.shape[1]} channels a group do not fit {inputs} in {attrs.groups} groups")
    given = [(moves, attrs.offset_groups * taps * len(kernel), "offset")]
    if mask is not None:
        given.append((tensor_type(mask, FLOAT, "the mask"), attrs.offset_groups * taps, "mask"))
        common_dtype(data, given[-1][0])
    for found, channels, what in given:
        if not all(map(dims_may_equal, found.shape, (data.shape[0], channels, *spatial))):
            raise ValueError(f"the {what} has shape {found.shape}, not {(data.shape[0], channels, *spatial)}")
    return TensorType((data.shape[0], outputs, *spatial), data.dtype)


@quiet
def _reference_deform_conv(attrs: DeformConvAttrs, x: Array, w: Array, offset: Array, mask: Array | None = None) -> Array:
    axes = window_axes(attrs, w.shape[2:])
    data, weights = widen_array(x), widen_array(w)
    kernel, spatial, rank = w.shape[2:], offset.shape[2:], len(axes)
    share = x.shape[1] // attrs.offset_groups
    moves = widen_array(offset).reshape(len(x), attrs.offset_groups, *kernel, rank, *spatial)
    # Samples: N, offset group, taps..., output positions...; then per channel of the group.
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
        places = []
        for at, high, extent in zip(coordinates, corner, x.shape[2:], strict=True):
            low = np.floor(at)
            weight = weight * (at - low if high else 1 - (at - low))
            place = np.nan_to_num(low, posinf=2.0**40, neginf=-(2.0**40)).astype(np.int64) + high
            inside &= (place >= 0) & (place < extent)
            places.append(np.clip(place, 0, extent - 1))
        value = grouped[(images, groups, *places)]
        samples += np.where(inside[..., None], value, 0) * weight[..., None]
    if mask is not None:
        samples *= widen_array(mask).reshape(len(x), attrs.offset_groups, *kernel, *spatial, 1)
    columns = np.moveaxis(samples, -1, 2).reshape(len(x), attrs.groups, -1, int(np.prod(kernel)), *spatial)
    grouped_weights = weights.reshape(attrs.groups, -1, w.shape[1], int(np.prod(kernel)))
    total = np.einsum("ngck...,gock->ngo...", columns, grouped_weights)
    return as_array(total.reshape(len(x), w.shape[0], *spatial), from_numpy(x.dtype))


def _compute_deform_conv(
    attrs: DeformConvAttrs, x: te.Tensor, w: te.Tensor, offset: te.Tensor, mask: te.Tensor | None = None
) -> te.Tensor:
    """A stage "sample" (N, C, taps..., output positions...), then the sum over channels and taps."""
    axes = window_axes(attrs, w.shape[2:])
    rank, kernel, spatial = len(axes), w.shape[2:], offset.shape[2:]
    working = working_dtype(x.dtype)
    share = x.shape[1] // attrs.offset_groups

    def sample(n: arith.Var, c: arith.Var, *rest: arith.Var) -> ir.Expr:
        taps, position = rest[:rank], rest[rank:]
        channel: Dim = c // share
        for tap, size in zip(taps, kernel, strict=True):
            channel = channel * size + tap
        coordinates = []
        for number, axis in enumerate(axes):
            base = position[number] * axis.stride + taps[number] * axis.dilation - axis.before
            coordinates.append(ir.as_expr(base, working) + widen(offset[(n, channel * rank + number, *position)]))
        total: ir.Expr = te.const(0, working)
        for corner in itertools.product((0, 1), repeat=rank):
            weight: ir.Expr = te.const(1, working)
            inside: ir.Expr = te.const(True, "bool")
            places: list[Any] = []
            for at, high, extent in zip(coordinates, corner, x.shape[2:], strict=True):
                low = te.unary("floor", at)
                weight = weight * (at - low if high else 1 - (at - low))
                place = te.cast(low, "int64") + high
                inside = inside & (place >= 0) & (place < extent)
                last = ir.as_expr(arith.wrap(extent - 1), place.dtype)
                places.append(te.checked(te.minimum(te.maximum(place, 0), last), 0, extent - 1))
            total = total + te.select(inside, widen(x[(n, c, *places)]), te.const(0, working)) * weight
        return total if mask is None else total * widen(mask[(n, channel, *position)])

    samples = te.compute((*x.shape[:2], *kernel, *spatial), sample, "sample")
    per_group_in, per_group_out = w.shape[1], w.shape[0] // attrs.groups
    channel_axis = te.reduce_axis(per_group_in, "c")
    tap_iters = tap_axes(axes)

    def element(n: arith.Var, o: arith.Var, *position: arith.Var) -> ir.Expr:
        source = o // per_group_out * per_group_in + channel_axis.var
        total: ir.Expr = te.sum_(
            samples[(n, source, *tap_iters, *position)] * widen(w[(o, channel_axis, *tap_iters)]), (channel_axis, *tap_iters)
        )
        return total

    return rounded(te.compute((x.shape[0], w.shape[0], *spatial), element, "conv"), x.dtype)


@dataclass(frozen=True)
class Col2ImAttrs(WindowAttrs):
    """`shape` is the spatial shape of the image, `kernel` that of the windows."""

    shape: tuple[Dim, ...] = ()
    kernel: tuple[int, ...] = ()


def _columns(attrs: Col2ImAttrs) -> tuple[tuple[Axis, ...], tuple[Dim, ...]]:
    axes = window_axes(attrs, attrs.kernel)
    return axes, window_shape(attrs.shape, axes)


def _infer_col2im(attrs: Col2ImAttrs, x: Type) -> Type:
    data = tensor_type(x, NUMERIC)
    if data.rank != 3 or len(attrs.shape) != len(attrs.kernel) or not attrs.kernel:
        raise ValueError("the data is (N, channels and taps, windows), and image and windows have the same rank")
    _, counts = _columns(attrs)
    taps = arith.product(attrs.kernel)
    channels = data.shape[1]
    if isinstance(channels, int) and isinstance(taps, int) and channels % taps:
        raise ValueError(f"{channels} channels and taps are no multiple of the {taps} taps of a window")
    if not dims_may_equal(data.shape[2], arith.product(counts)):
        raise ValueError(f"{data.shape[2]} windows do not fill an image with {counts} of them")
    return TensorType((data.shape[0], channels // taps, *attrs.shape), data.dtype)


@quiet
def _reference_col2im(attrs: Col2ImAttrs, x: Array) -> Array:
    axes, counts = _columns(attrs)
    sizes = [arith.evaluate(size, {}) for size in attrs.shape]
    befores = [arith.evaluate(axis.before, {}) for axis in axes]
    steps = [arith.evaluate(count, {}) for count in counts]
    of = from_numpy(x.dtype)
    taps = int(np.prod(attrs.kernel))
    columns = x.astype(accumulator_dtype(of).numpy, copy=False).reshape(len(x), x.shape[1] // taps, *attrs.kernel, *steps)
    padded = [size + before + arith.evaluate(axis.after, {}) for size, before, axis in zip(sizes, befores, axes, strict=True)]
    total = np.zeros((*columns.shape[:2], *padded), columns.dtype)
    everything = (slice(None),) * 2
    for tap in np.ndindex(*attrs.kernel):
        starts = [k * axis.dilation for k, axis in zip(tap, axes, strict=True)]
        reached = tuple(
            slice(at, at + (count - 1) * axis.stride + 1, axis.stride) for at, count, axis in zip(starts, steps, axes, strict=True)
        )
        total[everything + reached] += columns[everything + tap]
    kept = tuple(slice(before, before + size) for before, size in zip(befores, sizes, strict=True))
    return as_array(total[everything + kept], of)


def _compute_col2im(attrs: Col2ImAttrs, x: te.Tensor) -> te.Tensor:
    """Tap by tap, the elements of its windows that are inside the image are added to where they were cut from."""
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
                    for own, begin, k, axis, count in zip(moved, firsts, tap, axes, counts, strict=True):
                        window = own + begin
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
    compute=_compute_deform_conv,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(3, 4),
    inputs=("x", "w", "offset", "mask"),
)
"""Deformable convolution (Zhu et al., 2019) of x (N, C, spatial...) with w (O, C / groups, kernel...).

Each tap reads, bilinearly and 0 outside, where offset (N, offset groups x taps x dimensions, output positions...) moves it, and is
multiplied by mask (N, offset groups x taps, output positions...)."""

col2im = Operator(
    "col2im",
    _infer_col2im,
    Col2ImAttrs,
    reference=_reference_col2im,
    compute=_compute_col2im,
    inputs=("x",),
)
"""Windows (N, C x taps, number of windows) summed into the images (N, C, spatial...) that they were cut from."""

OPERATORS: tuple[Operator, ...] = (deform_conv, col2im)
