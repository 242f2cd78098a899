"""Dependence tokens over a flat stream, exactly where data asks for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from inlaid_vta_fpga.compiler.tasks import Access, Step
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Finish, Flags, Gemm, Instruction, Load, Module, Store

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
            for part in access.parts:
                numbers[part] = number


def _last(numbers: _Numbers, access: Access) -> int:
    return max(int(numbers[part].max()) for part in access.parts)


class _Relays:
    """No-ops of the compute module through which loads wait for stores, and stores for loads.

    A relay stands where compute passes by without waiting: behind the last compute step that the waiting step needs anyway, and
    where compute was busy for as long as the awaited step takes. Steps of the compute module that wait by themselves serve as well.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.before: dict[int, list[int]] = {}
        """The relays before each step, by number."""
        self.awaited: list[tuple[Module, int]] = []
        """The step that each relay waits for."""
        self._compute = [number for number, step in enumerate(steps) if step.instruction.module is Module.COMPUTE]
        self._steps = steps
        # For each awaited module, ascending: the awaited step, and the compute step, or the place and number of a relay.
        self._natural: dict[Module, tuple[list[int], list[int]]] = {module: ([], []) for module in Module}
        self._made: dict[Module, tuple[list[int], list[tuple[int, int]]]] = {module: ([], []) for module in Module}

    def note(self, number: int, needs: dict[Module, int]) -> None:
        """Record what a compute step waits for."""
        for module, last in needs.items():
            awaited, waiting = self._natural[module]
            if last >= 0 and (not awaited or awaited[-1] < last):
                awaited.append(last)
                waiting.append(number)

    def through(self, apart: Module, last: int, number: int, least: int) -> tuple[int, int]:
        """How step `number`, which waits for compute step `least` anyway, waits for step `last` of the module that is `apart`: the
        compute step and the relay that it has to wait for, -1 for none."""
        place = self._place(last, number, least)
        awaited, waiting = self._natural[apart]
        at = bisect_left(awaited, last)
        if at < len(awaited) and waiting[at] < place:
            return waiting[at], -1
        awaited, made = self._made[apart]
        at = bisect_left(awaited, last)
        if at < len(awaited):
            return -1, made[at][1]
        place = max(place, made[-1][0] if made else 0)
        relay = len(self.awaited)
        self.awaited.append((apart, last))
        self.before.setdefault(place, []).append(relay)
        awaited.append(last)
        made.append((place, relay))
        return -1, relay

    def _place(self, last: int, number: int, least: int) -> int:
        """The step before which a relay goes."""
        at = bisect_left(self._compute, max(least + 1, last))
        left = _duration(self._steps[last].instruction)
        passed = bisect_left(self._compute, last)
        while passed < len(self._compute) and self._compute[passed] < number and (left > 0 or passed < at):
            left -= _duration(self._steps[self._compute[passed]].instruction)
            passed += 1
        return min(number, self._compute[passed]) if passed < len(self._compute) else number


def _duration(instruction: Instruction) -> int:
    """About how many cycles an instruction takes."""
    if isinstance(instruction, (Gemm, Alu)):
        return (instruction.uop_end - instruction.uop_begin) * instruction.iter_out * instruction.iter_in
    return 3 * instruction.sram_size if isinstance(instruction, (Load, Store)) else 0


class _Issue:
    """Issues instructions in order, with the tokens that they wait for.

    A token of a queue pairs an instruction that pushes with one that pops. Both numbers grow from pair to pair, so that the k-th
    pop meets the k-th push, and no instruction pushes or pops twice. An instruction waits for the last one that it needs of a
    neighbour, unless its module has waited for that one or a later one before.
    """

    def __init__(self) -> None:
        self.stream: list[_Issued] = []
        # For each pair of modules (waiting, awaited): the numbers of awaited and of waiting instructions, both ascending.
        self._pairs: dict[tuple[Module, Module], tuple[list[int], list[int]]] = {
            (a, b): ([], []) for a in Module for b in Module if abs(a - b) == 1
        }

    def issue(self, instruction: Instruction, source: str, needs: dict[Module, int]) -> int:
        """Issue an instruction after those that it needs of neighbours. Returns its number."""
        module, number = instruction.module, len(self.stream)
        self.stream.append(_Issued(instruction, source, module))
        for awaited in Module:
            if abs(awaited - module) == 1:
                taken = self._pairs[awaited, module][1]
                limit = taken[-_OUTSTANDING] if len(taken) >= _OUTSTANDING else -1
                self._wait(number, awaited, max(limit, needs.get(awaited, -1)))
        return number

    def _wait(self, number: int, awaited: Module, last: int) -> None:
        module = self.stream[number].module
        pushed, popped = self._pairs[module, awaited]
        if last < 0 or (pushed and pushed[-1] >= last):
            return
        pushed.append(last)
        popped.append(number)
        later = awaited > module
        self.stream[number].flags["pop_next" if later else "pop_prev"] = True
        self.stream[last].flags["push_prev" if later else "push_next"] = True


def ordered(steps: Sequence[Step], config: Config, dram_bytes: int, serial: bool) -> tuple[list[Instruction], list[str]]:
    """The instructions of the steps with their flags, up to FINISH, and the source of each.

    Each step waits for the steps of other modules whose elements it reads or overwrites; with `serial`, for all steps before it.
    """
    shared = _Shared(config, -(-dram_bytes // config.element_bytes(Memory.INP)))
    relays = _Relays(steps)
    latest = dict.fromkeys(Module, -1)
    waits: list[tuple[dict[Module, int], int]] = []
    for number, step in enumerate(steps):
        module = step.instruction.module
        needs = dict(latest) if serial else shared.needs(step.accesses, module)
        needs.pop(module, None)
        relay = -1
        apart = {Module.LOAD: Module.STORE, Module.STORE: Module.LOAD}.get(module)
        if module is Module.COMPUTE:
            relays.note(number, needs)
        elif apart is not None and (last := needs.pop(apart, -1)) >= 0:
            least = needs.get(Module.COMPUTE, -1)
            through, relay = relays.through(apart, last, number, least)
            needs[Module.COMPUTE] = max(least, through)
        waits.append((needs, relay))
        latest[module] = number
        if not serial:
            shared.note(step.accesses, module, number)
    return _issued(steps, waits, relays)


def _issued(
    steps: Sequence[Step], waits: Sequence[tuple[dict[Module, int], int]], relays: _Relays
) -> tuple[list[Instruction], list[str]]:
    issue = _Issue()
    place: list[int] = []
    passed: dict[int, int] = {}
    latest = dict.fromkeys(Module, -1)
    for number, (step, (needs, relay)) in enumerate(zip(steps, waits, strict=True)):
        for made in relays.before.get(number, ()):
            apart, last = relays.awaited[made]
            passed[made] = issue.issue(_NOOPS[Module.COMPUTE], step.source, {apart: place[last]})
        found = {module: place[last] for module, last in needs.items() if last >= 0}
        if relay >= 0:
            found[Module.COMPUTE] = max(found.get(Module.COMPUTE, -1), passed[relay])
        place.append(issue.issue(step.instruction, step.source, found))
        latest[step.instruction.module] = place[-1]
    end = steps[-1].source if steps else ""
    del latest[Module.COMPUTE]
    issue.issue(_NOOPS[Module.COMPUTE], end, latest)
    issue.issue(Finish(), end, {})
    return [replace(item.instruction, flags=Flags(**item.flags)) if item.flags else item.instruction for item in issue.stream], [
        item.source for item in issue.stream
    ]
