"""Sliding windows: what convolution and pooling share.

Data is N C followed by spatial dimensions. A window at output position `o` reads, along each spatial dimension, the inputs
`o * stride + k * dilation - before` for k in [0, kernel); `pads` are all paddings before, then all paddings after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlaid import arith
from inlaid.arith import Constraint, Dim
from inlaid.graph.conditions import require
from inlaid.graph.operator import Attrs
from inlaid.ops.define import Array
from inlaid.tensor import ir, te


@dataclass(frozen=True)
class WindowAttrs(Attrs):
    """Steps and padding of a sliding window; empty tuples stand for ones (`strides`, `dilations`) and zeros (`pads`)."""

    strides: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    dilations: tuple[int, ...] = ()


@dataclass(frozen=True)
class Axis:
    """A window along one spatial dimension of the data."""

    kernel: Dim
    stride: int
    dilation: int
    before: Dim
    after: Dim

    @property
    def span(self) -> Dim:
        """How far the window reaches: the extent from its first to its last tap."""
        return (self.kernel - 1) * self.dilation + 1

    def positions(self, extent: Dim, what: str = "the number of windows") -> Dim:
        """The number of windows over an extent, which is called `what` in errors. The call requires that it is at least 1. Raises
        ValueError where not even one fits."""
        room = extent + self.before + self.after - self.span
        count = arith.unwrap(arith.simplify(room // self.stride + 1))
        what = f"{what} (windows of extent {self.span} over {extent} padded by {self.before} and {self.after})"
        require(Constraint(arith.unwrap(arith.compare(">=", room, 0)), what, ">= 1", count))
        return count


def window_axes(attrs: WindowAttrs, kernel: Sequence[Dim]) -> tuple[Axis, ...]:
    """The attributes by spatial dimension, defaults filled in. Raises ValueError where their number or sign is wrong."""
    rank = len(kernel)
    strides = attrs.strides or (1,) * rank
    dilations = attrs.dilations or (1,) * rank
    pads = attrs.pads or (0,) * (2 * rank)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ValueError(f"{rank} spatial dimensions need {rank} strides and dilations and {2 * rank} pads")
    if min((*strides, *dilations), default=1) < 1:
        raise ValueError("strides and dilations are positive")
    for number, dim in enumerate(kernel):
        require(arith.at_least(dim, 1, f"dimension {number} of the window"))
    for dim in pads:
        require(arith.at_least(dim, 0, "a pad"))
    return tuple(map(Axis, kernel, strides, dilations, pads[:rank], pads[rank:]))


def window_shape(spatial: Sequence[Dim], axes: Sequence[Axis]) -> tuple[Dim, ...]:
    """The spatial shape of the output."""
    return tuple(
        axis.positions(extent, f"dimension {number} of the output")
        for number, (axis, extent) in enumerate(zip(axes, spatial, strict=True), 2)
    )


def pad_spatial(x: te.Tensor, axes: Sequence[Axis], value: ir.Expr) -> te.Tensor:
    """A stage "pad" that surrounds the spatial dimensions with a value; the tensor itself where nothing is padded."""
    if all(isinstance(axis.before, int) and axis.before == 0 and axis.after == 0 for axis in axes):
        return x
    spatial = x.shape[2:]
    shape = x.shape[:2] + tuple(axis.before + extent + axis.after for axis, extent in zip(axes, spatial, strict=True))

    def element(n: arith.Var, c: arith.Var, *padded: arith.Var) -> ir.Expr:
        inside: arith.Expr = arith.ONE
        own: list[Dim] = []
        for axis, extent, index in zip(axes, spatial, padded, strict=True):
            at = index - axis.before
            own.append(at)
            if axis.before != 0:
                inside = arith.logical_and(inside, arith.compare(">=", at, 0))
            if axis.after != 0:
                inside = arith.logical_and(inside, arith.compare("<", at, extent))
        return te.select(inside, x[(n, c, *own)], value)

    made: te.Tensor = te.compute(shape, element, "pad")
    return made


def window_index(axes: Sequence[Axis], outputs: Sequence[Dim], taps: Sequence[te.Axis]) -> tuple[Dim, ...]:
    """Where in the padded data the tap of a window lies."""
    return tuple(output * axis.stride + tap * axis.dilation for axis, output, tap in zip(axes, outputs, taps, strict=True))


def tap_axes(axes: Sequence[Axis]) -> tuple[te.Axis, ...]:
    """Reduction axes over the taps of a window."""
    return tuple(te.reduce_axis(axis.kernel, f"k{number}") for number, axis in enumerate(axes))


def windows(x: Array, axes: Sequence[Axis], value: float) -> Array:
    """A view of the padded data as windows: shape (N, C, output positions..., taps...)."""
    first = x.ndim - len(axes)
    widths = [(0, 0)] * first + [(arith.evaluate(axis.before, {}), arith.evaluate(axis.after, {})) for axis in axes]
    padded = np.pad(x, widths, constant_values=value)
    spans = tuple(arith.evaluate(axis.span, {}) for axis in axes)
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(first, x.ndim)))
    steps = tuple(slice(None, None, axis.stride) for axis in axes) + tuple(slice(None, None, axis.dilation) for axis in axes)
    found: Array = view[(slice(None),) * first + steps]
    return found
