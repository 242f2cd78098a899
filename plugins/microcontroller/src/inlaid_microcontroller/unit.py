"""The code of an artifact: kernels in C, the calls to them in order, and the places of all buffers. JSON, so that nothing in it is
ever executed but the C that a compiler makes of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from inlaid.artifact import ALIGNMENT

PREFIX = "inlaid_"
"""What the names of functions in kernels' texts begin with: the model's name takes its place."""

POINTER = 16
"""Bytes in which a pointer has room, aligned, on any host."""


@dataclass(frozen=True)
class Kernel:
    """A function in C: its name after the prefix, its text, and whether it returns that an index was out of range. What one call
    does, as `counts.Work` has it."""

    name: str
    text: str
    checks: bool
    multiplications: int
    loads: int
    stores: int
    locals: int


@dataclass(frozen=True)
class Call:
    """One call: the number of the kernel, those of buffers in the order of its parameters, the source nodes, the integers that
    it takes after the buffers, and its predicates: numbers of bool buffers, each with the value that it must have."""

    kernel: int
    buffers: tuple[int, ...]
    nodes: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    predicates: tuple[tuple[int, bool], ...] = ()


@dataclass(frozen=True)
class Buffer:
    """A buffer: `storage` is input, output, constant or arena, `index` its number among these, `offset` where it lies in the arena,
    or in the fast one (unless it is constant), `kind` the C type of an element, `elements` how many there are."""

    name: str
    storage: str
    index: int
    offset: int
    kind: str
    elements: int
    bytes: int
    fast: bool = False


@dataclass(frozen=True)
class Unit:
    """A region. `arena` and `fast` are the bytes of its arenas, `headers` what its kernels include, `functions` the text of those
    that they call."""

    cpu: str
    kernels: tuple[Kernel, ...]
    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    arena: int
    fast: int
    headers: tuple[str, ...]
    functions: str

    def encode(self) -> bytes:
        """As an artifact's code. Equal units give equal bytes."""
        return json.dumps(asdict(self), indent=1).encode()


def workspace(arena: int, fast: int) -> int:
    """Bytes of a model's state on the host: its arena and, where there is a fast one, a pointer to that and what is there."""
    return arena if not fast else fast_start(arena) + fast


def fast_start(arena: int) -> int:
    """Where the fast arena lies behind the state on the host."""
    return -(-(arena + POINTER) // ALIGNMENT) * ALIGNMENT


def decode(code: bytes) -> Unit:
    """The unit that an artifact's code is. Raises ValueError for what is none, and for numbers out of range."""
    try:
        found: dict[str, Any] = json.loads(code)
        unit = Unit(
            str(found["cpu"]),
            tuple(Kernel(**item) for item in found["kernels"]),
            tuple(
                Call(
                    item["kernel"],
                    tuple(item["buffers"]),
                    tuple(item["nodes"]),
                    tuple(map(int, item["numbers"])),
                    tuple((int(number), bool(holds)) for number, holds in item["predicates"]),
                )
                for item in found["calls"]
            ),
            tuple(Buffer(**item) for item in found["buffers"]),
            int(found["arena"]),
            int(found["fast"]),
            tuple(map(str, found["headers"])),
            str(found["functions"]),
        )
        for call in unit.calls:
            buffers = (*call.buffers, *(number for number, _ in call.predicates))
            if not 0 <= call.kernel < len(unit.kernels) or not all(0 <= number < len(unit.buffers) for number in buffers):
                raise ValueError("a call names what there is not")
        for buffer in unit.buffers:
            inside = buffer.offset >= 0 and buffer.offset + buffer.bytes <= (unit.fast if buffer.fast else unit.arena)
            if buffer.storage != "constant" and not inside:
                raise ValueError(f"buffer {buffer.name} lies outside of the arena")
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no model: {error}") from error
    return unit
