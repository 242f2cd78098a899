"""Sliding windows, shared by convolution and pooling.

Data has shape (N, C, spatial...). Along each spatial dimension, the window at output position `o` reads the inputs `o * stride + k
* dilation - before` for k in [0, kernel). `pads` are the paddings before all axes, then the paddings after them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlaid.graph.conditions import require_at_least
from inlaid.graph.operator import Attrs
from inlaid.ops.define import Array
from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class WindowAttrs(Attrs):
    """Attributes of sliding windows. Empty tuples mean all ones (`strides`, `dilations`) or all zeros (`pads`)."""

    strides: tuple[int, ...] = ()
    pads: tuple[Dim, ...] = ()
    dilations: tuple[int, ...] = ()


@dataclass(frozen=True)
class WindowAxis:
    """The window along one spatial dimension of the data."""

    kernel: Dim
    stride: int
    dilation: int
    before: Dim
    after: Dim

    @property
    def span(self) -> Dim:
        """Extent of the dilated window, from its first to its last tap."""
        return (self.kernel - 1) * self.dilation + 1

    def positions(self, extent: Dim, what: str = "the number of windows") -> Dim:
        """Return the number of windows over an extent. `what` names the number in errors. States the precondition that the number
        is >= 1; raises ValueError if it cannot hold."""
        free_extent = extent + self.before + self.after - self.span
        count = arith.unwrap(arith.simplify(free_extent // self.stride + 1))
        require_at_least(count, 1, f"{what} (windows of extent {self.span} over {extent} padded by {self.before} and {self.after})")
        return count


def window_axes(attrs: WindowAttrs, kernel: Sequence[Dim]) -> tuple[WindowAxis, ...]:
    """Return a `WindowAxis` per spatial dimension, with defaults for empty attributes. Raises ValueError for invalid attributes."""
    rank = len(kernel)
    strides = attrs.strides or (1,) * rank
    dilations = attrs.dilations or (1,) * rank
    pads = attrs.pads or (0,) * (2 * rank)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ValueError(f"expected {rank} strides and dilations and {2 * rank} pads for {rank} spatial dimensions")
    if min((*strides, *dilations), default=1) < 1:
        raise ValueError(f"strides and dilations must be >= 1, got {attrs.strides} and {attrs.dilations}")
    for number, dim in enumerate(kernel):
        require_at_least(dim, 1, f"dimension {number} of the window")
    for dim in pads:
        require_at_least(dim, 0, "a pad")
    return tuple(map(WindowAxis, kernel, strides, dilations, pads[:rank], pads[rank:]))


def window_shape(spatial: Sequence[Dim], axes: Sequence[WindowAxis]) -> tuple[Dim, ...]:
    """Return the spatial shape of the output."""
    return tuple(
        axis.positions(extent, f"dimension {number} of the output")
        for number, (axis, extent) in enumerate(zip(axes, spatial, strict=True), 2)
    )


def pad_spatial(x: te.Tensor, axes: Sequence[WindowAxis], value: ir.Expr) -> te.Tensor:
    """Build the stage "pad" that pads the spatial dimensions with a value. Returns the tensor itself if nothing is padded."""
    if all(isinstance(axis.before, int) and axis.before == 0 and axis.after == 0 for axis in axes):
        return x
    spatial = x.shape[2:]
    shape = x.shape[:2] + tuple(axis.before + extent + axis.after for axis, extent in zip(axes, spatial, strict=True))

    def element(n: arith.Var, c: arith.Var, *padded: arith.Var) -> ir.Expr:
        inside: arith.Expr = arith.ONE
        data_index: list[Dim] = []
        for axis, extent, index in zip(axes, spatial, padded, strict=True):
            coordinate = index - axis.before
            data_index.append(coordinate)
            if axis.before != 0:
                inside = arith.logical_and(inside, arith.compare(">=", coordinate, 0))
            if axis.after != 0:
                inside = arith.logical_and(inside, arith.compare("<", coordinate, extent))
        return te.select(inside, x[(n, c, *data_index)], value)

    result: te.Tensor = te.compute(shape, element, "pad")
    return result


def window_index(axes: Sequence[WindowAxis], outputs: Sequence[Dim], taps: Sequence[te.Axis]) -> tuple[Dim, ...]:
    """Return the index of a tap of a window in the padded data."""
    return tuple(output * axis.stride + tap * axis.dilation for axis, output, tap in zip(axes, outputs, taps, strict=True))


def tap_axes(axes: Sequence[WindowAxis]) -> tuple[te.Axis, ...]:
    """Make the reduction axes over the taps of a window."""
    return tuple(te.reduce_axis(axis.kernel, f"k{number}") for number, axis in enumerate(axes))


def windows(x: Array, axes: Sequence[WindowAxis], value: float) -> Array:
    """Return a view of the padded data as windows: (N, C, output positions..., taps...)."""
    first = x.ndim - len(axes)
    widths = [(0, 0)] * first + [(arith.evaluate(axis.before, {}), arith.evaluate(axis.after, {})) for axis in axes]
    padded = np.pad(x, widths, constant_values=value)
    spans = tuple(arith.evaluate(axis.span, {}) for axis in axes)
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(first, x.ndim)))
    steps = tuple(slice(None, None, axis.stride) for axis in axes) + tuple(slice(None, None, axis.dilation) for axis in axes)
    result: Array = view[(slice(None),) * first + steps]
    return result


def inner_taps(axes: Sequence[WindowAxis], spatial: Sequence[int]) -> Array:
    """Count the taps of each window that are not padding, for static extents: int32 of shape (output spatial...)."""
    counts: Array = np.ones((), np.int32)
    for axis, extent in zip(axes, spatial, strict=True):
        positions, before, kernel = axis.positions(extent), axis.before, axis.kernel
        assert isinstance(positions, int) and isinstance(before, int) and isinstance(kernel, int)
        starts = np.arange(positions) * axis.stride - before
        first = np.maximum(-(starts // axis.dilation), 0)
        end = np.minimum((extent - 1 - starts) // axis.dilation + 1, kernel)
        counts = np.multiply.outer(counts, np.maximum(end - first, 0).astype(np.int32))
    return counts
