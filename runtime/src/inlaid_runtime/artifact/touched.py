"""Operands and results of plan instructions, lifetimes of values, and renumbering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Instruction, Invoke, Loop, Move, Value, Wait


def read_by(instruction: Instruction) -> tuple[int, ...]:
    """Return the numbers of the values that an instruction reads."""
    match instruction:
        case Invoke(inputs=inputs) | Call(inputs=inputs):
            return inputs
        case Branch(condition=condition, inputs=inputs):
            return (condition, *inputs)
        case Loop():
            scalars = tuple(number for number in (instruction.trip_count, instruction.condition) if number is not None)
            return (*scalars, *instruction.state, *instruction.scanned, *instruction.captured)
        case Move(source=source) | Bind(source=source):
            return (source,)
        case Assert(condition=condition):
            return () if condition is None else (condition,)
        case Wait():
            return ()
    raise AssertionError(f"unknown instruction {instruction!r}")


def written_by(instruction: Instruction) -> tuple[int, ...]:
    """Return the numbers of the values that an instruction writes."""
    if isinstance(instruction, Wait):
        return ()
    if isinstance(instruction, Loop):
        return (*instruction.outputs, *instruction.spare)
    return (instruction.target,) if isinstance(instruction, (Move, Bind)) else instruction.outputs


def lifetimes(
    values: Sequence[Value], instructions: Sequence[Instruction], planned: Callable[[Value], bool]
) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
    """Compute the owner of each `planned` value's buffer: the first value of its chain of donations. Also compute, for each owner,
    the first and last instruction that use the buffer. A concurrent copy from a device uses the buffer until the end."""
    owners: dict[int, int] = {}
    lives: dict[int, tuple[int, int]] = {}
    for step, item in enumerate(instructions):
        if isinstance(item, Move) and item.donate and planned(values[item.source]):
            owners[item.target] = owners[item.source]
        is_concurrent = isinstance(item, Move) and item.apart and bool(values[item.source].device)
        for number in (*read_by(item), *written_by(item)):
            if planned(values[number]):
                owner = owners.setdefault(number, number)
                first, last = lives.get(owner, (step, step))
                lives[owner] = first, max(last, len(instructions) if is_concurrent and number in read_by(item) else step)
    return owners, lives


def renumbered(instruction: Instruction, number: Callable[[int], int]) -> Instruction:
    """Replace the value numbers of an instruction."""

    def renumber_all(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(number, numbers))

    def renumber_optional(index: int | None) -> int | None:
        return None if index is None else number(index)

    match instruction:
        case Invoke(inputs=inputs, outputs=outputs) | Call(inputs=inputs, outputs=outputs):
            return replace(instruction, inputs=renumber_all(inputs), outputs=renumber_all(outputs))
        case Branch(condition=condition, inputs=inputs, outputs=outputs):
            return replace(instruction, condition=number(condition), inputs=renumber_all(inputs), outputs=renumber_all(outputs))
        case Loop(body=body):
            groups = (instruction.state, instruction.scanned, instruction.captured, instruction.outputs, instruction.spare)
            return Loop(
                body,
                renumber_optional(instruction.trip_count),
                renumber_optional(instruction.condition),
                *map(renumber_all, groups),
            )
        case Move(source=source, target=target) | Bind(source=source, target=target):
            return replace(instruction, source=number(source), target=number(target))
        case Assert(condition=condition, outputs=outputs):
            return replace(instruction, condition=renumber_optional(condition), outputs=renumber_all(outputs))
        case Wait():
            return instruction
    raise AssertionError(f"unknown instruction {instruction!r}")
