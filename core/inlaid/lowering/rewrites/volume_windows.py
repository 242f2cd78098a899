"""Take the maximum of windows over volumes plane by plane, then across planes, by windows over images.

    max_pool(x, kernel=(a, b, c))    =>    max_pool(max_pool(planes(x), kernel=(b, c)), kernel=(a, 1))

Images have schedules, and a window of 3x3x3 takes 9 + 3 comparisons instead of 27. The maximum is the same.
"""

from __future__ import annotations

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Function
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.pool import PoolAttrs
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime import arith

VOLUME = 3
"""Number of spatial axes of a volume."""


def volume_windows(function: Function, supports: Supports = supports_everything) -> Function:
    """Rewrite maxima of windows over volumes. Returns the same object if there are none, or if the target does not support a new
    operator."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.max_pool or tensor_type(new.type).rank != VOLUME + 2:
            return new
        planes = _by_planes(new)
        return planes if is_supported(planes, supports, *new.args) else new

    return transform_function(function, visit)


def _by_planes(pool: Call) -> Expr:
    (x,), attrs, span = pool.args, pool.attrs, pool.span
    assert isinstance(attrs, PoolAttrs)
    batch, channels, depth, *plane = tensor_type(x.type).shape
    ones = (1,) * VOLUME
    strides, dilations, pads = attrs.strides or ones, attrs.dilations or ones, attrs.pads or (0,) * 2 * VOLUME
    images = ops.reshape(x, shape=(batch, arith.product((channels, depth)), *plane), span=span)
    plane_maxima = ops.max_pool(
        images, kernel=attrs.kernel[1:], strides=strides[1:], dilations=dilations[1:], pads=(*pads[1:3], *pads[4:]), span=span
    )
    height, width = tensor_type(plane_maxima.type).shape[2:]
    rows = ops.reshape(plane_maxima, shape=(batch, channels, depth, arith.product((height, width))), span=span)
    maxima = ops.max_pool(
        rows,
        kernel=(attrs.kernel[0], 1),
        strides=(strides[0], 1),
        dilations=(dilations[0], 1),
        pads=(pads[0], 0, pads[3], 0),
        span=span,
    )
    return ops.reshape(maxima, shape=tensor_type(pool.type).shape, span=span)
