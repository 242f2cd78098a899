"""Plans a loop that runs several kernels, which pass buffers to each other, step by step as one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from inlaid.tensor import ir
from inlaid.tensor.analysis.accesses import UnknownAccessError, accesses
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass, replace

LONGEST = 16
"""Maximum number of pieces in a repeating order. Longer orders add more code than the memory they save is worth."""


@dataclass(frozen=True)
class Member:
    """A kernel, and the numbers of the buffers that it is called on, in the order of its parameters."""

    program: ir.LoopProgram
    operands: tuple[int, ...]


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByteAccess:
    """The bytes of a buffer that a step accesses: [low, high) in iteration 0; both advance by `step` per iteration."""

    number: int
    low: int
    high: int
    step: int

    def lowest(self, start: int, end: int) -> int:
        """Return the first byte accessed in iterations [start, end)."""
        return max(0, self.low + self.step * (start if self.step >= 0 else end - 1))

    def highest(self, start: int, end: int) -> int:
        """Return the end (exclusive) of the bytes accessed in iterations [start, end)."""
        return self.high + self.step * (start if self.step < 0 else end - 1)


@dataclass(frozen=True)
class LoopSegment:
    """A sequence of steps: the iterations of a loop over `var`, or a single statement if `var` is None. `local` maps the buffers
    that are allocated around the segment to their replacements in the combined kernel."""

    var: arith.Var | None
    body: ir.Stmt
    count: int
    touches: tuple[ByteAccess, ...]
    local: Mapping[ir.Buffer, ir.Buffer]


class Tape:
    """A member as a sequence of steps. `sizes` maps the numbers of the passed buffers that it accesses to sizes in bytes."""

    def __init__(self, member: Member, passed: Sequence[int]) -> None:
        program = member.program
        count = len(program.inputs)
        self.inputs = tuple(zip(member.operands[:count], program.inputs, strict=True))
        self.outputs = tuple(zip(member.operands[count:], program.outputs, strict=True))
        self.buffers = {buffer: number for number, buffer in (*self.inputs, *self.outputs) if number in passed}
        self.sizes = {number: _bytes(buffer) for buffer, number in self.buffers.items()}
        self.written = {number for number, _ in self.outputs if number in self.sizes}
        self.segments = [self._segment(*step) for step in _steps(program.body, {})]
        self.operands = [tuple(touch for touch in segment.touches if touch.number not in self.written) for segment in self.segments]
        self._touches = {
            number: [[touch for touch in segment.touches if touch.number == number] for segment in self.segments]
            for number in self.sizes
        }
        self._later = {number: self._suffixes(number) for number in self.sizes}

    def touches(self, number: int, segment: int) -> Sequence[ByteAccess]:
        """Return the accesses of a segment to a passed buffer."""
        return self._touches[number][segment]

    def first_touched(self, number: int, segment: int, step: int) -> float:
        """Return the first byte of a buffer that is accessed in or after step `step` of a segment; infinity if none is accessed."""
        if segment == len(self.segments):
            return math.inf
        first_byte = self._later[number][segment + 1]
        for touch in self._touches[number][segment]:  # hot path: called for every step of every member
            first = touch.low + touch.step * (step if touch.step >= 0 else self.segments[segment].count - 1)
            if first < first_byte:
                first_byte = first
        return first_byte if first_byte > 0 else 0

    def _suffixes(self, number: int) -> list[float]:
        """Return the first byte of a buffer that each segment or a later one accesses, and infinity for the end."""
        lowest = [math.inf]
        for segment, touches in zip(reversed(self.segments), reversed(self._touches[number]), strict=True):
            lowest.append(min([*(touch.lowest(0, segment.count) for touch in touches), lowest[-1]]))
        return lowest[::-1]

    def _segment(self, stmt: ir.Stmt, local: Mapping[ir.Buffer, ir.Buffer]) -> LoopSegment:
        for node in ir.walk_stmts(stmt):
            # Windows are one-dimensional.
            boxes = node.regions if isinstance(node, ir.Intrinsic) else ()
            passed_regions = [region for region in boxes if region.buffer in self.buffers]
            if any(extent != arith.ONE for region in passed_regions for _, extent in region.ranges[:-1]):
                raise UnknownAccessError
        loop = stmt if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.SERIAL else None
        touches: dict[tuple[int, int], ByteAccess] = {}
        for buffer, number in self.buffers.items():
            for reads in (True, False) if number in self.written else (True,):
                for path, access in accesses(stmt, buffer, reads):
                    outer_steps = [(access.step(entry), entry.count - 1) for entry in path if entry.stmt is not loop]
                    low = access.low + sum(min(0, step * last) for step, last in outer_steps)
                    high = access.high + sum(max(0, step * last) for step, last in outer_steps)
                    step = next((access.step(entry) for entry in path if entry.stmt is loop), 0)
                    previous = touches.get((number, step), ByteAccess(number, low, high, step))
                    touches[number, step] = ByteAccess(number, min(low, previous.low), max(high, previous.high), step)
        if loop is None or not isinstance(loop.extent, arith.Const):
            if any(touch.step for touch in touches.values()):
                raise UnknownAccessError
            return LoopSegment(None, stmt, 1, tuple(touches.values()), local)
        return LoopSegment(loop.var, loop.body, loop.extent.value, tuple(touches.values()), local)


def _steps(stmt: ir.Stmt, local: Mapping[ir.Buffer, ir.Buffer]) -> Iterator[tuple[ir.Stmt, Mapping[ir.Buffer, ir.Buffer]]]:
    """Iterate over the statements in order, each with the buffers allocated around it."""
    match stmt:
        case ir.Seq(stmts=stmts):
            for item in stmts:
                yield from _steps(item, local)
        case ir.Alloc(buffer=ir.Buffer(scope="") as buffer, body=body):
            yield from _steps(body, {**local, buffer: replace(buffer)})
        case _:
            yield stmt, local


def _bytes(buffer: ir.Buffer) -> int:
    size = arith.product(buffer.shape)
    if not isinstance(size, int):
        raise UnknownAccessError
    return size * buffer.dtype.bytes


# --- order ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IterationRange:
    """A part of a member's segment: `count` iterations, beginning with iteration `start`."""

    tape: int
    segment: int
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


class _Walk:
    """The progress of all members: the current segment of each member, and the iteration within that segment."""

    def __init__(self, tapes: Sequence[Tape]) -> None:
        self._tapes = tapes
        self._at = [(0, 0) for _ in tapes]
        self._writer = {number: member for member, tape in enumerate(tapes) for number in tape.written}
        self._sizes = {number: size for tape in tapes for number, size in tape.sizes.items()}

    def _written(self, number: int) -> float:
        """Return the number of leading bytes of a buffer that have been written."""
        member = self._writer[number]
        return self._tapes[member].first_touched(number, *self._at[member])

    def _inputs(self, piece: IterationRange) -> Iterator[tuple[int, int]]:
        """Iterate over the buffers that a piece reads, each with the end of the bytes read."""
        for touch in self._tapes[piece.tape].operands[piece.segment]:
            yield touch.number, min(touch.highest(piece.start, piece.end), self._sizes[touch.number])

    def _advance(self, piece: IterationRange) -> None:
        """Advance a member past a piece."""
        is_segment_end = piece.end == self._tapes[piece.tape].segments[piece.segment].count
        self._at[piece.tape] = (piece.segment + 1, 0) if is_segment_end else (piece.segment, piece.end)


class _Run(_Walk):
    """Runs the last member as fast as possible, and the other members on demand, to find an order of pieces."""

    def __init__(self, tapes: Sequence[Tape]) -> None:
        super().__init__(tapes)
        self._pieces: list[IterationRange] = []

    def pieces(self) -> list[IterationRange]:
        """Run all members, and return the resulting order."""
        last = len(self._tapes) - 1
        while self._at[last][0] < len(self._tapes[last].segments):
            self._step(last, None)
        return self._pieces

    def _step(self, member: int, goal: tuple[int, float] | None) -> None:
        """Run at least one step of a member's current segment. With a goal (buffer, end), run no more steps than it takes to write
        the buffer up to byte `end`."""
        segment, start = self._at[member]
        segment_loop = self._tapes[member].segments[segment]
        steps = segment_loop.count - start if goal is None else self._steps_until(member, *goal)
        for number, end in self._inputs(IterationRange(member, segment, start, 1)):
            self._produce(number, end)
        for touch in self._tapes[member].operands[segment]:
            if touch.step > 0:
                written_bytes = self._written(touch.number)
                if written_bytes < self._sizes[touch.number]:
                    steps = min(steps, (int(written_bytes) - touch.high) // touch.step + 1 - start)
        assert steps > 0
        last = self._pieces[-1] if self._pieces else None
        if last is not None and (last.tape, last.segment, last.end) == (member, segment, start):
            self._pieces[-1] = replace(last, count=last.count + steps)
        else:
            self._pieces.append(IterationRange(member, segment, start, steps))
        self._advance(IterationRange(member, segment, start, steps))

    def _produce(self, number: int, end: float) -> None:
        """Run the member that writes a buffer until the buffer is written up to byte `end`."""
        while self._written(number) < end:
            self._step(self._writer[number], (number, end))

    def _steps_until(self, member: int, number: int, end: float) -> int:
        """Return how many steps a member's current segment needs to write a buffer up to byte `end`, at most all that remain."""
        segment, start = self._at[member]
        rest = self._tapes[member].segments[segment].count - start
        touches = self._tapes[member].touches(number, segment)
        steps = 1
        for touch in touches:
            if touch.low + touch.step * start < end:
                steps = max(steps, rest if touch.step <= 0 else min(rest, math.ceil((end - touch.low) / touch.step) - start))
        return steps if touches else rest


@dataclass(frozen=True)
class _Cycle:
    """A repeating part of an order: `length` pieces from piece `start` on, repeated `times` times."""

    start: int
    length: int
    times: int


def _cycle(pieces: Sequence[IterationRange]) -> _Cycle | None:
    """Return the repetition that leaves the fewest pieces; None if nothing repeats."""
    keys = [(piece.tape, piece.segment, piece.count) for piece in pieces]
    best: _Cycle | None = None
    for length in range(1, min(LONGEST, len(keys) // 2) + 1):
        run_length = 0
        for position in range(len(keys) - length):
            run_length = run_length + 1 if keys[position] == keys[position + length] else 0
            times = run_length // length + 1
            if times > 1 and (best is None or length * (times - 1) > best.length * (best.times - 1)):
                best = _Cycle(position + length + 1 - length * times, length, times)
    return best


# --- the loop ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Track:
    """The steps of a member in each iteration of the loop: `count` iterations of a segment. They begin at `start` in the first
    iteration of the loop, advance by `step` per iteration, and are clipped to the segment's extent."""

    tape: int
    segment: int
    start: int
    step: int
    count: int

    def span(self, iteration: int, segment_count: int) -> tuple[int, int]:
        """Return the range [first, end) of segment iterations that a loop iteration runs. The segment has `segment_count`
        iterations in total."""
        first = self.start + self.step * iteration
        return max(0, first), min(segment_count, first + self.count)


@dataclass(frozen=True)
class LoopPlan:
    """The plan of the loop: the tracks of each iteration, the number of iterations, and the whole order as (iteration, piece).
    Iteration -1 precedes the loop. `once` maps a track's number to the pieces that run before the track in only one iteration."""

    tracks: tuple[Track, ...]
    count: int
    order: tuple[tuple[int, IterationRange], ...]
    once: Mapping[int, tuple[tuple[int, IterationRange], ...]]


def _tracks(tapes: Sequence[Tape], pieces: Sequence[IterationRange], cycle: _Cycle) -> tuple[tuple[Track, ...], int]:
    """Extend the repeating part both ways while any segment has iterations. Returns tracks and number of loop iterations."""
    period = pieces[cycle.start : cycle.start + cycle.length]
    steps: dict[tuple[int, int], int] = {}
    for piece in period:
        steps[piece.tape, piece.segment] = steps.get((piece.tape, piece.segment), 0) + piece.count
    tracks = [Track(p.tape, p.segment, p.start, steps[p.tape, p.segment], p.count) for p in period]
    first = min(-((track.start + track.count - 1) // track.step) for track in tracks)
    last = max((tapes[track.tape].segments[track.segment].count - 1 - track.start) // track.step for track in tracks)
    return tuple(replace(track, start=track.start + track.step * first) for track in tracks), last - first + 1


def plan_loop(tapes: Sequence[Tape]) -> LoopPlan | None:
    """Plan the loop that runs the members; None if their order does not repeat."""
    pieces = _Run(tapes).pieces()
    cycle = _cycle(pieces)
    return None if cycle is None else _Loop(tapes, *_tracks(tapes, pieces, cycle)).plan()


class _Loop(_Walk):
    """Runs tracks iteration by iteration, and checks that each byte is written before it is read. A piece outside tracks runs once.
    If it reads no passed buffer, it runs before the loop. Otherwise, if it precedes its member's track, it runs as soon as its
    operands are ready. If it follows the track, it runs on demand."""

    def __init__(self, tapes: Sequence[Tape], tracks: Sequence[Track], count: int) -> None:
        super().__init__(tapes)
        self._tracks, self._count = tracks, count
        self._track_segments = {track.tape: track.segment for track in tracks}
        self._order: list[tuple[int, IterationRange]] = []
        self._once: dict[int, list[tuple[int, IterationRange]]] = {}

    def plan(self) -> LoopPlan | None:
        """Return the plan; None if an operand would be read before it is written."""
        if len(self._track_segments) != len({(track.tape, track.segment) for track in self._tracks}):
            return None
        for member in range(len(self._tapes)):
            while self._is_early(member) and self._can_run(self._next(member)):
                self._run(self._next(member), -1)
        for iteration in range(self._count):
            for slot, track in enumerate(self._tracks):
                while self._is_early(track.tape) and self._can_run(self._next(track.tape)):
                    self._run(self._next(track.tape), iteration, slot)
                first, end = track.span(iteration, self._tapes[track.tape].segments[track.segment].count)
                if first >= end:
                    continue
                piece = IterationRange(track.tape, track.segment, first, end - first)
                if self._at[track.tape] != (track.segment, first) or not self._demand(piece, iteration, slot):
                    return None
                self._run(piece, iteration)
        for member, tape in enumerate(self._tapes):
            while self._at[member][0] < len(tape.segments):
                if not self._can_run(self._next(member)):
                    return None
                self._run(self._next(member), self._count)
        return LoopPlan(tuple(self._tracks), self._count, tuple(self._order), {k: tuple(v) for k, v in self._once.items()})

    def _is_early(self, member: int) -> bool:
        """Test whether a member's next segment precedes the segment of its track."""
        return self._at[member][0] < self._track_segments.get(member, len(self._tapes[member].segments))

    def _next(self, member: int) -> IterationRange:
        segment, start = self._at[member]
        return IterationRange(member, segment, start, self._tapes[member].segments[segment].count - start)

    def _can_run(self, piece: IterationRange) -> bool:
        return all(self._written(number) >= end for number, end in self._inputs(piece))

    def _demand(self, piece: IterationRange, iteration: int, slot: int) -> bool:
        """Run the pieces outside tracks that `piece` depends on. Returns whether `piece` can run afterwards."""
        for number, end in self._inputs(piece):
            writer = self._writer[number]
            while self._written(number) < end:
                if self._at[writer][0] == self._track_segments.get(writer):
                    return False
                missing = self._next(writer)
                if not self._demand(missing, iteration, slot):
                    return False
                self._run(missing, iteration, slot)
        return True

    def _run(self, piece: IterationRange, iteration: int, slot: int | None = None) -> None:
        """Record a piece. If `slot` is given, the piece runs in a single iteration, before the track of that number."""
        if slot is not None:
            self._once.setdefault(slot, []).append((iteration, piece))
        self._order.append((iteration, piece))
        self._advance(piece)


# --- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RollingWindow:
    """The part of a passed buffer that the kernel keeps. In bytes, it begins at `start` in the first iteration and advances by
    `step` per iteration. Then the `carry` bytes that later iterations need move to its beginning."""

    buffer: ir.Buffer
    start: int
    step: int
    carry: int

    def at(self, iteration: arith.Expr | int) -> arith.Expr:
        """Return the number of the element at which the window begins in an iteration."""
        element_bytes = self.buffer.dtype.bytes
        return arith.wrap(iteration) * (self.step // element_bytes) + self.start // element_bytes


def infer_window(number: int, tapes: Sequence[Tape], plan: LoopPlan) -> RollingWindow | None:
    """Return the window of a passed buffer; None if the accesses do not advance uniformly."""
    users = {member: tape for member, tape in enumerate(tapes) if number in tape.sizes}
    buffer = next(buffer for tape in users.values() for buffer, buffer_number in tape.buffers.items() if buffer_number == number)
    size = _bytes(buffer)

    def touched(piece: IterationRange) -> Sequence[ByteAccess]:
        return users[piece.tape].touches(number, piece.segment) if piece.tape in users else ()

    parts = [IterationRange(track.tape, track.segment, 0, track.step) for track in plan.tracks]
    byte_steps = {touch.step * part.count for part in parts for touch in touched(part)}
    if len(byte_steps) != 1 or min(byte_steps) <= 0:
        return None
    step = byte_steps.pop()
    # For each iteration: the first byte accessed from its beginning on, and the end of the bytes written before it.
    progress = dict.fromkeys(users, (0, 0))
    first_bytes, written_ends, high = [math.inf] * (plan.count + 1), [0] * (plan.count + 1), 0
    begun = 0
    for iteration, piece in plan.order:
        while begun <= iteration or begun == 0:
            first_bytes[begun] = min(tape.first_touched(number, *progress[member]) for member, tape in users.items())
            written_ends[begun] = high
            begun += 1
        if piece.tape in users:
            is_segment_end = piece.end == tapes[piece.tape].segments[piece.segment].count
            progress[piece.tape] = (piece.segment + 1, 0) if is_segment_end else (piece.segment, piece.end)
            if number in users[piece.tape].written:
                high = max([high, *(min(size, touch.highest(piece.start, piece.end)) for touch in touched(piece))])
    start = int(min(first - step * iteration for iteration, first in enumerate(first_bytes) if first < size))
    carry = max(0, *(high - start - step * iteration for iteration, high in enumerate(written_ends) if iteration))
    byte_counts = [step + carry] if carry else []
    for iteration, piece in plan.order:
        base = start + step * max(iteration, 0)
        byte_counts += [min(size, touch.highest(piece.start, piece.end)) - base for touch in touched(piece)]
    element_bytes = buffer.dtype.bytes
    return RollingWindow(ir.Buffer(buffer.name, (max(byte_counts) // element_bytes,), buffer.dtype), start, step, carry)
