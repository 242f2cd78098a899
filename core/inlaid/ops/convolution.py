"""Convolution."""

from __future__ import annotations

import numpy as np

from inlaid.graph.conditions import require_equal, require_multiple
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.define import NUMERIC, PRODUCT_DTYPE, Array, as_array, make_family, quiet, tensor_type
from inlaid.ops.product import accumulator_dtype, product_dtype, rounded
from inlaid.ops.window import (
    WindowAttrs,
    WindowAxis,
    pad_spatial,
    tap_axes,
    window_axes,
    window_index,
    window_shape,
    windows,
)
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, from_numpy


@dataclass(frozen=True)
class ConvAttrs(WindowAttrs):
    """`strides`, `dilations`: one per spatial axis; empty: all ones. `pads`: the numbers of zeros added before each spatial
    axis, then after each; empty: no padding. `groups`: the number of groups that the channels are divided into. `out_dtype`: the
    dtype of the result; "": the operands' dtype, at least int32 for integers."""

    groups: int = 1
    out_dtype: str = ""


def check_data(x: Type, w: Type) -> tuple[TensorType, TensorType]:
    """Check that data (N, C, spatial...) and weights have the same rank, with 1 to 3 spatial dimensions. Raises ValueError."""
    data, weights = tensor_type(x, NUMERIC, "the data"), tensor_type(w, NUMERIC, "the weights")
    if not 3 <= data.rank <= 5 or weights.rank != data.rank:
        raise ValueError(f"x and w must have the same rank, 3 to 5, got {data.rank} and {weights.rank}")
    return data, weights


def grouped(channels: Dim, groups: int, what: str) -> Dim:
    """Require channels to be divisible into groups. Returns the number of channels of a group. `what` names them in errors."""
    return require_multiple(channels, groups, f"the number of {what} channels")


def _infer_conv(attrs: ConvAttrs, x: Type, w: Type) -> Type:
    data, weights = check_data(x, w)
    require_equal(weights.shape[1], grouped(data.shape[1], attrs.groups, "input"), "the number of input channels per group of w")
    grouped(weights.shape[0], attrs.groups, "output")
    spatial = window_shape(data.shape[2:], window_axes(attrs, weights.shape[2:]))
    return TensorType((data.shape[0], weights.shape[0], *spatial), product_dtype(data.dtype, weights.dtype, attrs.out_dtype))


def _convolve_arrays(x: Array, w: Array, axes: tuple[WindowAxis, ...], groups: int, result: DType) -> Array:
    """Multiply windows by weights and sum, group by group."""
    acc = accumulator_dtype(result).numpy
    view, w = windows(x.astype(acc, copy=False), axes, 0), w.astype(acc, copy=False)
    spatial_rank = len(axes)
    per_group_in, per_group_out = w.shape[1], w.shape[0] // groups
    parts = []
    for group in range(groups):
        data = view[:, group * per_group_in : (group + 1) * per_group_in]
        weights = w[group * per_group_out : (group + 1) * per_group_out]
        taps = tuple(range(2 + spatial_rank, 2 + 2 * spatial_rank))
        parts.append(np.moveaxis(np.tensordot(data, weights, ((1, *taps), tuple(range(1, 2 + spatial_rank)))), -1, 1))
    return as_array(np.concatenate(parts, axis=1), result)


@quiet
def _reference_conv(attrs: ConvAttrs, x: Array, w: Array) -> Array:
    result = product_dtype(from_numpy(x.dtype), from_numpy(w.dtype), attrs.out_dtype)
    return _convolve_arrays(x, w, window_axes(attrs, w.shape[2:]), attrs.groups, result)


def _convolve(
    padded: te.Tensor, w: te.Tensor, shape: tuple[Dim, ...], axes: tuple[WindowAxis, ...], groups: int, result: DType
) -> te.Tensor:
    """Build the stage "conv" over padded data, and a rounding stage if the accumulator is wider than the result."""
    acc = accumulator_dtype(result)
    per_group_in, per_group_out = w.shape[1], w.shape[0] // groups
    channel = te.reduce_axis(per_group_in, "c")
    taps = tap_axes(axes)

    def element(n: arith.Var, o: arith.Var, *position: arith.Var) -> ir.Expr:
        group = o if per_group_out == 1 else o // per_group_out
        source = channel if groups == 1 else group * per_group_in + channel
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


conv = Operator(
    "conv",
    _infer_conv,
    ConvAttrs,
    reference=_reference_conv,
    compute=_compute_conv,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 2),
    inputs=("x", "w"),
    doc=f"""Convolution (cross-correlation) without bias.
Operands: x (N, C, spatial...), w (O, C / groups, kernel...), of one float dtype or any integer dtypes, with 1 to 3 spatial
dimensions.
Result: (N, O, spatial...), {PRODUCT_DTYPE}.""",
)

OPERATORS = make_family(conv)
