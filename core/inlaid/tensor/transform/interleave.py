"""Interleaves kernels that pass buffers to each other into one kernel, which needs only windows of these buffers.

Each kernel is a sequence of steps: the statements of its body, or the iterations of its outermost loops. A step of the last kernel
runs as soon as its operands are ready; the other kernels run only the steps that produce these operands. The resulting order
becomes periodic, so that it can be written as a loop:

    for y: for x: t[y, x] = a(in, y, x)                    for x: t[0, x] = a(in, 0, x)
    for y: for x: out[y, x] = b(t[y .. y + 1, x])          for y:
                                                               for x: t[1, x] = a(in, y + 1, x)
                                                               for x: out[y, x] = b(t[0 .. 1, x])
                                                               for x: t[0, x] = t[1, x]

A passed buffer thus needs only a window, which advances with every iteration of the loop: elements still to be read move to its
beginning. Indices stay linear in the loops. Image kernels run row by row with line buffers between them. The window is what
Ragan-Kelley et al., "Halide" (PLDI 2013), call a sliding window with folded storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.tensor import ir
from inlaid.tensor.analysis.accesses import UnknownAccessError
from inlaid.tensor.transform.loop_plan import (
    IterationRange,
    LoopPlan,
    LoopSegment,
    Member,
    RollingWindow,
    Tape,
    Track,
    infer_window,
    plan_loop,
)
from inlaid.tensor.transform.lower_blocks import guarded, simplify_program
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass, replace

__all__ = ["Interleaved", "Member", "interleave"]


@dataclass(frozen=True)
class Interleaved:
    """A kernel that combines several kernels, and the numbers of the buffers passed to it. Its last outputs are the one-dimensional
    windows of the passed buffers."""

    program: ir.LoopProgram
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def interleave(name: str, members: Sequence[Member], passed: Sequence[int]) -> Interleaved | None:
    """Interleave the members, given in a valid order, into one kernel. Each buffer in `passed` is written by one member and read
    only by later members; other outputs of members before the last one are not read. None if a member is not plain loops over
    static sizes, or the order does not become periodic."""
    if any(member.program.defines or member.program.sizes or member.program.updates for member in members):
        return None
    try:
        tapes = [Tape(member, passed) for member in members]
    except UnknownAccessError:
        return None
    plan = plan_loop(tapes)
    if plan is None:
        return None
    windows = [infer_window(number, tapes, plan) for number in passed]
    window_by_number = {number: window for number, window in zip(passed, windows, strict=True) if window is not None}
    return _KernelBuilder(name, tapes, plan, window_by_number).program() if len(window_by_number) == len(passed) else None


class _KernelBuilder:
    """Builds the interleaved kernel."""

    def __init__(self, name: str, tapes: Sequence[Tape], plan: LoopPlan, windows: Mapping[int, RollingWindow]) -> None:
        self._name, self._tapes, self._plan, self._windows = name, tapes, plan, windows
        self._iteration = arith.Var("iteration")
        # Several members may be the same kernel, with the same buffer objects, so each member gets copies. Members that read an
        # external buffer with different shapes get a parameter for each shape.
        inputs: dict[tuple[int, tuple[arith.Dim, ...]], ir.Buffer] = {}
        outputs: dict[int, ir.Buffer] = {}
        self._params: list[dict[ir.Buffer, ir.Buffer]] = []
        for tape in tapes:
            params: dict[ir.Buffer, ir.Buffer] = {}
            for number, buffer in tape.inputs:
                if number not in windows:
                    params[buffer] = inputs.setdefault((number, buffer.shape), replace(buffer))
            for number, buffer in tape.outputs:
                if number not in windows:
                    params[buffer] = outputs.setdefault(number, replace(buffer))
            self._params.append(params)
        self._inputs, self._outputs = inputs, outputs

    def program(self) -> Interleaved:
        """Build the kernel, and list the buffers that it is called on."""
        windows = self._windows.values()
        count = self._plan.count
        prologue = [self._once(piece, 0) for iteration, piece in self._plan.order if iteration < 0]
        epilogue = [self._once(piece, count) for iteration, piece in self._plan.order if iteration == count]
        body: list[ir.Stmt] = []
        for slot, track in enumerate(self._plan.tracks):
            for iteration, piece in self._plan.once.get(slot, ()):
                body.append(guarded(self._once(piece, iteration), arith.compare("==", self._iteration, iteration)))
            body.append(self._track(track))
        body += [_shift_window(window) for window in windows if window.carry]
        kernel_body: ir.Stmt = ir.Seq((*prologue, ir.For(self._iteration, arith.wrap(count), ir.Seq(tuple(body))), *epilogue))
        local_buffers = [buffer for tape in self._tapes for segment in tape.segments for buffer in segment.local.values()]
        for buffer in dict.fromkeys(local_buffers):
            kernel_body = ir.Alloc(buffer, kernel_body)
        outputs = (*self._outputs.values(), *(window.buffer for window in windows))
        program = ir.LoopProgram(self._name, tuple(self._inputs.values()), outputs, kernel_body)
        return Interleaved(simplify_program(program), tuple(number for number, _ in self._inputs), (*self._outputs, *self._windows))

    def _once(self, piece: IterationRange, iteration: int) -> ir.Stmt:
        """Build the code of a piece that runs in a single iteration."""
        segment = self._tapes[piece.tape].segments[piece.segment]
        if segment.var is None:
            return self._body_in_iteration(piece.tape, segment, {}, arith.wrap(iteration))
        var = arith.Var(segment.var.name)
        index = piece.start + var
        return ir.For(
            var, arith.wrap(piece.count), self._body_in_iteration(piece.tape, segment, {segment.var: index}, arith.wrap(iteration))
        )

    def _track(self, track: Track) -> ir.Stmt:
        """Build the code of a track, with guards if some iterations of the loop run only a part of the track, or nothing of it."""
        segment = self._tapes[track.tape].segments[track.segment]
        assert segment.var is not None
        spans = [track.span(iteration, segment.count) for iteration in range(self._plan.count)]
        active = [iteration for iteration, (first, end) in enumerate(spans) if first < end]
        var = None if track.count == 1 else arith.Var(segment.var.name)
        index = self._iteration * track.step + track.start + (0 if var is None else var)
        body = self._body_in_iteration(track.tape, segment, {segment.var: index}, self._iteration)
        if var is not None:
            in_segment: arith.Expr = arith.ONE
            if spans[active[0]][0] > track.start + track.step * active[0]:
                in_segment = arith.compare("<=", 0, index)
            if spans[active[-1]][1] < track.start + track.step * active[-1] + track.count:
                in_segment = arith.logical_and(in_segment, arith.compare("<", index, segment.count))
            body = ir.For(var, arith.wrap(track.count), guarded(body, in_segment))
        condition = arith.compare("<=", active[0], self._iteration) if active[0] else arith.ONE
        if active[-1] + 1 < self._plan.count:
            condition = arith.logical_and(condition, arith.compare("<", self._iteration, active[-1] + 1))
        return guarded(body, condition)

    def _body_in_iteration(
        self, member: int, segment: LoopSegment, variables: dict[arith.Expr, arith.Expr], iteration: arith.Expr
    ) -> ir.Stmt:
        """Build the body of a member's segment in one iteration, with passed buffers replaced by windows."""
        bases = {
            buffer: (self._windows[number].buffer, self._windows[number].at(iteration))
            for buffer, number in self._tapes[member].buffers.items()
        }
        return _over_windows(segment.body, variables, {**self._params[member], **segment.local}, bases)


_Bases = Mapping[ir.Buffer, tuple[ir.Buffer, arith.Expr]]


def _over_windows(
    stmt: ir.Stmt, variables: Mapping[arith.Expr, arith.Expr], params: Mapping[ir.Buffer, ir.Buffer], bases: _Bases
) -> ir.Stmt:
    """Redirect the accesses of a statement to windows. `bases` maps a buffer to its window and the window's first element."""

    def window_element(buffer: ir.Buffer, indices: Sequence[arith.Expr]) -> tuple[ir.Buffer, arith.Expr]:
        window, base = bases[buffer]
        flat: arith.Expr = arith.ZERO
        for index, size in zip(indices, buffer.shape, strict=True):
            flat = flat * size + index
        return window, arith.simplify(flat - base)

    def load(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer not in bases:
            return None
        window, index = window_element(node.buffer, node.indices)
        return ir.load(window, (index,))

    def store(node: ir.Stmt) -> ir.Stmt | None:
        if isinstance(node, ir.Store) and node.buffer in bases:
            window, index = window_element(node.buffer, node.indices)
            return ir.Store(window, (index,), node.value)
        if isinstance(node, ir.Intrinsic) and any(region.buffer in bases for region in node.regions):
            regions = []
            for region in node.regions:
                if region.buffer in bases:
                    window, index = window_element(region.buffer, [first for first, _ in region.ranges])
                    region = ir.BufferRegion(window, ((index, region.ranges[-1][1]),))
                regions.append(region)
            return replace(node, regions=tuple(regions))
        return None

    return Rewriter(variables, params, load, store).stmt(stmt)


def _shift_window(window: RollingWindow) -> ir.Stmt:
    """Move the kept part of a window to its beginning."""
    element_bytes, i = window.buffer.dtype.bytes, arith.Var("i")
    load = ir.load(window.buffer, (arith.simplify(i + window.step // element_bytes),))
    return ir.For(i, arith.wrap(window.carry // element_bytes), ir.Store(window.buffer, (i,), load))
