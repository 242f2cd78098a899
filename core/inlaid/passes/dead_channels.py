"""Remove dead channels of integer networks, with the weights that compute them.

Trained networks have output channels that saturate to one value for all inputs. A product that reads such a channel can add the
value's contribution to its bias instead, which makes the channel dead. Channels whose weights are zero in all readers are dead too.
Results are bit-exact.

    x = clip(conv(data, w) + b)  with channel 1 always -128       x = clip(conv(data, w[0, 2]) + b[0, 2])
    y = conv(x, v) + c                                      =>    y = conv(x, v[:, 0, 2]) + (c - 128 * sum(v[:, 1]))

The pass follows a channel through element-wise operators, padding, pooling, grouped convolutions and reshapes: all keep the
channel, or none does. It is kept if any other operator reads it, or if padding adds a value other than the channel's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, children, constant, post_order, rebuild
from inlaid.graph.operator import Operator
from inlaid.passes.integer_ranges import Array, Range, integer_ranges, is_product, moved_axis
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import TensorType


def remove_dead_channels(target: Function, lanes: int = 1) -> Function:
    """Remove the dead channels of a function, in linear time. Returns the same object if there are none.

    A product whose number of output channels is a multiple of `lanes` keeps a multiple of `lanes` channels: on a processor with
    vectors of `lanes` elements, fewer channels gain nothing.
    """
    if not any(is_product(expr) for expr in post_order(target)):
        return target
    channels = _Channels(integer_ranges(target))
    for expr in post_order(target):
        channels.visit(expr)
    live_masks = channels.live_masks(lanes)
    if all(mask.all() for mask in live_masks.values()):
        return target
    replacements: dict[int, Expr] = {}
    for expr in post_order(target):
        replacements[id(expr)] = _without(expr, tuple(replacements[id(child)] for child in children(expr)), channels, live_masks)
    result = replacements[id(target)]
    assert isinstance(result, Function)
    return result


@dataclass(frozen=True, eq=False)
class _ChannelAxis:
    """The channel axis of a tensor, and the channel number at each index along the axis."""

    axis: int
    channels: Array


@dataclass(eq=False)
class _Channels:
    """The channels of a graph. `channel_axes` maps ids of expressions to their channel axes. `parents` is a union-find over
    channels that are kept or removed together. `live_channels` must be kept. `groups` lists the output channels of each product, at
    least one of which is kept."""

    ranges: Mapping[int, Range]
    channel_axes: dict[int, _ChannelAxis] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)
    live_channels: set[int] = field(default_factory=set)
    groups: list[Array] = field(default_factory=list)

    def visit(self, expr: Expr) -> None:
        """Find the channel axis of an expression whose operands have been visited, and mark the operands' channels that it
        needs."""
        channel_axis = None
        if isinstance(expr, Call) and isinstance(expr.callee, Operator):
            if is_product(expr):
                channel_axis = self._product(expr)
            elif expr.callee.elementwise:
                channel_axis = self._elementwise(expr)
            elif expr.args and id(expr.args[0]) in self.channel_axes and all(isinstance(arg, Constant) for arg in expr.args[1:]):
                channel_axis = self._moved(expr)
        if channel_axis is None:
            for child in children(expr):
                if id(child) in self.channel_axes:
                    self.live_channels.update(self.channel_axes[id(child)].channels.tolist())
        else:
            self.channel_axes[id(expr)] = channel_axis

    def live_masks(self, lanes: int) -> dict[int, Array]:
        """Compute which indices of each expression's channel axis are kept, by id of the expression."""
        live_roots = {self._find(channel) for channel in self.live_channels}
        for group in self.groups:
            roots = [self._find(channel) for channel in group.tolist()]
            group_roots = live_roots.intersection(roots)
            multiple = lanes if len(roots) % lanes == 0 else 1
            missing = max(-(-len(group_roots) // multiple), 1) * multiple - len(group_roots)
            live_roots.update([root for root in dict.fromkeys(roots) if root not in group_roots][:missing])
        is_live = np.array([self._find(channel) in live_roots for channel in range(len(self.parents))], bool)
        return {number: is_live[channel_axis.channels] for number, channel_axis in self.channel_axes.items()}

    def _new(self, count: int) -> Array:
        channels = np.arange(len(self.parents), len(self.parents) + count)
        self.parents.extend(channels.tolist())
        self.groups.append(channels)
        return channels

    def _find(self, channel: int) -> int:
        while (parent := self.parents[channel]) != channel:
            self.parents[channel] = self.parents[parent]
            channel = parent
        return channel

    def _join(self, a: Array, b: Array) -> None:
        for one, other in zip(a.tolist(), b.tolist(), strict=True):
            self.parents[self._find(one)] = self._find(other)

    def _product(self, product: Call) -> _ChannelAxis | None:
        """Return the channels of a product: new channels; for a grouped convolution, the channels of its data. The product needs
        the data's channels that vary and have nonzero weights."""
        x, weights = product.args
        assert isinstance(weights, Constant)
        attrs: Any = product.attrs
        is_conv = product.callee is ops.conv
        result_axis = 1 if is_conv else _rank(product) - 1
        data = self.channel_axes.get(id(x))
        if data is not None and data.axis != (1 if is_conv else _rank(x) - 1):
            return None
        if is_conv and attrs.groups > 1:
            if data is None:
                return None
            inputs = data.channels.reshape(attrs.groups, -1)
            for column in inputs.T[1:]:
                self._join(inputs[:, 0], column)
            return _ChannelAxis(result_axis, np.repeat(inputs[:, 0], weights.data.shape[0] // attrs.groups))
        if data is not None:
            low, high = self.ranges[id(x)].along(data.axis)
            if is_conv and any(amount != 0 for amount in attrs.pads):
                low, high = np.minimum(low, 0), np.maximum(high, 0)  # padding adds zeros
            nonzero = weights.data.any(axis=(0, *range(2, weights.data.ndim)) if is_conv else 1)
            self.live_channels.update(data.channels[nonzero & (low != high)].tolist())
        return _ChannelAxis(result_axis, self._new(weights.data.shape[0 if is_conv else 1]))

    def _elementwise(self, expr: Call) -> _ChannelAxis | None:
        """Unite the channels of all operands; None if their channel axes do not match."""
        operand_axes = [(arg, self.channel_axes[id(arg)]) for arg in expr.args if id(arg) in self.channel_axes]
        if not operand_axes:
            return None
        rank, (example, first) = _rank(expr), operand_axes[0]
        axis = first.axis + rank - _rank(example)
        if _extent(expr, axis) != len(first.channels):
            return None
        for arg in expr.args:
            channel_axis, parameters = self.channel_axes.get(id(arg)), _parameter_axis(expr, arg)
            operand_axis = axis - rank + _rank(arg)
            if channel_axis is not None:
                fits = (
                    channel_axis.axis == operand_axis and len(channel_axis.channels) == len(first.channels) and parameters is None
                )
            elif isinstance(arg, Constant):
                fits = parameters is None or parameters == axis
            else:
                fits = parameters is None and (operand_axis < 0 or _extent(arg, operand_axis) == 1)
            if not fits:
                return None
        for _, channel_axis in operand_axes[1:]:
            self._join(first.channels, channel_axis.channels)
        return _ChannelAxis(axis, first.channels)

    def _moved(self, expr: Call) -> _ChannelAxis | None:
        channel_axis = self.channel_axes[id(expr.args[0])]
        axis_mapping = moved_axis(expr, channel_axis.axis)
        return None if axis_mapping is None else _ChannelAxis(axis_mapping[0], channel_axis.channels[axis_mapping[1]])


def _rank(expr: Expr) -> int:
    assert isinstance(expr.type, TensorType)
    return expr.type.rank


def _extent(expr: Expr, axis: int) -> Any:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape[axis]


def _parameter_axis(expr: Call, arg: Expr) -> int | None:
    """Return the axis of the data along which an operand holds one parameter per index; None for an operand that broadcasts."""
    attrs: Any = expr.attrs
    has_axis = expr.callee in (ops.multiply_fixed, ops.requantize, ops.quantize, ops.dequantize)
    return attrs.axis if has_axis and arg is not expr.args[0] and _rank(arg) else None


# --- rebuilding -------------------------------------------------------------------------------------------------------


def _without(expr: Expr, parts: Sequence[Expr], channels: _Channels, live_masks: Mapping[int, Array]) -> Expr:
    """Rebuild an expression over its rewritten operands, without its removed channels."""
    masks = [live_masks[id(item)] for item in (expr, *children(expr)) if id(item) in live_masks]
    if all(mask.all() for mask in masks) or not isinstance(expr, Call) or not isinstance(expr.callee, Operator):
        return rebuild(expr, tuple(parts))
    if is_product(expr):
        return _smaller_product(expr, parts[0], channels, live_masks)
    if id(expr) not in live_masks:
        return rebuild(expr, tuple(parts))
    channel_axis, mask = channels.channel_axes[id(expr)], live_masks[id(expr)]
    if expr.callee is ops.reshape:
        shape = tuple(int(mask.sum()) if axis == channel_axis.axis else dim for axis, dim in enumerate(expr.attrs.shape))
        return ops.reshape(parts[0], shape=shape, span=expr.span)
    sliced = [_part(expr, arg, channel_axis.axis, mask) if isinstance(arg, Constant) else arg for arg in parts]
    return call(expr.callee, sliced, expr.attrs, expr.span)


def _part(expr: Call, arg: Constant, axis: int, mask: Array) -> Constant:
    """Slice a constant operand of an operator whose result has fewer channels."""
    operand_axis = 0 if _parameter_axis(expr, arg) is not None else axis - _rank(expr) + _rank(arg)
    if operand_axis < 0 or arg.data.shape[operand_axis] != len(mask):
        return arg
    return constant(np.compress(mask, arg.data, operand_axis), span=arg.span)


def _smaller_product(product: Call, x: Expr, channels: _Channels, live_masks: Mapping[int, Array]) -> Expr:
    """Rebuild a product over the kept channels, plus the constant contribution of the removed channels."""
    weights = product.args[1]
    assert isinstance(weights, Constant)
    attrs: Any = product.attrs
    is_conv = product.callee is ops.conv
    # Output channels first, then input channels.
    array = weights.data if is_conv else weights.data.T
    output_mask = live_masks.get(id(product), np.ones(array.shape[0], bool))
    input_mask = live_masks.get(id(product.args[0]), np.ones(_extent(product.args[0], 1 if is_conv else -1), bool))
    array = array[output_mask]
    if is_conv and attrs.groups > 1:
        groups = int(input_mask.reshape(attrs.groups, -1)[:, 0].sum())
        return call(ops.conv, (x, constant(array)), dataclasses.replace(attrs, groups=groups), product.span)
    live_weights = array[:, input_mask]
    result = call(
        ops.conv if is_conv else ops.matmul, (x, constant(live_weights if is_conv else live_weights.T)), attrs, product.span
    )
    if input_mask.all():
        return result
    low, _ = channels.ranges[id(product.args[0])].along(channels.channel_axes[id(product.args[0])].axis)
    dead_values = np.broadcast_to(low, input_mask.shape)[~input_mask]
    dead_weights = array[:, ~input_mask].astype(np.int64)
    contribution = (dead_weights.reshape(*dead_weights.shape[:2], -1).sum(axis=2) @ dead_values).astype(np.int32)
    if not contribution.any():
        return result
    return ops.add(
        result, constant(contribution.reshape((-1, *(1,) * (_rank(product) - 2)) if is_conv else (-1,))), span=product.span
    )
