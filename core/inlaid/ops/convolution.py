"""Convolution and its relatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlaid import arith
from inlaid.arith import Constraint, Dim
from inlaid.graph.conditions import require
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.define import NUMERIC, Array, as_array, dims_may_equal, quiet, tensor_type
from inlaid.ops.product import accumulator_dtype, product_dtype, rounded
from inlaid.ops.window import (
    Axis,
    WindowAttrs,
    pad_spatial,
    tap_axes,
    window_axes,
    window_index,
    window_shape,
    windows,
)
from inlaid.tensor import ir, te
from inlaid.types import DType, TensorType, Type, from_numpy


@dataclass(frozen=True)
class ConvAttrs(WindowAttrs):
    """Steps and padding as of every window, where empty tuples stand for ones and zeros; `groups` divides the channels; `out_dtype`
    is the element type of the result ("": see `product_dtype`)."""

    groups: int = 1
    out_dtype: str = ""


def _check_data(x: Type, w: Type) -> tuple[TensorType, TensorType]:
    """Data N C spatial and weights of the same rank, with one to three spatial dimensions."""
    data, weights = tensor_type(x, NUMERIC, "the data"), tensor_type(w, NUMERIC, "the weights")
    if not 3 <= data.rank <= 5 or weights.rank != data.rank:
        raise ValueError("data and weights have the same rank, with one to three spatial dimensions")
    return data, weights


def _grouped(channels: Dim, groups: int, what: str) -> Dim:
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise ValueError(f"{channels} {what} channels do not divide into {groups} groups")
    whole = arith.unwrap(arith.compare("==", channels % groups, 0))
    require(Constraint(whole, f"the number of {what} channels", f"a multiple of {groups}", channels))
    return channels // groups


def _infer_conv(attrs: ConvAttrs, x: Type, w: Type) -> Type:
    data, weights = _check_data(x, w)
    if not dims_may_equal(_grouped(data.shape[1], attrs.groups, "input"), weights.shape[1]):
        raise ValueError(
            f"weights for {weights.shape[1]} input channels a group do not fit {data.shape[1]} in {attrs.groups} groups"
        )
    _grouped(weights.shape[0], attrs.groups, "output")
    spatial = window_shape(data.shape[2:], window_axes(attrs, weights.shape[2:]))
    return TensorType((data.shape[0], weights.shape[0], *spatial), product_dtype(data.dtype, weights.dtype, attrs.out_dtype))


def _convolve_arrays(x: Array, w: Array, axes: tuple[Axis, ...], groups: int, result: DType) -> Array:
    """The sum of products of windows and weights, group by group."""
    acc = accumulator_dtype(result).numpy
    view, w = windows(x.astype(acc, copy=False), axes, 0), w.astype(acc, copy=False)
    spatial = len(axes)
    per_group_in, per_group_out = w.shape[1], w.shape[0] // groups
    parts = []
    for group in range(groups):
        data = view[:, group * per_group_in : (group + 1) * per_group_in]
        weights = w[group * per_group_out : (group + 1) * per_group_out]
        taps = tuple(range(2 + spatial, 2 + 2 * spatial))
        parts.append(np.moveaxis(np.tensordot(data, weights, ((1, *taps), tuple(range(1, 2 + spatial)))), -1, 1))
    return as_array(np.concatenate(parts, axis=1), result)


@quiet
def _reference_conv(attrs: ConvAttrs, x: Array, w: Array) -> Array:
    result = product_dtype(from_numpy(x.dtype), from_numpy(w.dtype), attrs.out_dtype)
    return _convolve_arrays(x, w, window_axes(attrs, w.shape[2:]), attrs.groups, result)


def _convolve(
    padded: te.Tensor, w: te.Tensor, shape: tuple[Dim, ...], axes: tuple[Axis, ...], groups: int, result: DType
) -> te.Tensor:
    """A stage "conv" over padded data, and a rounding stage where the sum is wider than the result."""
    acc = accumulator_dtype(result)
    per_group_in, per_group_out = w.shape[1], w.shape[0] // groups
    channel = te.reduce_axis(per_group_in, "c")
    taps = tap_axes(axes)

    def element(n: arith.Var, o: arith.Var, *position: arith.Var) -> ir.Expr:
        group = o if per_group_out == 1 else o // per_group_out
        source = channel.var if groups == 1 else group * per_group_in + channel.var
        data = padded[(n, source, *window_index(axes, position, taps))]
        weight = w[(o, channel, *taps)]
        total: ir.Expr = te.sum_(te.cast(data, acc) * te.cast(weight, acc), (channel, *taps))
        return total

    return rounded(te.compute(shape, element, "conv"), result)


def _compute_conv(attrs: ConvAttrs, x: te.Tensor, w: te.Tensor) -> te.Tensor:
    axes = window_axes(attrs, w.shape[2:])
    shape = (x.shape[0], w.shape[0], *window_shape(x.shape[2:], axes))
    padded = pad_spatial(x, axes, te.const(0, x.dtype))
    return _convolve(padded, w, shape, axes, attrs.groups, product_dtype(x.dtype, w.dtype, attrs.out_dtype))


@dataclass(frozen=True)
class ConvTransposeAttrs(ConvAttrs):
    """`output_padding` adds elements behind the output; pads crop the output, negative ones behind add to it."""

    output_padding: tuple[Dim, ...] = ()


def _transposed(
    attrs: ConvTransposeAttrs, kernel: tuple[Dim, ...], spatial: tuple[Dim, ...]
) -> tuple[tuple[Axis, ...], tuple[Dim, ...]]:
    """The axes of the transposed convolution and its spatial output shape."""
    axes = window_axes(ConvAttrs(attrs.strides, (), attrs.dilations), kernel)
    rank = len(kernel)
    pads = attrs.pads or (0,) * (2 * rank)
    extra = attrs.output_padding or (0,) * rank
    if len(pads) != 2 * rank or len(extra) != rank:
        raise ValueError(f"{rank} spatial dimensions need {2 * rank} pads and {rank} output paddings")
    axes = tuple(
        Axis(axis.kernel, axis.stride, axis.dilation, before, after)
        for axis, before, after in zip(axes, pads[:rank], pads[rank:], strict=True)
    )
    shape: list[Dim] = []
    for number, (axis, extent, more) in enumerate(zip(axes, spatial, extra, strict=True), 2):
        if isinstance(axis.before, int) and axis.before < 0:
            raise ValueError(f"{axis.before} elements cannot be added before the output")
        length = (extent - 1) * axis.stride + axis.span + more - axis.before - axis.after
        require(arith.at_least(length, 1, f"dimension {number} of the output"))
        shape.append(arith.unwrap(arith.wrap(length)))
    return axes, tuple(shape)


def _infer_conv_transpose(attrs: ConvTransposeAttrs, x: Type, w: Type) -> Type:
    data, weights = _check_data(x, w)
    if not dims_may_equal(data.shape[1], weights.shape[0]):
        raise ValueError(f"weights for {weights.shape[0]} input channels do not fit {data.shape[1]}")
    _grouped(weights.shape[0], attrs.groups, "input")
    _, spatial = _transposed(attrs, weights.shape[2:], data.shape[2:])
    result = product_dtype(data.dtype, weights.dtype, attrs.out_dtype)
    return TensorType((data.shape[0], weights.shape[1] * attrs.groups, *spatial), result)


@quiet
def _reference_conv_transpose(attrs: ConvTransposeAttrs, x: Array, w: Array) -> Array:
    """Each input element adds its multiple of the weights to the output that it reaches."""
    result = product_dtype(from_numpy(x.dtype), from_numpy(w.dtype), attrs.out_dtype)
    acc = accumulator_dtype(result).numpy
    axes, spatial = _transposed(attrs, w.shape[2:], x.shape[2:])
    lengths = [arith.evaluate(length, {}) for length in spatial]
    crops = [arith.evaluate(axis.before, {}) for axis in axes]
    reaches = [(extent - 1) * axis.stride + 1 for axis, extent in zip(axes, x.shape[2:], strict=True)]
    groups, inputs, outputs = attrs.groups, w.shape[0] // attrs.groups, w.shape[1]
    data = x.astype(acc, copy=False).reshape(x.shape[0], groups, inputs, *x.shape[2:])
    weights = w.astype(acc, copy=False).reshape(groups, inputs, *w.shape[1:])
    whole = [
        max(crop + length, reach + (size - 1) * axis.dilation)
        for axis, crop, length, reach, size in zip(axes, crops, lengths, reaches, w.shape[2:], strict=True)
    ]
    total = np.zeros((x.shape[0], groups, outputs, *whole), acc)
    letters = "xyz"[: len(axes)]
    everything = (slice(None),) * 3
    for tap in np.ndindex(*w.shape[2:]):
        starts = [k * axis.dilation for k, axis in zip(tap, axes, strict=True)]
        reached = tuple(slice(at, at + reach, axis.stride) for at, reach, axis in zip(starts, reaches, axes, strict=True))
        total[everything + reached] += np.einsum(f"ngi{letters},gio->ngo{letters}", data, weights[everything + tap])
    kept = tuple(slice(crop, crop + length) for crop, length in zip(crops, lengths, strict=True))
    return as_array(total[everything + kept].reshape(x.shape[0], groups * outputs, *lengths), result)


def _compute_conv_transpose(attrs: ConvTransposeAttrs, x: te.Tensor, w: te.Tensor) -> te.Tensor:
    """An ordinary convolution, of stride 1 and with turned weights, over data spread out by the strides."""
    result = product_dtype(x.dtype, w.dtype, attrs.out_dtype)
    axes, spatial = _transposed(attrs, w.shape[2:], x.shape[2:])
    groups = attrs.groups
    per_group_in, per_group_out = x.shape[1] // groups, w.shape[1]
    padded_shape = x.shape[:2] + tuple(length + axis.span - 1 for length, axis in zip(spatial, axes, strict=True))

    def spread(n: arith.Var, c: arith.Var, *index: arith.Var) -> ir.Expr:
        inside: arith.Expr = arith.ONE
        own: list[Dim] = []
        for at, axis, extent in zip(index, axes, x.shape[2:], strict=True):
            offset = at + (axis.before - axis.span + 1)
            source = offset // axis.stride
            own.append(source)
            for condition in (
                arith.compare("==", offset % axis.stride, 0) if axis.stride > 1 else arith.ONE,
                arith.compare(">=", offset, 0),
                arith.compare("<", source, extent),
            ):
                inside = arith.logical_and(inside, condition)
        return te.select(inside, x[(n, c, *own)], te.const(0, x.dtype))

    def turn(o: arith.Var, c: arith.Var, *tap: arith.Var) -> ir.Expr:
        group, own = (o // per_group_out, o % per_group_out) if groups > 1 else (0, o)
        return w[(group * per_group_in + c, own, *(axis.kernel - 1 - k for axis, k in zip(axes, tap, strict=True)))]

    padded = te.compute(padded_shape, spread, "pad")
    turned = te.compute((per_group_out * groups, per_group_in, *w.shape[2:]), turn, "turn")
    flat = tuple(Axis(axis.kernel, 1, axis.dilation, 0, 0) for axis in axes)
    return _convolve(padded, turned, (x.shape[0], per_group_out * groups, *spatial), flat, groups, result)


conv = Operator(
    "conv",
    _infer_conv,
    ConvAttrs,
    reference=_reference_conv,
    compute=_compute_conv,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 2),
    inputs=("x", "w"),
)
"""Convolution of x (N, C, spatial...) with w (O, C / groups, kernel...), without bias."""

conv_transpose = Operator(
    "conv_transpose",
    _infer_conv_transpose,
    ConvTransposeAttrs,
    reference=_reference_conv_transpose,
    compute=_compute_conv_transpose,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 2),
    inputs=("x", "w"),
)
"""The transpose of `conv` with respect to its data: x (N, C, spatial...), w (C, O / groups, kernel...)."""

OPERATORS: tuple[Operator, ...] = (conv, conv_transpose)
