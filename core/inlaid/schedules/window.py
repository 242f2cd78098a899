"""Pooling and depthwise convolution on vector CPUs: sliding windows per channel, with vectors of channels."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.collapse import WITHOUT_EMPTY, without_empty
from inlaid.schedules.direct_conv import schedule_padding
from inlaid.schedules.dot import find_factors
from inlaid.schedules.fill import fill
from inlaid.schedules.float_sums import FLOAT_SUMS
from inlaid.schedules.last_tile import SHIFT_LAST_TILE
from inlaid.schedules.plane_window import offer_planes
from inlaid.schedules.register_tile import seconds
from inlaid.schedules.shape import (
    PIECES,
    Anchor,
    accumulate_in_registers,
    axis_loops,
    constant_extent,
    find_anchor,
    is_constant,
    lay_out,
    loop_extent,
    mark_tile,
    present,
    share_rows,
    size_text,
    tile_size,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, Layout

UNROLLED = 5
"""Maximum taps of a window row that are unrolled, so that their addresses differ by constants."""


@dataclass(frozen=True)
class _Loads:
    """Buffers that a window reads: data with channels on axis 1, weights with channels on axis 0."""

    data: tuple[ir.Buffer, ...]
    weights: tuple[ir.Buffer, ...]


class WindowRule:
    """Schedules out[n, c, y, x] = reduction over a window of data[n, c, ...], optionally with per-channel weights. There must be at
    least half a vector of channels."""

    name = "window"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Offer schedules. Declines kernels other than windows. If channels are symbolic, only `offer_planes` applies."""
        # The init of the reduction gives the result of an empty window.
        if not context.capabilities.vector_bits or without_empty(program) is None:
            return ()
        s = Schedule(program)
        s.apply(WITHOUT_EMPTY)
        anchor = find_anchor(s.program)
        if anchor is None or len(anchor.spatial) != 4 or len(anchor.before) > 1:
            return ()
        loads = _loads(anchor)
        if loads is None or _multiplies_matrices(anchor, loads):
            return ()
        plane_offers = tuple(offer for offer in (offer_planes(s.program, anchor, context),) if offer)
        if not isinstance(anchor.spatial[1].extent, arith.Const):
            return plane_offers
        widest = context.capabilities.vector_bits // (8 * anchor.buffer.dtype.bytes)
        channels = constant_extent(anchor.spatial[1])
        blocked_offers: list[Offer] = []
        # Offer half vectors only if they leave fewer lanes empty.
        for lanes in (widest, widest // 2):
            if lanes > 1 and (not blocked_offers or channels % lanes == 0) and (offer := _offer(s.copy(), anchor, lanes, context)):
                blocked_offers.append(offer)
            if channels % lanes == 0:
                break
        return (*blocked_offers, *plane_offers)


def _offer(s: Schedule, anchor: Anchor, lanes: int, context: KernelContext) -> Offer | None:
    """Offer the schedule with vectors of `lanes`; None if channels neither fill vectors nor can be padded."""
    channels = constant_extent(anchor.spatial[1])
    if -(-channels // lanes) * lanes >= 2 * channels:
        return None
    s.apply(FLOAT_SUMS)
    anchor = find_anchor(s.program) or anchor
    axes: dict[str, int] = {}
    if channels % lanes:
        blocks = (*anchor.before, anchor.block, *anchor.after)
        if any(len(block.iters) < 4 for block in blocks):
            return None
        padded_axes = fill(s, lanes, [block.name for block in blocks])
        padded_anchor = None if padded_axes is None else find_anchor(s.program)
        if padded_axes is None or padded_anchor is None:
            return None
        anchor, axes = padded_anchor, padded_axes
    loads, program = _loads(anchor), s.program
    assert loads is not None
    layouts = _layouts(program, anchor, loads, lanes, axes)
    params = tuple(layouts.get(buffer, ROW_MAJOR) for buffer in program.params)
    width = anchor.spatial[3].extent
    limit = context.capabilities.core.costs.window_pixels
    best = _tile(width, limit)
    size = context.decide("pixels", range(1, min(limit, width.value) + 1 if isinstance(width, arith.Const) else best + 1), best)
    taps, pixels = (
        prod(arith.size_hint(arith.unwrap(item.extent)) for item in items) for items in (anchor.reduced, anchor.spatial)
    )
    return Offer(
        params,
        Traced(lambda: _schedule(s.copy(), anchor, lanes, size.number, layouts, context)),
        seconds(pixels // lanes * taps, context.capabilities),
        decisions=(size,),
    )


def _tile(width: arith.Expr, limit: int) -> int:
    """Choose the pixels per tile, at most `limit`. If the width is symbolic, a tile has at most half of the maximum width."""
    if isinstance(width, arith.Const):
        return tile_size(width.value, limit)
    max_width = arith.bounds(width)[1]
    return limit if max_width is None or max_width > limit else max(max_width // 2, 1)


def _loads(anchor: Anchor) -> _Loads | None:
    """Classify the buffers that the window reads; None if a load is neither per channel nor the accumulator."""
    n, c, *_ = (item.var for item in anchor.spatial)
    spatial = {item.var for item in anchor.spatial}
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in anchor.block.iters})
    data: dict[ir.Buffer, None] = {}
    weights: dict[ir.Buffer, None] = {}
    assert isinstance(anchor.block.body, ir.Store)
    for node in ir.walk_exprs(anchor.block.body.value):
        if not isinstance(node, ir.Load) or node.buffer is anchor.buffer:
            continue
        if len(node.indices) == 4 and node.indices[0] == n and analyzer.simplify(node.indices[1]) == c:
            data[node.buffer] = None
        elif node.indices and node.indices[0] == c and not any(spatial & arith.free_vars(index) for index in node.indices[1:]):
            weights[node.buffer] = None
        else:
            return None
    return _Loads(tuple(data), tuple(weights)) if data else None


def _multiplies_matrices(anchor: Anchor, loads: _Loads) -> bool:
    """Test whether the window sums products of data with data, which is a matrix product per channel."""
    factors = find_factors(anchor)
    if factors is None:
        return False
    left, right = factors
    return left.indices != right.indices and left.buffer in loads.data and right.buffer in loads.data


def _layouts(
    program: ir.LoopProgram, anchor: Anchor, loads: _Loads, lanes: int, axes: Mapping[str, int]
) -> dict[ir.Buffer, Layout]:
    """Layouts of parameters and intermediate buffers. `axes` maps buffer names to the axis whose channels were padded."""
    channels = anchor.buffer.shape[1]
    channel_layout = Layout(((1, lanes),))
    layouts = dict.fromkeys(loads.data, channel_layout)
    layouts.update((buffer, Layout(((0, lanes),))) for buffer in loads.weights if buffer in program.inputs)
    for block in anchor.before:
        layouts.update((region.buffer, channel_layout) for region in block.reads)
    for buffer in (*program.params, anchor.buffer, *(region.buffer for block in anchor.after for region in block.writes)):
        if len(buffer.shape) == 4 and buffer.shape[1] == channels and buffer not in layouts:
            layouts[buffer] = channel_layout
        elif buffer.name in axes and buffer not in layouts:
            layouts[buffer] = Layout(((axes[buffer.name], lanes),))
    return layouts


def _band(anchor: Anchor, lanes: int, context: KernelContext) -> int:
    """Choose how many rows of the result form a band, whose data one thread pads together. 0: there is one thread, or no data to
    pad, or the data does not fit on a thread's stack; all data is then padded in advance."""
    if context.threads == 1 or len(anchor.before) != 1 or not is_constant(*anchor.spatial):
        return 0
    assert isinstance(anchor.block.body, ir.Store)
    copy, y = anchor.before[0].writes[0].buffer, anchor.spatial[2]
    loads = (node for node in ir.walk_exprs(anchor.block.body.value) if isinstance(node, ir.Load) and node.buffer is copy)
    step = arith.affine(next(loads).indices[2], y.var)
    height, (padded, width), pieces = constant_extent(y), copy.shape[2:], context.threads or PIECES
    if step is None or not isinstance(step[0], arith.Const) or not isinstance(padded, int) or not isinstance(width, int):
        return 0
    stride, thread_rows = step[0].value, height if height % pieces else height // pieces
    line, halo = width * lanes * copy.dtype.bytes, padded - height * stride

    def fits(rows: int) -> bool:
        """Test whether a band's data fits on a stack, and has at most as many halo rows, which two bands pad, as other rows."""
        return line * (rows * stride + halo) <= context.capabilities.thread_stack_bytes and halo <= rows * stride

    return max((rows for rows in range(1, thread_rows + 1) if thread_rows % rows == 0 and fits(rows)), default=0)


def _schedule(
    s: Schedule, anchor: Anchor, lanes: int, size: int, layouts: dict[ir.Buffer, Layout], context: KernelContext
) -> Schedule:
    """Build the nest:

    for n, channels:                          # parallel: see `share_rows`
        padded = data of one block of channels; on several threads, only that of a band of rows
        for y, x:
            acc[pixel, lane] = identity
            for window:
                acc = combine(acc, padded)    # pixel unrolled, lane vectorized
            out = after(acc)                  # remainder of a symbolic width: see `shift_last_tile`
    """
    # Pad one block of channels at a time, so that it is in the cache when it is read; on several threads, also a band of rows.
    band = _band(anchor, lanes, context)
    inner_copies = [block.name for block in anchor.before if context.threads == 1 or band]
    for block in anchor.before:
        if block.name not in inner_copies:
            schedule_padding(s, block.name, lanes, context)
    window, final = anchor.block.name, accumulate_in_registers(s, anchor)
    registers = {} if anchor.after else {final: Layout(((1, lanes),))}
    n, channel, y, x = axis_loops(s, final)
    assert channel is not None
    outer, lane = s.split(channel, (None, lanes))
    width = anchor.spatial[3].extent
    x, pixel = (None, None) if x is None else s.split(x, (None, size))
    outside = present(n, outer, y, x)
    s.reorder(*outside, *present(pixel), lane)
    s.compute_at(window, outside[-1])
    rows = y
    if band and y is not None:
        rows, y = s.split(y, (None, band))
        outside = present(n, outer, rows, y, x)
    for name in inner_copies:
        s.compute_at(name, outer if rows is y or rows is None else rows)
        channel, *pixels = [loop for loop in s.loops(name) if loop not in outside]
        s.reorder(*pixels, channel)
        s.vectorize(channel)
    mark_tile(s, *present(pixel), lane)
    taps = present(*axis_loops(s, window)[4:])
    lane, *pixels = [loop for loop in s.loops(window)[len(outside) :] if loop not in taps]
    s.reorder(*taps, *pixels, lane)
    parts = [window]
    if taps:
        parts.append(s.decompose_reduction(window, taps[0]))
    for part in parts:
        mark_tile(s, *s.loops(part)[-1 - len(pixels) :])
    for tap in taps[-1:]:
        extent = loop_extent(s, tap)
        if isinstance(extent, arith.Const) and extent.value <= UNROLLED:
            s.unroll(tap)
    if context.threads != 1:
        share_rows(s, [n], rows, [outer], context.threads)
    if x is not None and not isinstance(width, arith.Const):
        s.apply(SHIFT_LAST_TILE, x, size, size_text(width))
    for block in anchor.before:
        *_, columns, _ = (None, *s.loops(block.name))
        s.apply(SPLIT_BORDERS, block.name, columns)
    lay_out(s, layouts, registers)
    return s
