"""Rewrite 1x1 convolutions to matrix products if output channels do not fill vectors.

A 1x1 convolution is the product of its weights and the image with its pixels flattened, which needs no copy. Vectors then run over
pixels, so that the number of channels per group does not matter. Element-wise operators that follow, such as the bias, move before
the reshape back, so that they fuse into the product.
"""

from __future__ import annotations

import math
from typing import Any

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, constant
from inlaid.graph.operator import Operator
from inlaid.graph.transform import transform
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.plugins.contract import Capabilities
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, size_hint
from inlaid_runtime.types import TensorType


def pointwise_products(function: Function, capabilities: Capabilities, supports: Supports = supports_everything) -> Function:
    """Rewrite float32 1x1 convolutions, and grouped bfloat16 ones, to products if that is predicted to be faster on a target.
    Returns the same object if there are none, the target has no vectors, or the target does not support the products."""
    lanes = capabilities.vector_bits // 32
    if not lanes:
        return function
    products: dict[int, Expr] = {}

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.callee, Operator) or not isinstance(new.type, TensorType):
            return new
        inner = None
        if new.callee is ops.conv and _is_pointwise(new) and _is_faster_over_pixels(new, lanes, capabilities):
            inner = _product(new)
        elif new.callee.elementwise and len(new.args) == 1 and id(new.args[0]) in products:
            inner = Call(
                _elementwise_type(new, products[id(new.args[0])]), new.span, new.callee, (products[id(new.args[0])],), new.attrs
            )
        elif new.callee is ops.add:
            inner = _biased(new, products)
        if inner is None:
            return new
        reshaped = ops.reshape(inner, shape=new.type.shape, span=new.span)
        sources = [products.get(id(arg), arg) for arg in new.args]
        if not is_supported(reshaped, supports, *sources):
            return new
        products[id(reshaped)] = inner
        return reshaped

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return changed


def _is_pointwise(call: Call) -> bool:
    attrs: Any = call.attrs
    types = [call.type, *(arg.type for arg in call.args)]
    names = [item.dtype.name for item in types if isinstance(item, TensorType)]
    if names != ["float32"] * 3 and (names != ["float32", "bfloat16", "bfloat16"] or attrs.groups == 1):
        return False
    window = _shape(call.args[1])[2:]
    has_single_taps = all(size == 1 for size in (*window, *attrs.strides)) and all(amount == 0 for amount in attrs.pads)
    return has_single_taps and isinstance(call.args[1], Constant) and isinstance(_shape(call.args[0])[1], int)


def _shape(expr: Expr) -> tuple[Dim, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def _sizes(expr: Expr) -> tuple[int, ...]:
    """Return the shape of a tensor, with size hints for symbolic dimensions."""
    return tuple(map(size_hint, _shape(expr)))


def _dtype(expr: Expr) -> str:
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name


def _is_faster_over_pixels(call: Call, lanes: int, capabilities: Capabilities) -> bool:
    """Test whether a product over pixels is predicted to be faster than the convolution, including the copies between
    channel-blocked and row-major layouts. Convolutions that are not 2-d compute channels one by one."""
    attrs: Any = call.attrs
    channels, depth = _sizes(call.args[1])[:2]
    elements = math.prod(_sizes(call))
    seconds = 2 * elements * depth / capabilities.peak
    copies = 2 * 4 * (elements + math.prod(_sizes(call.args[0]))) / capabilities.bandwidth
    image = _sizes(call)[2:]
    scalar_rate = capabilities.core.costs.chain_rate / lanes
    channel_rate = (
        _filled_by_channels(channels // attrs.groups, lanes, attrs.groups == 1, scalar_rate) if len(image) == 2 else scalar_rate
    )
    return seconds / _filled(math.prod(image), lanes) + copies < seconds / channel_rate


def _filled_by_channels(channels: int, lanes: int, is_single_group: bool, scalar_rate: float) -> float:
    """Return the fraction of lanes that the output channels of a group fill, in vectors or half vectors. A single group may be
    padded; channels of several groups that fill no half vectors are computed one by one, at the rate
    `scalar_rate`."""
    half = max(lanes // 2, 1)
    if channels % lanes == 0 or (is_single_group and 2 * channels > lanes):
        return _filled(channels, lanes)
    return half / lanes if channels % half == 0 or (is_single_group and 2 * channels > half) else scalar_rate


def _filled(count: int, lanes: int) -> float:
    """Return the fraction of lanes that `count` elements fill."""
    return count / (-(-count // lanes) * lanes)


def _product(call: Call) -> Expr:
    """Build the matrix product of each group's weights and pixels."""
    x, w = call.args
    assert isinstance(w, Constant)
    attrs: Any = call.attrs
    batch, channels, *image = _shape(x)
    outputs, depth = w.data.shape[:2]
    groups = attrs.groups
    shape = (batch, groups, channels // groups, arith.product(tuple(image)))
    pixels = ops.reshape(x, shape=shape if groups > 1 else (shape[0], *shape[2:]), span=call.span)
    weight_shape = (groups, outputs // groups, depth) if groups > 1 else (outputs, depth)
    return ops.matmul(constant(w.data.reshape(weight_shape)), pixels, out_dtype=_dtype(call), span=call.span)


def _biased(call: Call, products: dict[int, Expr]) -> Expr | None:
    """Move the addition of a per-channel constant before the reshape; None for any other call."""
    for product, other in (call.args, call.args[::-1]):
        inner = products.get(id(product))
        if inner is None or not isinstance(other, Constant) or not isinstance(call.type, TensorType):
            continue
        channels, rank = call.type.shape[1], len(call.type.shape)
        shape = (1,) * (rank - other.data.ndim) + other.data.shape
        if product.type != call.type or shape != (1, channels, *(1,) * (rank - 2)):
            continue
        return ops.add(inner, constant(other.data.reshape(*_sizes(inner)[1:-1], 1)), span=call.span)
    return None


def _elementwise_type(call: Call, inner: Expr) -> TensorType:
    """Return the type of an element-wise result over the shape of `inner`."""
    assert isinstance(call.type, TensorType)
    return TensorType(_shape(inner), call.type.dtype)
