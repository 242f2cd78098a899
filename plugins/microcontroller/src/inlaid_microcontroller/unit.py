"""The code of an artifact: kernels in C, calls in order, and the memory plan. The format is JSON, so loading executes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from inlaid.artifact import ALIGNMENT

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
class Unit:
    """A region. arena, fast: bytes of the arena and of the fast arena. headers: headers that kernels include. functions: text of
    functions that kernels call."""

    cpu: str
    kernels: tuple[Kernel, ...]
    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    arena: int
    fast: int
    headers: tuple[str, ...]
    functions: str

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
                raise ValueError("expected calls of existing kernels and buffers, found a number out of range")
        for buffer in unit.buffers:
            inside = buffer.offset >= 0 and buffer.offset + buffer.bytes <= (unit.fast if buffer.fast else unit.arena)
            if buffer.storage != "constant" and not inside:
                raise ValueError(f"expected buffers within the arena, found {buffer.name} outside")
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"malformed model: {error}") from error
    return unit
