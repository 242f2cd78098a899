"""Drop the taps of a convolution's window that read padding alone, such as the outer ones of a 3x3 window over an image of 1x1.

Taps are dropped at both ends of an axis, together with the padding that they read.
"""

from __future__ import annotations

import dataclasses

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.convolution import ConvAttrs
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime.records import dataclass


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
        dropped = first * self.dilation, (self.window - first - count) * self.dilation
        return (first, count) if dropped[0] <= self.before and dropped[1] <= self.after else (0, self.window)


def padding_taps(function: Function, supports: Supports = supports_everything) -> Function:
    """Drop taps of convolutions with constant weights and static images. Returns the same object if no tap reads padding alone."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.conv or not isinstance(new.args[1], Constant):
            return new
        cropped = _cropped(new)
        return new if cropped is None or not is_supported(cropped, supports, *new.args) else cropped

    return transform_function(function, visit)


def _cropped(conv: Call) -> Call | None:
    """Rewrite a convolution to the taps that it needs; None if it needs all."""
    assert isinstance(conv.attrs, ConvAttrs) and isinstance(conv.args[1], Constant)
    data, weights = tensor_type(conv.args[0].type).shape, conv.args[1].data
    rank = weights.ndim - 2
    pads = conv.attrs.pads
    if not any(pads) or 0 in weights.shape:
        return None
    ones = (1,) * rank
    results = tensor_type(conv.type).shape[2:]
    columns = zip(
        data[2:],
        weights.shape[2:],
        results,
        conv.attrs.strides or ones,
        conv.attrs.dilations or ones,
        pads[:rank],
        pads[rank:],
        strict=True,
    )
    axes = []
    for column in columns:
        if not all(isinstance(number, int) for number in column) or column[2] == 0:
            return None
        axes.append(_Axis(*map(int, column)))
    used = [axis.used_taps() for axis in axes]
    if all(count == axis.window for axis, (_, count) in zip(axes, used, strict=True)):
        return None
    taps = weights[(..., *(slice(first, first + count) for first, count in used))]
    before = [axis.before - first * axis.dilation for axis, (first, _) in zip(axes, used, strict=True)]
    after = [axis.after - (axis.window - first - count) * axis.dilation for axis, (first, count) in zip(axes, used, strict=True)]
    attrs = dataclasses.replace(conv.attrs, pads=(*before, *after) if any((*before, *after)) else ())
    return call(ops.conv, (conv.args[0], constant(taps.copy(), span=conv.args[1].span)), attrs, conv.span)
