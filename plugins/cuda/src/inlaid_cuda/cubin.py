"""What kernels of a cubin take of a multiprocessor, as its assembler reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '\w+'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """Registers and bytes of local memory of a thread, bytes of local memory that it stores and loads for lack of registers, and
    bytes of shared memory of a block that its source declares."""

    registers: int
    local: int
    spill_stores: int
    spill_loads: int
    shared: int


def resources(log: str) -> dict[str, Resources]:
    """The resources of each kernel by name, from the log of `ptxas -v`."""
    found = {}
    parts = _ENTRY.split(log)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        frame, used, shared = _FRAME.search(text), _USED.search(text), _SHARED.search(text)
        assert frame is not None and used is not None, text
        local, stores, loads = map(int, frame.groups())
        found[name] = Resources(int(used[1]), local, stores, loads, int(shared[1]) if shared else 0)
    return found
