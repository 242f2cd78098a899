"""The code of an artifact: kernels in C, calls in order, and the memory plan. The format is JSON, so loading executes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from inlaid_runtime.artifact import ALIGNMENT

PREFIX = "inlaid_"
"""Prefix of function names in the text of kernels, later replaced by the model's name."""

POINTER = 16
"""Bytes reserved for an aligned pointer on any host."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as a C function. name: name without the prefix. checks: the function returns whether an index was out of range. The
    other fields are the work of one call (see `counts.Work`)."""

    name: str
    text: str
    checks: bool
    multiplications: int
    loads: int
    stores: int
    locals: int


@dataclass(frozen=True)
class Call:
    """One call of a kernel. kernel: number of the kernel. buffers: numbers of the buffers in parameter order. nodes: source nodes.
    numbers: integer arguments after the buffers. predicates: numbers of bool buffers, each with the value required for the call to
    run."""

    kernel: int
    buffers: tuple[int, ...]
    nodes: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    predicates: tuple[tuple[int, bool], ...] = ()


@dataclass(frozen=True)
class Buffer:
    """A buffer. storage: input, output, constant or arena. index: number among the buffers of the same storage. offset: bytes into
    the arena, or into the fast arena if `fast`; unused for constants. kind: C type of an element. elements: number of elements."""

    name: str
    storage: str
    index: int
    offset: int
    kind: str
    elements: int
    bytes: int
    fast: bool = False


@dataclass(frozen=True)
class Copy:
    """A copy between buffers, by number. bytes: size of the copied part. source_step, target_step: bytes by which the part of the
    source or target moves in each round of a loop."""

    source: int
    target: int
    bytes: int
    source_step: int = 0
    target_step: int = 0


@dataclass(frozen=True)
class Loop:
    """How often the calls of a region run, and what is copied. rounds: greatest number of rounds, -1 if unlimited. trips: int64
    buffer that limits the rounds further, -1 if none. condition: bool buffer that says whether the first round runs, -1 if it
    always runs.
    number: int64 buffer that receives the number of each round. going: bool buffer to which a round writes whether another
    round follows, -1 if one always follows. exact: whether fewer rounds than `rounds` are an error. first: copies before the loop.
    before, after: copies before and after the calls of each round."""

    rounds: int
    trips: int
    condition: int
    number: int
    going: int
    exact: bool
    first: tuple[Copy, ...]
    before: tuple[Copy, ...]
    after: tuple[Copy, ...]

    @property
    def fails(self) -> bool:
        """Whether the loop may have fewer rounds than its stacked outputs have rows, which is an error."""
        return self.exact and (self.trips >= 0 or self.condition >= 0 or self.going >= 0)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """All copies."""
        return (*self.first, *self.before, *self.after)


@dataclass(frozen=True)
class Unit:
    """A region. arena, fast: bytes of the arena and of the fast arena. headers: headers that kernels include. functions: text of
    functions that kernels call. loop: None if the calls run once."""

    cpu: str
    kernels: tuple[Kernel, ...]
    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    arena: int
    fast: int
    headers: tuple[str, ...]
    functions: str
    loop: Loop | None = None

    def encode(self) -> bytes:
        """Encode as an artifact's code. Equal units give equal bytes."""
        return json.dumps(asdict(self), indent=1).encode()


def workspace(arena: int, fast: int) -> int:
    """Return the bytes of a model's state on the host. The state is the arena, followed by a pointer to the fast arena and the fast
    arena if `fast` > 0."""
    return arena if not fast else fast_start(arena) + fast


def fast_start(arena: int) -> int:
    """Return the offset in bytes of the fast arena in the state on the host."""
    return -(-(arena + POINTER) // ALIGNMENT) * ALIGNMENT


def decode(code: bytes) -> Unit:
    """Decode an artifact's code. Raises ValueError if the code is malformed or has numbers out of range."""
    try:
        fields: dict[str, Any] = json.loads(code)
        unit = Unit(
            str(fields["cpu"]),
            tuple(Kernel(**item) for item in fields["kernels"]),
            tuple(
                Call(
                    item["kernel"],
                    tuple(item["buffers"]),
                    tuple(item["nodes"]),
                    tuple(map(int, item["numbers"])),
                    tuple((int(number), bool(holds)) for number, holds in item["predicates"]),
                )
                for item in fields["calls"]
            ),
            tuple(Buffer(**item) for item in fields["buffers"]),
            int(fields["arena"]),
            int(fields["fast"]),
            tuple(map(str, fields["headers"])),
            str(fields["functions"]),
            None if fields["loop"] is None else _loop(fields["loop"]),
        )
        for call in unit.calls:
            buffers = (*call.buffers, *(number for number, _ in call.predicates))
            if not 0 <= call.kernel < len(unit.kernels) or not all(0 <= number < len(unit.buffers) for number in buffers):
                raise ValueError("expected calls of existing kernels and buffers, found a number out of range")
        if unit.loop is not None:
            _check_loop(unit, unit.loop)
        for buffer in unit.buffers:
            is_inside = buffer.offset >= 0 and buffer.offset + buffer.bytes <= (unit.fast if buffer.fast else unit.arena)
            if buffer.storage != "constant" and not is_inside:
                raise ValueError(f"expected buffers within the arena, found {buffer.name} outside")
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"malformed model: {error}") from error
    return unit


def _loop(fields: dict[str, Any]) -> Loop:
    rounds, trips, condition, number, going = (int(fields[name]) for name in ("rounds", "trips", "condition", "number", "going"))
    first, before, after = (tuple(Copy(**item) for item in fields[name]) for name in ("first", "before", "after"))
    return Loop(rounds, trips, condition, number, going, bool(fields["exact"]), first, before, after)


def _check_loop(unit: Unit, loop: Loop) -> None:
    """Raise ValueError unless a loop uses existing buffers, and copies within them."""
    numbers = (loop.trips, loop.condition, loop.number, loop.going)
    if not all(-1 <= number < len(unit.buffers) for number in numbers) or loop.number < 0 or loop.rounds < -1:
        raise ValueError("expected a loop over existing buffers, found a number out of range")
    for copy in loop.copies:
        for number, step in ((copy.source, copy.source_step), (copy.target, copy.target_step)):
            last = step * max(loop.rounds - 1, 0) + copy.bytes
            if not 0 <= number < len(unit.buffers) or min(copy.bytes, step) < 0 or last > unit.buffers[number].bytes:
                raise ValueError("expected copies within buffers, found one outside")
            if step and loop.rounds < 0:
                raise ValueError("expected a limit on the rounds of a loop that steps through a buffer, found none")
