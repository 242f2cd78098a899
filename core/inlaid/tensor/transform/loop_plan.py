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
class Segment:
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
        self.operands = [tuple(touch for touch in each.touches if touch.number not in self.written) for each in self.segments]
        self._touches = {
            number: [[touch for touch in each.touches if touch.number == number] for each in self.segments] for number in self.sizes
        }
        self._later = {number: self._suffixes(number) for number in self.sizes}

    def touches(self, number: int, segment: int) -> Sequence[ByteAccess]:
        """Return the accesses of a segment to a passed buffer."""
        return self._touches[number][segment]

    def first_touched(self, number: int, segment: int, at: int) -> float:
        """Return the first byte of a buffer that is accessed in or after step `at` of a segment; infinity if none is accessed."""
        if segment == len(self.segments):
            return math.inf
        found = self._later[number][segment + 1]
        for touch in self._touches[number][segment]:  # hot path: called for every step of every member
            first = touch.low + touch.step * (at if touch.step >= 0 else self.segments[segment].count - 1)
            if first < found:
                found = first
        return found if found > 0 else 0

    def _suffixes(self, number: int) -> list[float]:
        lowest = [math.inf]
        for segment, touches in zip(reversed(self.segments), reversed(self._touches[number]), strict=True):
            lowest.append(min([*(touch.lowest(0, segment.count) for touch in touches), lowest[-1]]))
        return lowest[::-1]

    def _segment(self, stmt: ir.Stmt, local: Mapping[ir.Buffer, ir.Buffer]) -> Segment:
        for node in ir.walk_stmts(stmt):
            # Windows are one-dimensional.
            boxes = node.regions if isinstance(node, ir.Intrinsic) else ()
            passed = [region for region in boxes if region.buffer in self.buffers]
            if any(extent != arith.ONE for region in passed for _, extent in region.ranges[:-1]):
                raise UnknownAccessError
        loop = stmt if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.SERIAL else None
        touches: dict[tuple[int, int], ByteAccess] = {}
        for buffer, number in self.buffers.items():
            for reads in (True, False) if number in self.written else (True,):
                for place, access in accesses(stmt, buffer, reads):
                    others = [(access.step(entry), entry.count - 1) for entry in place if entry.stmt is not loop]
                    low = access.low + sum(min(0, step * last) for step, last in others)
                    high = access.high + sum(max(0, step * last) for step, last in others)
                    step = next((access.step(entry) for entry in place if entry.stmt is loop), 0)
                    known = touches.get((number, step), ByteAccess(number, low, high, step))
                    touches[number, step] = ByteAccess(number, min(low, known.low), max(high, known.high), step)
        if loop is None or not isinstance(loop.extent, arith.Const):
            if any(touch.step for touch in touches.values()):
                raise UnknownAccessError
            return Segment(None, stmt, 1, tuple(touches.values()), local)
        return Segment(loop.var, loop.body, loop.extent.value, tuple(touches.values()), local)


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
class Piece:
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
        self._writer = {number: place for place, tape in enumerate(tapes) for number in tape.written}
        self._sizes = {number: size for tape in tapes for number, size in tape.sizes.items()}

    def _written(self, number: int) -> float:
        """Return the number of leading bytes of a buffer that have been written."""
        place = self._writer[number]
        return self._tapes[place].first_touched(number, *self._at[place])

    def _inputs(self, piece: Piece) -> Iterator[tuple[int, int]]:
        """Iterate over the buffers that a piece reads, each with the end of the bytes read."""
        for touch in self._tapes[piece.tape].operands[piece.segment]:
            yield touch.number, min(touch.highest(piece.start, piece.end), self._sizes[touch.number])

    def _pass(self, piece: Piece) -> None:
        """Advance a member past a piece."""
        done = piece.end == self._tapes[piece.tape].segments[piece.segment].count
        self._at[piece.tape] = (piece.segment + 1, 0) if done else (piece.segment, piece.end)


class _Run(_Walk):
    """Runs the last member as fast as possible, and the other members on demand, to find an order of pieces."""

    def __init__(self, tapes: Sequence[Tape]) -> None:
        super().__init__(tapes)
        self._done: list[Piece] = []

    def pieces(self) -> list[Piece]:
        """Run all members, and return the resulting order."""
        last = len(self._tapes) - 1
        while self._at[last][0] < len(self._tapes[last].segments):
            self._step(last, None)
        return self._done

    def _step(self, place: int, wanted: tuple[int, float] | None) -> None:
        """Run at least one step of a member's current segment, and no more than it takes to write buffer and end of `wanted`."""
        segment, at = self._at[place]
        here = self._tapes[place].segments[segment]
        most = here.count - at if wanted is None else self._steps_until(place, *wanted)
        for number, end in self._inputs(Piece(place, segment, at, 1)):
            self._produce(number, end)
        for touch in self._tapes[place].operands[segment]:
            if touch.step > 0:
                there = self._written(touch.number)
                if there < self._sizes[touch.number]:
                    most = min(most, (int(there) - touch.high) // touch.step + 1 - at)
        assert most > 0
        last = self._done[-1] if self._done else None
        if last is not None and (last.tape, last.segment, last.end) == (place, segment, at):
            self._done[-1] = replace(last, count=last.count + most)
        else:
            self._done.append(Piece(place, segment, at, most))
        self._pass(Piece(place, segment, at, most))

    def _produce(self, number: int, end: float) -> None:
        """Run the member that writes a buffer until the buffer is written up to byte `end`."""
        while self._written(number) < end:
            self._step(self._writer[number], (number, end))

    def _steps_until(self, place: int, number: int, end: float) -> int:
        """Return how many steps a member's current segment needs to write a buffer up to byte `end`, at most all that remain."""
        segment, at = self._at[place]
        rest = self._tapes[place].segments[segment].count - at
        touches = self._tapes[place].touches(number, segment)
        most = 1
        for touch in touches:
            if touch.low + touch.step * at < end:
                most = max(most, rest if touch.step <= 0 else min(rest, math.ceil((end - touch.low) / touch.step) - at))
        return most if touches else rest


@dataclass(frozen=True)
class _Cycle:
    """A repeating part of an order: `length` pieces from piece `start` on, repeated `times` times."""

    start: int
    length: int
    times: int


def _cycle(pieces: Sequence[Piece]) -> _Cycle | None:
    """Return the repetition that leaves the fewest pieces; None if nothing repeats."""
    keys = [(piece.tape, piece.segment, piece.count) for piece in pieces]
    best: _Cycle | None = None
    for length in range(1, min(LONGEST, len(keys) // 2) + 1):
        alike = 0
        for place in range(len(keys) - length):
            alike = alike + 1 if keys[place] == keys[place + length] else 0
            times = alike // length + 1
            if times > 1 and (best is None or length * (times - 1) > best.length * (best.times - 1)):
                best = _Cycle(place + length + 1 - length * times, length, times)
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

    def span(self, iteration: int, most: int) -> tuple[int, int]:
        """Return the range [first, end) of segment iterations that a loop iteration runs. The segment has `most` iterations."""
        first = self.start + self.step * iteration
        return max(0, first), min(most, first + self.count)


@dataclass(frozen=True)
class LoopPlan:
    """The plan of the loop: the tracks of each iteration, the number of iterations, and the whole order as (iteration, piece).
    Iteration -1 precedes the loop. `once` maps a track's number to the pieces that run before the track in only one iteration."""

    tracks: tuple[Track, ...]
    count: int
    order: tuple[tuple[int, Piece], ...]
    once: Mapping[int, tuple[tuple[int, Piece], ...]]


def _tracks(tapes: Sequence[Tape], pieces: Sequence[Piece], cycle: _Cycle) -> tuple[tuple[Track, ...], int]:
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
        self._own = {track.tape: track.segment for track in tracks}
        self._order: list[tuple[int, Piece]] = []
        self._once: dict[int, list[tuple[int, Piece]]] = {}

    def plan(self) -> LoopPlan | None:
        """Return the plan; None if an operand would be read before it is written."""
        if len(self._own) != len({(track.tape, track.segment) for track in self._tracks}):
            return None
        for place in range(len(self._tapes)):
            while self._is_early(place) and self._ready(self._next(place)):
                self._run(self._next(place), -1)
        for iteration in range(self._count):
            for slot, track in enumerate(self._tracks):
                while self._is_early(track.tape) and self._ready(self._next(track.tape)):
                    self._run(self._next(track.tape), iteration, slot)
                first, end = track.span(iteration, self._tapes[track.tape].segments[track.segment].count)
                if first >= end:
                    continue
                piece = Piece(track.tape, track.segment, first, end - first)
                if self._at[track.tape] != (track.segment, first) or not self._demand(piece, iteration, slot):
                    return None
                self._run(piece, iteration)
        for place, tape in enumerate(self._tapes):
            while self._at[place][0] < len(tape.segments):
                if not self._ready(self._next(place)):
                    return None
                self._run(self._next(place), self._count)
        return LoopPlan(tuple(self._tracks), self._count, tuple(self._order), {k: tuple(v) for k, v in self._once.items()})

    def _is_early(self, place: int) -> bool:
        """Test whether a member's next segment precedes the segment of its track."""
        return self._at[place][0] < self._own.get(place, len(self._tapes[place].segments))

    def _next(self, place: int) -> Piece:
        segment, at = self._at[place]
        return Piece(place, segment, at, self._tapes[place].segments[segment].count - at)

    def _ready(self, piece: Piece) -> bool:
        return all(self._written(number) >= end for number, end in self._inputs(piece))

    def _demand(self, piece: Piece, iteration: int, slot: int) -> bool:
        """Run the pieces outside tracks that `piece` depends on. Returns whether `piece` can run afterwards."""
        for number, end in self._inputs(piece):
            writer = self._writer[number]
            while self._written(number) < end:
                if self._at[writer][0] == self._own.get(writer):
                    return False
                missing = self._next(writer)
                if not self._demand(missing, iteration, slot):
                    return False
                self._run(missing, iteration, slot)
        return True

    def _run(self, piece: Piece, iteration: int, slot: int | None = None) -> None:
        """Record a piece. If `slot` is given, the piece runs in a single iteration, before the track of that number."""
        if slot is not None:
            self._once.setdefault(slot, []).append((iteration, piece))
        self._order.append((iteration, piece))
        self._pass(piece)


# --- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The part of a passed buffer that the kernel keeps. In bytes, it begins at `start` in the first iteration and advances by
    `step` per iteration. Then the `kept` bytes that later iterations need move to its beginning."""

    buffer: ir.Buffer
    start: int
    step: int
    kept: int

    def at(self, iteration: arith.Expr | int) -> arith.Expr:
        """Return the number of the element at which the window begins in an iteration."""
        each = self.buffer.dtype.bytes
        return arith.wrap(iteration) * (self.step // each) + self.start // each


def window_of(number: int, tapes: Sequence[Tape], plan: LoopPlan) -> Window | None:
    """Return the window of a passed buffer; None if the accesses do not advance uniformly."""
    users = {place: tape for place, tape in enumerate(tapes) if number in tape.sizes}
    buffer = next(buffer for tape in users.values() for buffer, of in tape.buffers.items() if of == number)
    size = _bytes(buffer)

    def touched(piece: Piece) -> Sequence[ByteAccess]:
        return users[piece.tape].touches(number, piece.segment) if piece.tape in users else ()

    parts = [Piece(track.tape, track.segment, 0, track.step) for track in plan.tracks]
    moved = {touch.step * part.count for part in parts for touch in touched(part)}
    if len(moved) != 1 or min(moved) <= 0:
        return None
    step = moved.pop()
    # For each iteration: the first byte accessed from its beginning on, and the end of the bytes written before it.
    at = dict.fromkeys(users, (0, 0))
    needed, reached, high = [math.inf] * (plan.count + 1), [0] * (plan.count + 1), 0
    begun = 0
    for iteration, piece in plan.order:
        while begun <= iteration or begun == 0:
            needed[begun] = min(tape.first_touched(number, *at[place]) for place, tape in users.items())
            reached[begun] = high
            begun += 1
        if piece.tape in users:
            done = piece.end == tapes[piece.tape].segments[piece.segment].count
            at[piece.tape] = (piece.segment + 1, 0) if done else (piece.segment, piece.end)
            if number in users[piece.tape].written:
                high = max([high, *(min(size, touch.highest(piece.start, piece.end)) for touch in touched(piece))])
    start = int(min(first - step * iteration for iteration, first in enumerate(needed) if first < size))
    kept = max(0, *(high - start - step * iteration for iteration, high in enumerate(reached) if iteration))
    room = [step + kept] if kept else []
    for iteration, piece in plan.order:
        base = start + step * max(iteration, 0)
        room += [min(size, touch.highest(piece.start, piece.end)) - base for touch in touched(piece)]
    each = buffer.dtype.bytes
    return Window(ir.Buffer(buffer.name, (max(room) // each,), buffer.dtype), start, step, kept)
