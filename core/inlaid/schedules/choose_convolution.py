"""Choose the algorithm of each convolution by an analytic model of a core: direct, im2col (a matrix product of unfolded windows),
or Winograd. A bfloat16 convolution is either direct, by dot-product instructions, or Winograd: in float32, or, with small tiles
(`ROUNDED`), with transformed data and weights rounded to bfloat16.

The model counts the cycles of the register tiles that the schedules use, and the bytes of unfolded windows and weights from memory.
A Winograd transform enlarges weights by 16/9 or 4. Kernel names contain the chosen algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from inlaid.ops.winograd import HALVES, INTEGER, TRANSFORMS, WINDOW, is_exact, transform_weights, winograd_conv
from inlaid.passes.integer_ranges import Range, integer_ranges
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.plugins.contract import Capabilities
from inlaid.schedules.conv import choose_pixels
from inlaid.schedules.dot_conv import choose_dot_tile
from inlaid.schedules.merge_groups import merge_groups
from inlaid.schedules.register_tile import choose_tile, cycles, seconds
from inlaid.schedules.winograd import plan_winograd
from inlaid.tensor.scheduling.dot_products import find_dots, multiplies_in_scopes
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import IMAGE_SIDE, size_hint
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import TensorType, dtype

FLOATS = (("float32", "float32", "float32"), ("bfloat16", "bfloat16", "float32"))
INTEGERS = (("int16", "int16", "int32"), ("uint8", "int8", "int32"))
KINDS = (*FLOATS, *INTEGERS)
"""The dtypes (data, weights, accumulator) of convolutions for which an algorithm is chosen."""

ROUNDED = (2,)
"""Tiles whose transformed data may be rounded to bfloat16: their products have 1.9 times the error of direct ones in root mean
square, for uncorrelated data; tiles of 4 have about ten times."""
UNFOLDED_BYTES = 1 << 27
"""Maximum bytes of unfolded windows, which add to the model's memory."""


@dataclass(frozen=True)
class _ConvolutionSizes:
    """Sizes of a convolution with static channels and windows. `inputs` and `outputs` are channels per group, `positions` the
    spatial extents of the result; `images` is batch times groups. Symbolic sizes are replaced by hints; `static`: no size is
    symbolic. `reach`: for integers, the interval of the data, and a bound on the absolute values of results."""

    call: Call
    attrs: ConvAttrs
    weights: np.ndarray[Any, Any]
    images: int
    inputs: int
    outputs: int
    window: tuple[int, ...]
    positions: tuple[int, ...]
    static: bool
    reach: tuple[tuple[int, int], int] | None = None

    @property
    def kinds(self) -> tuple[str, str, str]:
        """The dtypes of data, weights and accumulator."""
        return _kinds(self.call)

    @property
    def transformed(self) -> Mapping[str, Sequence[int]]:
        """The tiles of each dtype of transformed weights and data."""
        if self.kinds in INTEGERS:
            return {INTEGER: tuple(TRANSFORMS)}
        return {"float32": tuple(TRANSFORMS)} | ({self.kinds[1]: ROUNDED} if self.narrow else {})

    @property
    def narrow(self) -> bool:
        """Whether the operands are narrower than float32."""
        return self.kinds != FLOATS[0]

    @property
    def strided(self) -> bool:
        """Whether windows move along a line in steps of more than one element."""
        return any(step != 1 for step in self.attrs.strides[-1:])

    @property
    def depth(self) -> int:
        """Length of the reduction of one result element."""
        return self.inputs * math.prod(self.window)

    @property
    def pixels(self) -> int:
        """Number of result elements per channel."""
        return math.prod(self.positions)


def choose_convolution(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite convolutions with constant weights to the algorithm that is predicted to be fastest and that the target supports.
    im2col becomes a 1x1 convolution of unfolded windows. Returns the same object if all stay direct."""
    if not context.capabilities.vector_bits:
        return function
    function = merge_groups(function, context, supports)
    integers = any(isinstance(expr, Call) and expr.callee is ops.conv and _kinds(expr) in INTEGERS for expr in post_order(function))
    ranges = integer_ranges(function) if integers else {}

    def visit(old: Expr, new: Expr) -> Expr:
        problem = _problem(new)
        if problem is None:
            return new
        if isinstance(old, Call) and problem.kinds in INTEGERS:
            data_bounds, total = (_bounds(ranges, expr) for expr in (old.args[0], old))
            problem = replace(problem, reach=(data_bounds, max(-total[0], total[1])))
        by_time = (make() for _, make in sorted(_ways(problem, context), key=itemgetter(0)))
        data = problem.call.args[0]
        return next(way for way in by_time if way is not None and (way is new or is_supported(way, supports, data)))

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return changed


def _kinds(call: Call) -> tuple[str, str, str]:
    data, weights, total = (tensor_type(item.type).dtype.name for item in (*call.args, call))
    return data, weights, total


def _bounds(ranges: Mapping[int, Range], expr: Expr) -> tuple[int, int]:
    """Return the bounds of an integer tensor's elements."""
    interval = ranges[id(expr)]
    return int(interval.low.min()), int(interval.high.max())


def _problem(expr: Expr) -> _ConvolutionSizes | None:
    """Match a convolution with constant weights and dtypes in `KINDS`. None for any other expression, and for 1x1 and depthwise
    convolutions, which have no alternative algorithm."""
    if not isinstance(expr, Call) or expr.callee is not ops.conv or not isinstance(expr.args[1], Constant):
        return None
    types = [tensor_type(item.type) for item in (expr, *expr.args)]
    if not isinstance(expr.attrs, ConvAttrs) or _kinds(expr) not in KINDS:
        return None
    batch, _, *image = types[0].shape
    positions, weights = tuple(size_hint(dim, IMAGE_SIDE) for dim in image), expr.args[1].data
    groups, (outputs, inputs, *window) = expr.attrs.groups, weights.shape
    images, static = size_hint(batch) * groups, all(item.is_static for item in types)
    if min(images, *positions) < 1 or not weights.size or math.prod(window) == 1 or (inputs == 1 < groups and len(window) == 2):
        return None
    return _ConvolutionSizes(expr, expr.attrs, weights, images, inputs, outputs // groups, tuple(window), positions, static)


def _ways(problem: _ConvolutionSizes, context: KernelContext) -> Iterator[tuple[float, Callable[[], Expr | None]]]:
    """Yield the predicted seconds (times `required_ratio` if direct) of each algorithm, and a function that builds it (None if
    inexact)."""
    attrs, capabilities, size = problem.attrs, context.capabilities, problem.weights.size
    direct = _narrow_cycles(problem, context) if problem.narrow else _direct_cycles(problem, context)
    yield capabilities.core.costs.required_ratio * _seconds(direct, problem.weights.nbytes, capabilities), lambda: problem.call
    windows = 4 * problem.images * problem.depth * problem.pixels
    if problem.static and windows <= UNFOLDED_BYTES and not problem.narrow:
        # Traffic beyond L2: write and read in L3; in memory also write-allocate.
        core = capabilities.core
        moved = 3 * windows if windows > core.llc_bytes else 0
        spilt = 2 * windows / core.llc_rate if core.l2_bytes < windows <= core.llc_bytes else 0
        yield _seconds(_product_cycles(problem, context) + spilt, 4 * size + moved, capabilities), lambda: _unfolded(problem)
    single = attrs.groups == 1 and all(step == 1 for step in (*attrs.strides, *attrs.dilations))
    tiles = [(dtype_name, tile) for dtype_name, every in problem.transformed.items() for tile in every]
    for dtype_name, tile in tiles if problem.window == (WINDOW, WINDOW) and single else ():
        batch, _, height, width = tensor_type(problem.call.type).shape
        plan = plan_winograd(batch, problem.inputs, problem.outputs, height, width, tile, context, dtype_name)
        if plan is not None:
            more = (tile + WINDOW - 1) ** 2 / WINDOW**2
            yield (
                _seconds(plan.cycles, dtype(dtype_name).bytes * size * more, capabilities),
                partial(_tiled, problem, tile, dtype_name),
            )


def _seconds(cycles: float, fetched: float, capabilities: Capabilities) -> float:
    """Predict the seconds for compute cycles, distributed over all cores, and bytes fetched from memory."""
    computing, fetching = seconds(cycles, capabilities), fetched / capabilities.bandwidth
    return max(computing, fetching) + capabilities.core.costs.exposed * min(computing, fetching)


def _direct_cycles(problem: _ConvolutionSizes, context: KernelContext) -> float:
    """Predict the cycles of direct convolution. Vectors are over output channels if few lanes stay empty. Otherwise channels are
    computed one by one: in vectors along a line, bound by the latency of additions, or element by element for short lines."""
    widest, registers = context.capabilities.vector_bits // 32, context.capabilities.vector_registers
    outputs, core = problem.outputs, context.capabilities.core
    costs = core.costs
    for lanes in (widest, widest // 2):
        fills_vectors = outputs % lanes == 0 or (problem.attrs.groups == 1 and 2 * outputs > lanes)
        if lanes > 1 and fills_vectors and problem.inputs > 1:
            return problem.images * choose_pixels(-(-outputs // lanes), *_lines(problem), problem.depth, lanes, registers, core)[1]
    height, width = _lines(problem)
    if width < widest:
        return problem.images * outputs * problem.pixels * problem.depth / (core.units * costs.chain_rate)
    waits = costs.strided_factor * core.latency if problem.strided else core.latency
    vectors = width // widest + costs.remainder_vectors * (width % widest > 0)
    return problem.images * outputs * height * vectors * problem.depth * waits


def _lines(problem: _ConvolutionSizes) -> tuple[int, int]:
    """Return the height and width of the result. Symbolic and non-2-d images are flat: height 1, and the width includes the halo
    between lines."""
    image = tensor_type(problem.call.type).shape[2:]
    if len(image) == 2 and all(isinstance(dim, int) for dim in image):
        height, width = problem.positions
        return height, width
    pixels = problem.positions[0]
    for axis, size in zip(window_axes(problem.attrs, problem.window)[1:], problem.positions[1:], strict=True):
        shared = min(size_hint(axis.before), size_hint(axis.after)) if axis.stride == 1 else 0
        pixels *= size + size_hint(axis.span - 1) // axis.stride - shared
    return 1, pixels


def _narrow_cycles(problem: _ConvolutionSizes, context: KernelContext) -> float:
    """Predict the cycles by dot-product instructions; 0 without such instructions or with matrix units, which have no model."""
    dots = find_dots(*problem.kinds, context)
    if not dots or len(problem.positions) != 2 or multiplies_in_scopes(*problem.kinds, context):
        return 0
    registers, taps = context.capabilities.vector_registers, math.prod(problem.window)
    outputs, groups = -(-problem.outputs // dots[0].lanes) * dots[0].lanes, -(-problem.inputs // dots[0].group)
    return (
        problem.images
        * choose_dot_tile(dots[0], outputs, *problem.positions, groups * taps, registers, context.capabilities.core)[1]
    )


def _product_cycles(problem: _ConvolutionSizes, context: KernelContext) -> float:
    """Predict the cycles of im2col: a matrix product per image and group; a store and half a load per unfolded vector."""
    lanes, registers, core = (
        context.capabilities.vector_bits // 32,
        context.capabilities.vector_registers,
        context.capabilities.core,
    )
    size = problem.outputs, problem.pixels, problem.depth
    tile, copying = choose_tile(*size, lanes, registers, core), lanes if problem.strided else core.costs.unfold_cycles
    return problem.images * problem.depth * (cycles(*size, tile, core) + copying * -(-problem.pixels // lanes))


def _unfolded(problem: _ConvolutionSizes) -> Expr:
    """Build im2col as a 1x1 convolution whose channels are the elements of windows."""
    attrs, call, window = problem.attrs, problem.call, problem.window
    x, span = call.args[0], call.span
    windows = unfold(x, kernel=window, strides=attrs.strides, pads=attrs.pads, dilations=attrs.dilations, span=span)
    assert isinstance(x.type, TensorType)
    channels = x.type.shape[1] * math.prod(window)
    flat = ops.reshape(windows, shape=(x.type.shape[0], channels, *problem.positions), span=span)
    weights = problem.weights.reshape(len(problem.weights), problem.depth, *(1 for _ in window))
    rank = len(window)
    ones, zeros = (1,) * rank, (0,) * 2 * rank
    return ops.conv(flat, constant(weights), strides=ones, pads=zeros, dilations=ones, groups=attrs.groups, span=span)


def _tiled(problem: _ConvolutionSizes, tile: int, dtype_name: str) -> Expr | None:
    call, reach, options = problem.call, problem.reach, (False, True) if tile in HALVES else (False,)
    halves = next((each for each in options if reach is None or is_exact(problem.weights, tile, *reach, each)), None)
    if halves is None:
        return None
    weights = constant(transform_weights(problem.weights.astype(dtype(dtype_name).numpy), tile, halves))
    return winograd_conv(call.args[0], weights, pads=problem.attrs.pads, tile=tile, halves=halves, span=call.span)
