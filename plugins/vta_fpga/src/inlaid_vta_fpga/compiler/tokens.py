"""Insertion of dependence tokens into a flat stream. Tokens are inserted only for data dependences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from inlaid_vta_fpga.compiler.tasks import Access, Step
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Finish, Flags, Gemm, Instruction, Load, Module, Store

_Needs = dict[Module, int]
"""Dependences of a step: for each other module, the last step (or instruction) that must precede it."""
_NOOP = Load(Memory.UOP)
"""A no-op of the compute module."""
_APART = {Module.LOAD: Module.STORE, Module.STORE: Module.LOAD}
"""Maps load to store and store to load: the modules that share no token queue."""
_OUTSTANDING = 128
"""Approximate limit of tokens in a queue. It is well below 255, at which the 8-bit counter of the queue saturates."""


def insert_tokens(steps: Sequence[Step], config: Config, dram_bytes: int, serial: bool) -> tuple[list[Instruction], list[str]]:
    """Set the flags of all steps and append FINISH. Returns the instructions and the source of each.

    Each step waits for the steps of other modules whose elements it reads or overwrites. If `serial`, it waits for all earlier
    steps.
    """
    shared, relays = _Shared(config, -(-dram_bytes // config.element_bytes(Memory.INP))), _Relays(steps)
    last_steps: _Needs = {}
    waits: list[tuple[_Needs, int]] = []
    for number, step in enumerate(steps):
        module, relay = step.instruction.module, -1
        needs = dict(last_steps) if serial else shared.touch(step.accesses, module, number)
        needs.pop(module, None)
        if module in _APART and _APART[module] in needs:
            relay = relays.through(_APART[module], needs.pop(_APART[module]), number, needs.get(Module.COMPUTE, -1))
        waits.append((needs, relay))
        last_steps[module] = number
    stream = _Stream()
    instruction_numbers: list[int] = []
    relay_instructions: dict[int, int] = {}
    for number, (step, (needs, relay)) in enumerate(zip(steps, waits, strict=True)):
        for relay_number in relays.before.get(number, ()):
            awaited_module, last = relays.awaited[relay_number]
            relay_instructions[relay_number] = stream.issue(_NOOP, step.source, {awaited_module: instruction_numbers[last]})
        dependences = {module: instruction_numbers[last] for module, last in needs.items()}
        if relay >= 0:
            dependences[Module.COMPUTE] = max(dependences.get(Module.COMPUTE, -1), relay_instructions[relay])
        instruction_numbers.append(stream.issue(step.instruction, step.source, dependences))
    end = steps[-1].source if steps else ""
    stream.issue(_NOOP, end, {module: instruction_numbers[last_steps[module]] for module in _APART if module in last_steps})
    stream.issue(Finish(), end, {})
    return [replace(item.instruction, flags=Flags(**item.flags)) for item in stream.items], [item.source for item in stream.items]


class _Shared:
    """For each element of the memories and of DRAM: the last write, and the last read by each module."""

    def __init__(self, config: Config, dram: int) -> None:
        self._sizes: dict[Memory | None, int] = {memory: config.depth(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC)}
        self._sizes[None] = dram
        self._last: dict[tuple[Memory | None, Module, bool], np.ndarray[tuple[int], np.dtype[np.int32]]] = {}

    def touch(self, accesses: Sequence[Access], module: Module, number: int) -> _Needs:
        """Record the accesses of step `number` and return its dependences."""
        dependences: _Needs = {}
        for access in accesses:
            for (memory, other, wrote), numbers in self._last.items():
                if memory is access.memory and other is not module and (wrote or access.write):
                    last = max(int(numbers[part].max()) for part in access.parts)
                    if last >= 0:
                        dependences[other] = max(dependences.get(other, -1), last)
        for access in accesses:
            key = access.memory, module, access.write
            if key not in self._last:
                self._last[key] = np.full(self._sizes[access.memory], -1, np.int32)
            for part in access.parts:
                self._last[key][part] = number
        return dependences


class _Relays:
    """No-ops of the compute module that relay tokens between load and store, since load and store share no token queue.

    The position of a relay is chosen so that it does not stall compute. It follows the last compute step on which the waiting step
    also depends, and compute steps that take as long as the awaited step. before: numbers of the relays to issue before a step,
    keyed by step number. awaited: the step that each relay waits for.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.before: dict[int, list[int]] = {}
        self.awaited: list[tuple[Module, int]] = []
        self._steps = steps
        self._compute = [number for number, step in enumerate(steps) if step.instruction.module is Module.COMPUTE]
        # For each awaited module: the awaited steps, and position and number of their relays, all ascending.
        self._relays: dict[Module, tuple[list[int], list[tuple[int, int]]]] = {module: ([], []) for module in _APART}

    def through(self, awaited_module: Module, last: int, number: int, least: int) -> int:
        """Return the number of the relay by which step `number` waits for step `last` of the awaited module. Step `number` also
        waits for compute step `least`; -1 for none."""
        awaited, relays = self._relays[awaited_module]
        at = bisect_left(awaited, last)
        if at == len(awaited):
            position = max(self._choose_position(last, number, least), relays[-1][0] if relays else 0)
            relays.append((position, len(self.awaited)))
            self.before.setdefault(position, []).append(len(self.awaited))
            self.awaited.append((awaited_module, last))
            awaited.append(last)
        return relays[at][1]

    def _choose_position(self, last: int, number: int, least: int) -> int:
        """Choose the step before which to issue a relay."""
        remaining = _duration(self._steps[last].instruction)
        at = bisect_left(self._compute, last)
        while at < len(self._compute) and self._compute[at] < number and (remaining > 0 or self._compute[at] <= least):
            remaining -= _duration(self._steps[self._compute[at]].instruction)
            at += 1
        return min([number, *self._compute[at : at + 1]])


def _duration(instruction: Instruction) -> int:
    """Estimate the cycles of an instruction."""
    if isinstance(instruction, (Gemm, Alu)):
        return (instruction.uop_end - instruction.uop_begin) * instruction.iter_out * instruction.iter_in
    return 3 * instruction.sram_size if isinstance(instruction, (Load, Store)) else 0


@dataclass(slots=True, eq=False)
class _Issued:
    """An issued instruction and the flags set so far."""

    instruction: Instruction
    source: str
    flags: dict[str, bool] = field(default_factory=dict)


class _Stream:
    """Instructions in issue order, with their flags.

    A token of a queue pairs an instruction that pushes with an instruction that pops. The numbers of both increase from pair to
    pair, so the k-th pop takes the k-th token and no instruction pushes or pops twice. An instruction waits for its last dependence
    on a neighbor, unless its module has already waited for that instruction or a later one.
    """

    def __init__(self) -> None:
        self.items: list[_Issued] = []
        # For each pair of modules (waiting, awaited): numbers of the awaited and of the waiting instructions, both ascending.
        self._pairs: dict[tuple[Module, Module], tuple[list[int], list[int]]] = {
            (a, b): ([], []) for a in Module for b in Module if abs(a - b) == 1
        }

    def issue(self, instruction: Instruction, source: str, needs: _Needs) -> int:
        """Issue an instruction that waits for its dependences on neighbors. Returns its number."""
        module, number = instruction.module, len(self.items)
        self.items.append(_Issued(instruction, source))
        for (waiting, awaited), (pushed, popped) in self._pairs.items():
            if waiting is not module:
                continue
            consumed = self._pairs[awaited, module][1]
            last = max(needs.get(awaited, -1), consumed[-_OUTSTANDING] if len(consumed) >= _OUTSTANDING else -1)
            if last > (pushed[-1] if pushed else -1):
                pushed.append(last)
                popped.append(number)
                pop, push = ("pop_next", "push_prev") if awaited > module else ("pop_prev", "push_next")
                self.items[number].flags[pop] = self.items[last].flags[push] = True
        return number
