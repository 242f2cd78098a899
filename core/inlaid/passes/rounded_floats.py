"""Keep requantized sums that are only dequantized again in float32, such as the operand of a residual sum.

    dequantize(requantize(x, s, z), t, z)    =>    round(min(max(float32(x) * s, low - z), high - z)) * t

One instruction rounds floats; conversion to bytes and back takes nine. Bounds are operands, so that layers share a kernel.
"""

from __future__ import annotations

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, constant
from inlaid.graph.uses import UseCounts, rewrite
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid_runtime.types import TensorType


def rounded_floats(function: Function, supports: Supports = supports_everything) -> Function:
    """Rewrite requantized sums with constant parameters whose only reader dequantizes them. Returns the same object if there are
    none."""

    def visit(expr: Expr, uses: UseCounts) -> Expr | None:
        return _rounded(expr, uses, supports)

    return rewrite(function, visit)


def _rounded(expr: Expr, uses: UseCounts, supports: Supports) -> Expr | None:
    """Rewrite a `dequantize`; None for any other expression, or if the target does not support the result."""
    if not isinstance(expr, Call) or expr.callee is not ops.dequantize or expr.attrs.dtype != "float32" or len(expr.args) != 3:
        return None
    stored, scale, point = expr.args
    if not isinstance(stored, Call) or stored.callee is not ops.requantize or not uses.single(stored):
        return None
    total, factor, requantize_point = stored.args
    assert isinstance(stored.type, TensorType)
    if not isinstance(factor, Constant) or not np.isfinite(factor.data).all() or not isinstance(scale, Constant):
        return None
    if (
        not isinstance(point, Constant)
        or not isinstance(requantize_point, Constant)
        or scale.data.ndim
        or point.data.ndim
        or requantize_point.data.ndim
    ):
        return None
    if scale.data.dtype != np.float32 or point.data != requantize_point.data:
        return None
    low, high = (constant(np.float32(end - int(point.data)), span=stored.span) for end in stored.type.dtype.limits)
    factor_by_axis = factor.data.reshape([-1 if axis == stored.attrs.axis else 1 for axis in range(stored.type.rank)])
    scaled = ops.mul(
        ops.cast(total, dtype="float32"),
        constant(factor_by_axis if factor.data.ndim else factor.data, span=factor.span),
        span=stored.span,
    )
    bounded = ops.minimum(ops.maximum(scaled, low, span=stored.span), high, span=stored.span)
    result = ops.mul(ops.round(bounded, span=stored.span), scale, span=expr.span)
    return result if is_supported(result, supports, total) else None
