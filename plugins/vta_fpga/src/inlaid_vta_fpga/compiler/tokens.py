"""Dependence tokens over a flat stream, exactly where data asks for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from inlaid_vta_fpga.compiler.tasks import Access, Step
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Finish, Flags, Instruction, Load, Module, Store

_Numbers = np.ndarray[tuple[int], np.dtype[np.int32]]
_NOOPS: dict[Module, Instruction] = {Module.LOAD: Load(Memory.INP), Module.COMPUTE: Load(Memory.UOP), Module.STORE: Store()}
_OUTSTANDING = 128
"""Tokens that may wait in a queue: counters of 8 bits saturate at 255."""


@dataclass(slots=True, eq=False)
class _Issued:
    """An instruction of the stream: its module, and its flags so far."""

    instruction: Instruction
    source: str
    module: Module
    flags: dict[str, bool] = field(default_factory=dict)


class _Shared:
    """Which instruction last wrote, and per module last read, each element of the memories and of DRAM."""

    def __init__(self, config: Config, dram: int) -> None:
        sizes: dict[Memory | None, int] = {memory: config.depth(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC)}
        sizes[None] = dram
        self._written: dict[Memory | None, _Numbers] = {key: np.full(size, -1, np.int32) for key, size in sizes.items()}
        self._read: dict[tuple[Memory | None, Module], _Numbers] = {}
        self._writers: dict[Memory | None, Module] = {}

    def needs(self, accesses: Sequence[Access], module: Module) -> dict[Module, int]:
        """The last instruction of each other module that an instruction with these accesses has to follow."""
        found: dict[Module, int] = {}
        for access in accesses:
            writer = self._writers.get(access.memory)
            if writer is not None and writer is not module:
                found[writer] = max(found.get(writer, -1), _last(self._written[access.memory], access))
            if access.write:
                for (memory, reader), numbers in self._read.items():
                    if memory == access.memory and reader is not module:
                        found[reader] = max(found.get(reader, -1), _last(numbers, access))
        return found

    def note(self, accesses: Sequence[Access], module: Module, number: int) -> None:
        """Record the accesses of an instruction."""
        for access in accesses:
            if access.write:
                self._writers[access.memory] = module
                numbers = self._written[access.memory]
            else:
                key = access.memory, module
                if key not in self._read:
                    self._read[key] = np.full(len(self._written[access.memory]), -1, np.int32)
                numbers = self._read[key]
            for part in _parts(access):
                numbers[part] = number


def _parts(access: Access) -> list[slice] | list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    if access.indices is not None:
        return [access.indices + access.start]
    return [
        slice(at, at + access.length)
        for at in range(access.start, access.start + max(1, access.rows * access.stride), access.stride or 1)
    ][: access.rows]


def _last(numbers: _Numbers, access: Access) -> int:
    return max(int(numbers[part].max()) for part in _parts(access))


class _Issue:
    """Issues instructions in order, with the tokens that they wait for.

    A token of a queue pairs an instruction that pushes with one that pops. Both numbers grow from pair to pair, so that the k-th
    pop meets the k-th push, and no instruction pushes or pops twice. An instruction waits for the last one that it needs of a
    neighbour, unless its module has waited for that one or a later one before.
    """

    def __init__(self) -> None:
        self.stream: list[_Issued] = []
        # For each pair of modules (waiting, awaited): the numbers of awaited and of waiting instructions, both ascending.
        self._pairs: dict[tuple[Module, Module], tuple[list[int], list[int]]] = {}

    def issue(self, instruction: Instruction, source: str, needs: dict[Module, int]) -> int:
        """Issue an instruction after those that it needs. Returns its number."""
        module = instruction.module
        apart = Module.STORE if module is Module.LOAD else Module.LOAD
        if module is not Module.COMPUTE and needs.get(apart, -1) >= 0:
            through = self._relay(apart, needs[apart], source)
            needs[Module.COMPUTE] = max(needs.get(Module.COMPUTE, -1), through)
        number = len(self.stream)
        self.stream.append(_Issued(instruction, source, module))
        for awaited in (Module.LOAD, Module.COMPUTE, Module.STORE):
            if abs(awaited - module) == 1:
                self._wait(number, awaited, needs.get(awaited, -1))
        return number

    def _relay(self, apart: Module, number: int, source: str) -> int:
        """The first compute instruction that waits for one of the load or the store module; a no-op where there is none."""
        awaited, waiting = self._pairs.get((Module.COMPUTE, apart), ([], []))
        at = bisect_left(awaited, number)
        if at < len(waiting):
            return waiting[at]
        return self.issue(_NOOPS[Module.COMPUTE], source, {apart: number})

    def _wait(self, number: int, awaited: Module, last: int) -> None:
        module = self.stream[number].module
        pushed, popped = self._pairs.setdefault((module, awaited), ([], []))
        if last < 0 or (pushed and pushed[-1] >= last):
            return
        pushed.append(last)
        popped.append(number)
        later = awaited > module
        self.stream[number].flags["pop_next" if later else "pop_prev"] = True
        self.stream[last].flags["push_prev" if later else "push_next"] = True

    def last(self, module: Module) -> int:
        """The number of a module's last instruction, -1 for none."""
        return next((n for n in range(len(self.stream) - 1, -1, -1) if self.stream[n].module is module), -1)


def ordered(steps: Sequence[Step], config: Config, dram_bytes: int, serial: bool) -> tuple[list[Instruction], list[str]]:
    """The instructions of the steps with their flags, up to FINISH, and the source of each.

    Each step waits for the steps of other modules whose elements it reads or overwrites; with `serial`, for all steps before it.
    """
    shared = _Shared(config, -(-dram_bytes // config.element_bytes(Memory.INP)))
    issue = _Issue()
    latest = dict.fromkeys(Module, -1)
    for step in steps:
        module = step.instruction.module
        needs = dict(latest) if serial else shared.needs(step.accesses, module)
        needs.pop(module, None)
        number = latest[module] = issue.issue(step.instruction, step.source, needs)
        if not serial:
            shared.note(step.accesses, module, number)
    end = steps[-1].source if steps else ""
    issue.issue(_NOOPS[Module.COMPUTE], end, {module: issue.last(module) for module in (Module.LOAD, Module.STORE)})
    issue.issue(Finish(), end, {})
    return [replace(item.instruction, flags=Flags(**item.flags)) if item.flags else item.instruction for item in issue.stream], [
        item.source for item in issue.stream
    ]
