"""Take the maximum or the mean of windows over volumes plane by plane, then across planes, by windows over images.

    max_pool(x, kernel=(a, b, c))    =>    max_pool(max_pool(planes(x), kernel=(b, c)), kernel=(a, 1))

Images have schedules, and a window of 3x3x3 takes 9 + 3 comparisons instead of 27. The maximum is the same. A mean is the mean of
the planes' means, since these have equally many elements, whether or not padding counts; narrow floats are averaged in float32
and rounded once.
"""

from __future__ import annotations

from typing import TypeVar

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Function, call
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.compose import cast_to, widened
from inlaid.ops.pool import PoolAttrs
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import replace

VOLUME = 3
"""Number of spatial axes of a volume."""
_POOLS = (ops.max_pool, ops.avg_pool)
_Extent = TypeVar("_Extent", int, Dim)


def volume_windows(function: Function, supports: Supports = supports_everything) -> Function:
    """Rewrite maxima and means of windows over volumes. Returns the same object if nothing changes, or if the target does not
    support a new operator."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee not in _POOLS or tensor_type(new.type).rank != VOLUME + 2:
            return new
        planes = _by_planes(new)
        return planes if is_supported(planes, supports, *new.args) else new

    return transform_function(function, visit)


def _by_planes(pool: Call) -> Expr:
    (x,), attrs, span = pool.args, pool.attrs, pool.span
    assert isinstance(attrs, PoolAttrs)
    if pool.callee is ops.avg_pool:
        x = widened(x)
    batch, channels, depth, *plane = tensor_type(x.type).shape
    images = ops.reshape(x, shape=(batch, arith.product((channels, depth)), *plane), span=span)
    within = _pooled(pool, images, slice(1, VOLUME))
    height, width = tensor_type(within.type).shape[2:]
    rows = ops.reshape(within, shape=(batch, channels, depth, arith.product((height, width))), span=span)
    across = _pooled(pool, rows, slice(0, 1))
    result = tensor_type(pool.type)
    return cast_to(ops.reshape(across, shape=result.shape, span=span), result.dtype)


def _pooled(pool: Call, images: Expr, axes: slice) -> Expr:
    """Pool images by the window of a volume's `axes`, of which the last ones may be missing."""
    attrs = pool.attrs
    assert isinstance(attrs, PoolAttrs)
    ones, none = (1,) * VOLUME, (0,) * VOLUME
    missing = 2 - len(range(VOLUME)[axes])

    def part(values: tuple[_Extent, ...], default: _Extent) -> tuple[_Extent, ...]:
        return values[axes] + (default,) * missing

    before, after = (attrs.pads[:VOLUME], attrs.pads[VOLUME:]) if attrs.pads else (none, none)
    window = replace(
        attrs,
        kernel=part(attrs.kernel, 1),
        strides=part(attrs.strides or ones, 1),
        dilations=part(attrs.dilations or ones, 1),
        pads=(*part(before, 0), *part(after, 0)),
    )
    return call(pool.callee, [images], window, pool.span)
