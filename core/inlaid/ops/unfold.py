"""Extraction of sliding windows (im2col), for convolution as a matrix product."""

from __future__ import annotations

import numpy as np

from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.define import NUMERIC, Array, tensor_type
from inlaid.ops.window import WindowAttrs, WindowAxis, window_axes, window_shape
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type


@dataclass(frozen=True)
class UnfoldAttrs(WindowAttrs):
    """`kernel`: the extent of the window per spatial axis. The other attributes are those of `conv`."""

    kernel: tuple[int, ...] = ()


def _windows(attrs: UnfoldAttrs, shape: tuple[Dim, ...]) -> tuple[tuple[WindowAxis, ...], tuple[Dim, ...]]:
    """Return the window along each spatial dimension, and the number of its positions along each."""
    axes = window_axes(attrs, attrs.kernel)
    return axes, window_shape(shape[2:], axes)


def _infer(attrs: UnfoldAttrs, x: Type) -> Type:
    data = tensor_type(x, NUMERIC)
    if data.rank != 2 + len(attrs.kernel) or not attrs.kernel:
        raise ValueError(f"x must have rank {len(attrs.kernel) + 2} for the kernel {attrs.kernel}, got {data.rank}")
    return TensorType((*data.shape[:2], *attrs.kernel, *_windows(attrs, data.shape)[1]), data.dtype)


def _reference(attrs: UnfoldAttrs, x: Array) -> Array:
    axes, counts = _windows(attrs, x.shape)
    pads = [(arith.evaluate(axis.before, {}), arith.evaluate(axis.after, {})) for axis in axes]
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    result = np.empty((*x.shape[:2], *attrs.kernel, *(arith.evaluate(count, {}) for count in counts)), x.dtype)
    for tap in np.ndindex(*attrs.kernel):
        source = tuple(
            slice(tap_position * axis.dilation, tap_position * axis.dilation + (count - 1) * axis.stride + 1, axis.stride)
            for tap_position, axis, count in zip(tap, axes, result.shape[-len(axes) :], strict=True)
        )
        result[(slice(None), slice(None), *tap)] = padded[(slice(None), slice(None), *source)]
    return result


def _compute(attrs: UnfoldAttrs, x: te.Tensor) -> te.Tensor:
    axes, counts = _windows(attrs, x.shape)

    def element(n: arith.Var, c: arith.Var, *rest: arith.Var) -> ir.Expr:
        inside: arith.Expr = arith.ONE
        data_index: list[Dim] = []
        for tap, output, axis, extent in zip(rest[: len(axes)], rest[len(axes) :], axes, x.shape[2:], strict=True):
            coordinate = output * axis.stride + tap * axis.dilation - axis.before
            data_index.append(coordinate)
            if axis.before != 0:
                inside = arith.logical_and(inside, arith.compare(">=", coordinate, 0))
            if axis.after != 0:
                inside = arith.logical_and(inside, arith.compare("<", coordinate, extent))
        return te.select(inside, x[(n, c, *data_index)], te.const(0, x.dtype))

    result: te.Tensor = te.compute((*x.shape[:2], *attrs.kernel, *counts), element, "unfold")
    return result


unfold = Operator(
    "unfold", _infer, UnfoldAttrs, reference=_reference, compute=_compute, fusion=FusionKind.OPAQUE, arity=(1, 1), inputs=("x",)
)
"""Extract the windows of x (N, C, spatial...), padded with zeros: (N, C, kernel..., number of windows along each dimension...).

Opaque, because a fused producer would be recomputed for every window."""
