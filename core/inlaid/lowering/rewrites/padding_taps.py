"""Drop the taps of a convolution's window that read padding.

Taps that read padding alone, such as the outer ones of a 3x3 window over an image of 1x1, are dropped at both ends of an axis,
together with the padding. Where a dilated window reads much padding, the result is computed in bands of positions that read the
same taps: with a dilation of 12, the first 12 rows of an image need two rows of a 3x3 window, and an image of 28x28 half of all
products.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.convolution import ConvAttrs
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.plugins.costs import CostConstants
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import from_numpy

Array = np.ndarray[Any, Any]

MAX_POSITIONS = 1024
"""Maximum positions of an axis of a result that is divided into bands, since this takes time for each position."""


@dataclass(frozen=True)
class _Band:
    """Positions of a result along an axis, from `begin` to `end`, that read the taps from `first` on, `count` of them."""

    begin: int
    end: int
    first: int
    count: int


@dataclass(frozen=True)
class _Axis:
    """A spatial axis of a convolution: extents of data, window and result, and padding before and after."""

    extent: int
    window: int
    outputs: int
    stride: int
    dilation: int
    before: int
    after: int

    def used_taps(self) -> tuple[int, int]:
        """Return the first tap that reads an element, and the number of taps to the last one that does. All taps if none does, or
        if the data would have to be cropped."""
        reach = (self.outputs - 1) * self.stride
        taps = [
            tap
            for tap in range(self.window)
            if tap * self.dilation - self.before + reach >= 0 and tap * self.dilation - self.before < self.extent
        ]
        if not taps:
            return 0, self.window
        first, count = taps[0], taps[-1] - taps[0] + 1
        dropped_extents = first * self.dilation, (self.window - first - count) * self.dilation
        return (first, count) if dropped_extents[0] <= self.before and dropped_extents[1] <= self.after else (0, self.window)

    def bands(self) -> list[_Band]:
        """Divide the result by which taps read no padding."""
        result: list[_Band] = []
        for position in range(self.outputs):
            start = position * self.stride - self.before
            taps = [tap for tap in range(self.window) if 0 <= start + tap * self.dilation < self.extent]
            first, count = (taps[0], len(taps)) if taps else (0, 0)
            if result and (result[-1].first, result[-1].count) == (first, count):
                result[-1] = dataclasses.replace(result[-1], end=position + 1)
            else:
                result.append(_Band(position, position + 1, first, count))
        return result


def padding_taps(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Drop taps of convolutions with constant weights and static images. Returns the same object if no tap reads padding alone."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.conv or not isinstance(new.args[1], Constant):
            return new
        axes = _axes(new)
        if axes is None:
            return new
        for rewritten in (_in_bands(new, axes, context.capabilities.core.costs), _cropped(new, axes)):
            if rewritten is not None and is_supported(rewritten, supports, *new.args):
                return rewritten
        return new

    return transform_function(function, visit)


def _axes(conv: Call) -> list[_Axis] | None:
    """Return the spatial axes of a convolution with padding; None if it has none, no elements, or symbolic extents."""
    assert isinstance(conv.attrs, ConvAttrs) and isinstance(conv.args[1], Constant)
    data, weights, results = (tensor_type(item.type).shape for item in (*conv.args, conv))
    rank = len(weights) - 2
    pads = conv.attrs.pads
    if not any(pads) or 0 in weights or 0 in results or not _is_finite(conv.args[1].data):
        return None
    ones = (1,) * rank
    steps = conv.attrs.strides or ones, conv.attrs.dilations or ones
    columns = list(zip(data[2:], weights[2:], results[2:], *steps, pads[:rank], pads[rank:], strict=True))
    if not all(isinstance(number, int) for column in columns for number in column):
        return None
    return [_Axis(*map(int, column)) for column in columns]


def _is_finite(weights: Array) -> bool:
    """Test whether products with padding are zero, which is not so for an infinite weight."""
    return from_numpy(weights.dtype).is_int or bool(np.isfinite(weights.astype(np.float64)).all())


def _cropped(conv: Call, axes: list[_Axis]) -> Call | None:
    """Rewrite a convolution to the taps that it needs; None if it needs all."""
    tap_ranges = [axis.used_taps() for axis in axes]
    if all(count == axis.window for axis, (_, count) in zip(axes, tap_ranges, strict=True)):
        return None
    pads_before = [axis.before - first * axis.dilation for axis, (first, _) in zip(axes, tap_ranges, strict=True)]
    pads_after = [
        axis.after - (axis.window - first - count) * axis.dilation for axis, (first, count) in zip(axes, tap_ranges, strict=True)
    ]
    pads = (*pads_before, *pads_after) if any((*pads_before, *pads_after)) else ()
    return call(ops.conv, (conv.args[0], _taps(conv, tap_ranges)), dataclasses.replace(conv.attrs, pads=pads), conv.span)


def _taps(conv: Call, tap_ranges: list[tuple[int, int]]) -> Constant:
    """Return the weights of some taps of each axis."""
    weights = conv.args[1]
    assert isinstance(weights, Constant)
    taps = tuple(slice(first, first + count) for first, count in tap_ranges)
    return constant(weights.data[(slice(None), slice(None), *taps)].copy(), span=weights.span)


def _in_bands(conv: Call, axes: list[_Axis], costs: CostConstants) -> Expr | None:
    """Compute a convolution in bands without padding; None if that saves too little."""
    batch, channels, *_ = tensor_type(conv.args[0].type).shape
    taps = math.prod(tensor_type(conv.args[1].type).shape)
    products = taps * math.prod(axis.outputs for axis in axes) * (batch if isinstance(batch, int) else 1)
    # Few positions of a long axis read padding.
    if products < costs.banded_products or any(axis.outputs > MAX_POSITIONS for axis in axes):
        return None
    bands = [axis.bands() for axis in axes]
    read_share = 1.0
    for axis, parts in zip(axes, bands, strict=True):
        read_share *= sum((band.end - band.begin) * band.count for band in parts) / (axis.outputs * axis.window)
    if read_share > costs.read_share or not all(band.count for parts in bands for band in parts):
        return None
    lengths = [band.end - band.begin for parts in bands if len(parts) > 1 for band in parts]
    if lengths and min(lengths) < costs.shortest_band:
        return None

    def part(axis_bands: tuple[_Band, ...]) -> Expr:
        if len(axis_bands) < len(axes):
            pieces = [part((*axis_bands, band)) for band in bands[len(axis_bands)]]
            return ops.concat(*pieces, axis=2 + len(axis_bands), span=conv.span) if len(pieces) > 1 else pieces[0]
        starts, ends = [0, 0], [batch, channels]
        for axis, band in zip(axes, axis_bands, strict=True):
            starts.append(band.begin * axis.stride + band.first * axis.dilation - axis.before)
            last = band.first + band.count - 1
            ends.append((band.end - 1) * axis.stride + last * axis.dilation - axis.before + 1)
        data = ops.strided_slice(conv.args[0], begin=tuple(starts), end=tuple(ends), strides=(1,) * len(starts), span=conv.span)
        weights = _taps(conv, [(band.first, band.count) for band in axis_bands])
        return call(ops.conv, (data, weights), dataclasses.replace(conv.attrs, pads=()), conv.span)

    return part(())
