"""Default schedule for kernels of static shape on scalar processors: minimal memory, channels innermost."""

from __future__ import annotations

from math import prod

from inlaid.schedules.shape import (
    Anchor,
    accumulate_in_registers,
    axis_loops,
    constant_extent,
    find_anchor,
    inline_blocks,
    is_static,
    lay_out,
    merge_chains,
    present,
)
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR, Layout

CHANNEL = 1
"""Number of the channel axis."""
SLOWER = 1.5
"""Time of a window whose channels are not contiguous, relative to contiguous channels: elements share fewer address
computations."""


class ScalarRule:
    """Schedule rule for every kernel of static shape. Kernels with a window or an image also get an offer with channels last."""

    name = "scalar"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Offer schedules; no offer for kernels of symbolic shape."""
        if not is_static(program):
            return ()
        plain = (ROW_MAJOR,) * len(program.params)
        anchor = find_anchor(program)
        work = 0.0 if anchor is None else 2 * _iterations(anchor) / context.capabilities.peak
        last = channels_last(program, inputs)
        offers = [Offer(plain, Traced(lambda: _schedule(program, {})), SLOWER * work)]
        if last:
            layouts = tuple(last.get(buffer, ROW_MAJOR) for buffer in program.params)
            offers.insert(0, Offer(layouts, Traced(lambda: _schedule(program, last)), work))
        return tuple(offers)


def channels_last(program: ir.LoopProgram, inputs: tuple[InputInfo, ...]) -> dict[ir.Buffer, Layout]:
    """Return channels-last layouts of parameters: images as N H W C, weights as O H W I, depthwise weights as H W O."""
    layouts: dict[ir.Buffer, Layout] = {}
    rank = len(program.outputs[0].shape)
    if rank < 3:
        return {}
    for buffer, info in zip(program.params, (*inputs, *(InputInfo(ROW_MAJOR) for _ in program.outputs)), strict=True):
        sizes = [dim for dim in buffer.shape if isinstance(dim, int)]
        if len(sizes) != rank or 0 in sizes:
            continue
        axis = 0 if info.constant and sizes[CHANNEL] == 1 else CHANNEL
        layouts[buffer] = Layout(((axis, sizes[axis]),))
    return {buffer: layout for buffer, layout in layouts.items() if layout.canonical(buffer.shape) != ROW_MAJOR}


def _iterations(anchor: Anchor) -> int:
    return prod(constant_extent(item) for item in (*anchor.spatial, *anchor.reduced))


def _schedule(program: ir.LoopProgram, layouts: dict[ir.Buffer, Layout]) -> Schedule:
    """Schedule a kernel:

    for n, y, x, channel:
        acc = identity
        for window, input channels: acc = combine(acc, data)
        out = after(acc)
    """
    anchor = find_anchor(program)
    if anchor is not None:
        try:
            return _anchored(program, anchor, layouts)
        except ScheduleError:
            pass  # producers or consumers are not element-wise: keep the loops as they are
    s = Schedule(program)
    merge_chains(s)
    if layouts:
        for block in s.blocks:
            _channels_innermost(s, block)
    lay_out(s, layouts)
    return s


def _anchored(program: ir.LoopProgram, anchor: Anchor, layouts: dict[ir.Buffer, Layout]) -> Schedule:
    s = Schedule(program)
    inline_blocks(s, [block.name for block in anchor.before])
    name, final = anchor.block.name, accumulate_in_registers(s, anchor)
    if layouts:
        _channels_innermost(s, final)
    outer_loops = s.loops(final)
    if outer_loops:
        s.compute_at(name, outer_loops[-1])
    loops = axis_loops(s, name)[len(anchor.spatial) :]
    if layouts and len(loops) > 1 and loops[0] is not None:
        s.reorder(*present(*loops[1:]), loops[0])
    lay_out(s, layouts)
    return s


def _channels_innermost(s: Schedule, block: str) -> None:
    """Reorder the channel loop innermost."""
    loops: list[Var | None] = axis_loops(s, block)
    if len(loops) < 3 or loops[CHANNEL] is None:
        return
    channel = loops[CHANNEL]
    spatial = [loop for loop in s.loops(block) if loop in loops[: len(loops)]]
    assert channel is not None
    s.reorder(*(loop for loop in spatial if loop is not channel), channel)
