"""Merge or pad groups of integer convolutions whose groups do not fill vectors.

Merged, adjacent groups become one, with zero weights where an output does not depend on an input. A dot-product instruction sums
four or more products at once, so multiplying by zeros costs less than computing channels one by one. Padded, each group has more
channels, with zero weights, and data and result are copied: groups of many channels, such as 29, have fewer products then. Integer
sums are unchanged. bfloat16 is excluded, since zero times infinity is NaN.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, constant
from inlaid.graph.transform import transform
from inlaid.ops.compose import scalar
from inlaid.ops.convolution import ConvAttrs
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.plugins.costs import CostConstants
from inlaid.tensor.scheduling.dot_products import Dot, find_dots
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import size_hint
from inlaid_runtime.types import TensorType


def merge_groups(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite grouped integer convolutions with constant weights to fewer groups. Returns the same object if there are none, or if
    the target has no dot-product instruction for their dtypes or does not support the larger groups."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.conv or not isinstance(new.args[1], Constant):
            return new
        assert isinstance(new.attrs, ConvAttrs)
        types = (new.args[0].type, new.args[1].type, new.type)
        if new.attrs.groups == 1 or not all(isinstance(item, TensorType) and item.dtype.is_int for item in types):
            return new
        data, weights, total = (item.dtype.name for item in types if isinstance(item, TensorType))
        dots = find_dots(data, weights, total, context)
        steps, count = _count(new.args[1].data.shape, new.attrs.groups, dots)
        if count == 1 or _product_steps(new, dots, context.capabilities.core.costs) < steps:
            return new
        padded = _padded(new, steps, dots, context.capabilities.core.costs)
        if padded is not None and is_supported(padded, supports, *new.args):
            return padded
        merged = constant(_merged(new.args[1].data, new.attrs.groups, count), weights)
        conv = call(ops.conv, [new.args[0], merged], replace(new.attrs, groups=new.attrs.groups // count), new.span)
        return conv if supports(conv) else new

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return changed


def _padded(conv: Call, steps: float, dots: list[Dot], costs: CostConstants) -> Expr | None:
    """Pad the channels of each group, so that they fill an instruction; None unless that takes fewer instructions than `steps` per
    position of the window, pixel and group."""
    x, weights = conv.args
    assert isinstance(conv.attrs, ConvAttrs) and isinstance(conv.type, TensorType) and isinstance(weights, Constant)
    assert isinstance(x.type, TensorType)
    groups, (outputs, inputs, *window) = conv.attrs.groups, weights.data.shape
    outputs //= groups
    copies = costs.copied_channel * (inputs + outputs) / math.prod(window)
    options = [(-(-inputs // dot.group) * -(-outputs // dot.lanes) + copies, -dot.lanes, dot) for dot in dots]
    cost, _, dot = min(options, key=lambda option: option[:2])
    if cost >= steps:
        return None
    padded_inputs, padded_outputs = (-(-inputs // dot.group) * dot.group, -(-outputs // dot.lanes) * dot.lanes)
    (batch, _, *image), element_dtype = x.type.shape, x.type.dtype
    padded_weights = np.zeros((groups, padded_outputs, padded_inputs, *window), weights.data.dtype)
    padded_weights[:, :outputs, :inputs] = weights.data.reshape(groups, outputs, inputs, *window)
    if padded_inputs != inputs:
        image_pads = (0,) * len(image)
        x = ops.reshape(x, shape=(batch, groups, inputs, *image), span=conv.span)
        x = ops.pad(
            x, scalar(0, element_dtype), pads=(0, 0, 0, *image_pads, 0, 0, padded_inputs - inputs, *image_pads), span=conv.span
        )
        x = ops.reshape(x, shape=(batch, groups * padded_inputs, *image), span=conv.span)
    wide: Expr = call(
        ops.conv,
        (x, constant(padded_weights.reshape(groups * padded_outputs, padded_inputs, *window), span=weights.span)),
        conv.attrs,
        conv.span,
    )
    if padded_outputs == outputs:
        return wide
    result_image = conv.type.shape[2:]
    wide = ops.reshape(wide, shape=(batch, groups, padded_outputs, *result_image), span=conv.span)
    starts, ends = (0,) * (len(result_image) + 3), (batch, groups, outputs, *result_image)
    wide = ops.strided_slice(wide, begin=starts, end=ends, strides=(1,) * len(starts), span=conv.span)
    return ops.reshape(wide, shape=conv.type.shape, span=conv.span)


def _product_steps(call: Call, dots: list[Dot], costs: CostConstants) -> float:
    """Predict the instructions per pixel and group of a 1x1 convolution as matrix products over pixels (see
    `schedules.split_groups`), which pack their data first. Infinite for any other convolution."""
    assert isinstance(call.attrs, ConvAttrs) and isinstance(call.type, TensorType) and isinstance(call.args[1], Constant)
    (outputs, inputs, *window), pixels = call.args[1].data.shape, math.prod(map(size_hint, call.type.shape[2:]))
    dot = next((dot for dot in dots if dot.lanes <= pixels), None)
    if dot is None or any(item != 1 for item in (*window, *call.attrs.strides)) or any(call.attrs.pads):
        return math.inf
    steps: float = -(-inputs // dot.group) * outputs / call.attrs.groups + costs.packing_instructions * inputs
    return steps * -(-pixels // dot.lanes) / pixels


def _count(shape: tuple[int, ...], groups: int, dots: list[Dot]) -> tuple[float, int]:
    """Choose how many groups to merge. Returns the instructions per pixel and original group, and the number: 1 if a group already
    fills vectors or has one input channel (depthwise convolutions have a schedule over channels)."""
    outputs, inputs = shape[0] // groups, shape[1]
    options: list[tuple[float, int, int]] = []
    for count, dot in product((count for count in range(1, groups + 1) if groups % count == 0), dots):
        vectors = -(-count * outputs // dot.lanes)
        fits = count * outputs % dot.lanes == 0 and count * inputs % dot.group == 0
        if fits or (count == groups and vectors * dot.lanes < 2 * count * outputs):
            options.append((-(-count * inputs // dot.group) * vectors / count, -dot.lanes, count))
    if inputs == 1 or any(count == 1 for *_, count in options):
        return 0, 1
    return min(options, default=(0, 0, 1))[::2]


def _merged(weights: np.ndarray[Any, Any], groups: int, count: int) -> np.ndarray[Any, Any]:
    """Expand weights to `count` times as many input channels, with zeros for channels of other groups."""
    outputs, inputs, *window = weights.shape
    expanded = np.zeros((groups // count, count, outputs // groups, count, inputs, *window), weights.dtype)
    parts = weights.reshape(groups // count, count, outputs // groups, inputs, *window)
    for position in range(count):
        expanded[:, position, :, position] = parts[:, position]
    return expanded.reshape(outputs, count * inputs, *window)
