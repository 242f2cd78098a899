"""Which values of a plan an instruction reads and writes."""

from __future__ import annotations

from inlaid.artifact.plan import Assert, Bind, Branch, Call, Instruction, Invoke, Loop, Move, Wait


def read_by(instruction: Instruction) -> tuple[int, ...]:
    """The numbers of the values that an instruction reads."""
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
    """The numbers of the values that an instruction writes."""
    if isinstance(instruction, Wait):
        return ()
    return (instruction.target,) if isinstance(instruction, (Move, Bind)) else instruction.outputs
