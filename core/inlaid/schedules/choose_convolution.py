"""Choose the algorithm of each convolution by an analytic model of a core: direct, im2col (a matrix product of unfolded windows),
or Winograd. A bfloat16 convolution is either direct, by dot-product instructions, or Winograd: in float32, or, with small tiles
(`winograd.ROUNDED`), with transformed data and weights rounded to bfloat16.

The schedule rules say whether they apply to a convolution, and estimate its cycles. This pass adds the time to fetch weights and
unfolded windows from memory, and compares. A Winograd transform enlarges weights by 16/9 or 4. Kernel names contain the chosen
algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, constant, post_order
from inlaid.graph.transform import transform
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.convolution import ConvAttrs
from inlaid.ops.unfold import unfold
from inlaid.ops.window import window_axes
from inlaid.ops.winograd import HALVES, WINDOW, is_exact, transform_weights, winograd_conv
from inlaid.passes.integer_ranges import Range, integer_ranges
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.plugins.contract import Capabilities
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.conv_sizes import ConvSizes
from inlaid.schedules.generic import GenericRule
from inlaid.schedules.groups import GroupsRule
from inlaid.schedules.matmul import MatmulRule
from inlaid.schedules.merge_groups import merge_groups
from inlaid.schedules.register_tile import seconds
from inlaid.schedules.winograd import WinogradRule
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import size_hint
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import TensorType, dtype

FLOATS = (("float32", "float32", "float32"), ("bfloat16", "bfloat16", "float32"))
INTEGERS = (("int16", "int16", "int32"), ("uint8", "int8", "int32"))
KINDS = (*FLOATS, *INTEGERS)
"""The dtypes (data, weights, accumulator) of convolutions for which an algorithm is chosen."""

UNFOLDED_BYTES = 1 << 27
"""Maximum bytes of unfolded windows, which add to the model's memory."""


@dataclass(frozen=True)
class ConstantConv:
    """A convolution of constant weights for which an algorithm is chosen. `reach`: for integers, the interval of the data, and a
    bound on the absolute values of results."""

    call: Call
    attrs: ConvAttrs
    weights: np.ndarray[Any, Any]
    sizes: ConvSizes
    reach: tuple[tuple[int, int], int] | None = None


def choose_convolution(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite convolutions with constant weights to the algorithm that is predicted to be fastest and that the target supports.
    im2col becomes a 1x1 convolution of unfolded windows. Returns the same object if all stay direct."""
    if not context.capabilities.vector_bits:
        return function
    function = merge_groups(function, context, supports)
    integers = any(
        isinstance(expr, Call) and expr.callee is ops.conv and _dtype_names(expr) in INTEGERS for expr in post_order(function)
    )
    ranges = integer_ranges(function) if integers else {}

    def visit(old: Expr, new: Expr) -> Expr:
        conv = match_convolution(new)
        if conv is None:
            return new
        if isinstance(old, Call) and conv.sizes.dtypes in INTEGERS:
            data_bounds, total = (_bounds(ranges, expr) for expr in (old.args[0], old))
            conv = replace(conv, reach=(data_bounds, max(-total[0], total[1])))
        by_time = (build() for _, build in sorted(_algorithms(conv, context), key=itemgetter(0)))
        data = conv.call.args[0]
        return next(expr for expr in by_time if expr is not None and (expr is new or is_supported(expr, supports, data)))

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return changed


def _dtype_names(call: Call) -> tuple[str, str, str]:
    data, weights, total = (tensor_type(item.type).dtype.name for item in (*call.args, call))
    return data, weights, total


def _bounds(ranges: Mapping[int, Range], expr: Expr) -> tuple[int, int]:
    """Return the bounds of an integer tensor's elements."""
    interval = ranges[id(expr)]
    return int(interval.low.min()), int(interval.high.max())


def match_convolution(expr: Expr) -> ConstantConv | None:
    """Match a convolution with constant weights and dtypes in `KINDS`. None for any other expression, and for 1x1 and depthwise
    convolutions, which have no alternative algorithm."""
    if not isinstance(expr, Call) or expr.callee is not ops.conv or not isinstance(expr.args[1], Constant):
        return None
    types = [tensor_type(item.type) for item in (expr, *expr.args)]
    if not isinstance(expr.attrs, ConvAttrs) or _dtype_names(expr) not in KINDS:
        return None
    batch, _, *image = types[0].shape
    attrs, weights = expr.attrs, expr.args[1].data
    groups, (outputs, inputs, *window), ones = attrs.groups, weights.shape, (1,) * len(image)
    strides, dilations, static = attrs.strides or ones, attrs.dilations or ones, all(item.is_static for item in types)
    sizes = ConvSizes(
        _dtype_names(expr),
        batch,
        tuple(image),
        groups,
        inputs,
        outputs // groups,
        tuple(window),
        strides,
        dilations,
        (0, 0),
        static,
    )
    if (
        min(sizes.images, *sizes.positions) < 1
        or not weights.size
        or sizes.taps == 1
        or (inputs == 1 < groups and len(window) == 2)
    ):
        return None
    return ConstantConv(expr, attrs, weights, replace(sizes, lines=_lines(attrs, sizes)))


def _lines(attrs: ConvAttrs, sizes: ConvSizes) -> tuple[int, int]:
    """Return the height and width of the result. Symbolic and non-2-d images are flat: height 1, and the width includes the halo
    between lines."""
    if len(sizes.image) == 2 and all(isinstance(dim, int) for dim in sizes.image):
        height, width = sizes.positions
        return height, width
    pixels = sizes.positions[0]
    for axis, size in zip(window_axes(attrs, sizes.window)[1:], sizes.positions[1:], strict=True):
        shared_halo = min(size_hint(axis.before), size_hint(axis.after)) if axis.stride == 1 else 0
        pixels *= size + size_hint(axis.span - 1) // axis.stride - shared_halo
    return 1, pixels


def _algorithms(conv: ConstantConv, context: KernelContext) -> Iterator[tuple[float, Callable[[], Expr | None]]]:
    """Yield each algorithm as its predicted seconds (for the direct one, times `required_ratio`) and a function that builds it,
    which returns None if the algorithm would be inexact. If no rule estimates the direct algorithm, it is the only one, in 0 s."""
    sizes, capabilities, count = conv.sizes, context.capabilities, conv.weights.size
    estimates = (rule.estimate(sizes, context) for rule in (ConvRule(), GroupsRule(), GenericRule()))
    direct_cycles = next((cycles for cycles in estimates if cycles is not None), None)
    if direct_cycles is None:
        yield 0, lambda: conv.call
        return
    yield capabilities.core.costs.required_ratio * _seconds(direct_cycles, conv.weights.nbytes, capabilities), lambda: conv.call
    window_bytes = 4 * sizes.images * sizes.depth * sizes.pixels
    if sizes.static and sizes.is_float32 and window_bytes <= UNFOLDED_BYTES:
        # Traffic beyond L2: write and read in L3; in memory also write-allocate.
        core = capabilities.core
        memory_bytes = 3 * window_bytes if window_bytes > core.llc_bytes else 0
        cache_cycles = 2 * window_bytes / core.llc_rate if core.l2_bytes < window_bytes <= core.llc_bytes else 0
        yield (
            _seconds(_unfolded_cycles(sizes, context) + cache_cycles, 4 * count + memory_bytes, capabilities),
            lambda: _unfolded(conv),
        )
    for dtype_name, plan in WinogradRule().estimate(sizes, context):
        elements = count * (plan.tile + WINDOW - 1) ** 2 / WINDOW**2
        predicted = _seconds(plan.cycles, dtype(dtype_name).bytes * elements, capabilities)
        yield predicted, partial(_winograd, conv, plan.tile, dtype_name, capabilities)


def _seconds(cycles: float, fetched: float, capabilities: Capabilities) -> float:
    """Predict the seconds for compute cycles, distributed over all cores, and bytes fetched from memory."""
    computing, fetching = seconds(cycles, capabilities), fetched / capabilities.bandwidth
    return max(computing, fetching) + capabilities.core.costs.exposed * min(computing, fetching)


def _unfolded_cycles(sizes: ConvSizes, context: KernelContext) -> float:
    """Predict the cycles of im2col: a matrix product per image and group; a store and half a load per unfolded vector."""
    lanes, costs = context.capabilities.vector_bits // 32, context.capabilities.core.costs
    copying = sizes.depth * (lanes if sizes.is_strided else costs.unfold_cycles) * -(-sizes.pixels // lanes)
    return sizes.images * (MatmulRule().estimate(sizes.outputs, sizes.pixels, sizes.depth, context) + copying)


def _unfolded(conv: ConstantConv) -> Expr:
    """Build im2col as a 1x1 convolution whose channels are the elements of windows."""
    attrs, call, sizes = conv.attrs, conv.call, conv.sizes
    x, span = call.args[0], call.span
    windows = unfold(x, kernel=sizes.window, strides=attrs.strides, pads=attrs.pads, dilations=attrs.dilations, span=span)
    assert isinstance(x.type, TensorType)
    channels = x.type.shape[1] * sizes.taps
    flat = ops.reshape(windows, shape=(x.type.shape[0], channels, *sizes.positions), span=span)
    rank = len(sizes.window)
    weights = conv.weights.reshape(len(conv.weights), sizes.depth, *(1,) * rank)
    ones, zeros = (1,) * rank, (0,) * 2 * rank
    return ops.conv(flat, constant(weights), strides=ones, pads=zeros, dilations=ones, groups=attrs.groups, span=span)


def _winograd(conv: ConstantConv, tile: int, dtype_name: str, capabilities: Capabilities) -> Expr | None:
    call, reach, options = conv.call, conv.reach, (False, True) if tile in HALVES else (False,)
    halves = next((option for option in options if reach is None or is_exact(conv.weights, tile, *reach, option)), None)
    if halves is None:
        return None
    weights = constant(transform_weights(conv.weights.astype(dtype(dtype_name).numpy), tile, halves))
    # An image of symbolic size may be small at run time, where the kernel may have a direct version.
    may_be_small = conv.sizes.is_float32 and capabilities.branches and not all(isinstance(dim, int) for dim in conv.sizes.image)
    untransformed = (call.args[1],) if may_be_small else ()
    return winograd_conv(call.args[0], weights, *untransformed, pads=conv.attrs.pads, tile=tile, halves=halves, span=call.span)
