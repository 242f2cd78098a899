"""Copies between host and devices in a plan: overlap with kernels, waits before their readers, and donation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from inlaid_runtime.artifact.plan import Instruction, Move, Value, Wait
from inlaid_runtime.artifact.touched import read_by


def overlapped(instructions: Sequence[Instruction], values: Sequence[Value], results: Sequence[int]) -> list[Instruction]:
    """Mark the copies that may overlap with kernels: inputs to devices, and results from devices to the host. Copies of inputs come
    first in the result."""
    first: list[Instruction] = []
    rest: list[Instruction] = []
    for item in instructions:
        if isinstance(item, Move) and values[item.source].storage == "input" and values[item.target].device:
            first.append(replace(item, apart=True))
        elif isinstance(item, Move) and values[item.source].device and item.target in results:
            rest.append(replace(item, apart=True))
        else:
            rest.append(item)
    return [*first, *rest]


def with_waits(instructions: Sequence[Instruction], values: Sequence[Value], results: Sequence[int]) -> list[Instruction]:
    """Insert a `Wait` before each instruction that reads a pending copy from a device, and at the end for results."""
    new_instructions: list[Instruction] = []
    pending: dict[int, str] = {}

    def wait(numbers: Sequence[int]) -> None:
        for device in dict.fromkeys(pending[number] for number in numbers if number in pending):
            new_instructions.append(Wait(device))
            for number in [number for number, source in pending.items() if source == device]:
                del pending[number]

    for instruction in instructions:
        wait(read_by(instruction))
        new_instructions.append(instruction)
        if isinstance(instruction, Move) and values[instruction.source].device and not values[instruction.target].device:
            pending[instruction.target] = values[instruction.source].device
    wait(results)
    return new_instructions


def with_donations(instructions: Sequence[Instruction], donated: Collection[int]) -> list[Instruction]:
    """Mark copies of `donated` inputs to a device as donating if a later value reuses the buffer of the copy. If the caller passes
    such an input on that device, the copy is skipped, and the later value reuses the buffer of the input."""
    reads = Counter(number for item in instructions for number in read_by(item))
    donated_sources = {item.source for item in instructions if isinstance(item, Move) and item.donate}

    read_once = {number for number in donated if reads[number] == 1}
    return [
        replace(item, donate=True)
        if isinstance(item, Move) and item.source in read_once and item.target in donated_sources
        else item
        for item in instructions
    ]
