"""Donate or copy the inputs that aliased region outputs update in place.

A region whose artifact has an alias (output, input) expects its output buffer to contain the input. The plan donates the input's
buffer if the plan owns that buffer and nothing reads it afterwards. Otherwise the plan copies the input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from inlaid_runtime.artifact.plan import Instruction, Invoke, Move, Value
from inlaid_runtime.artifact.touched import read_by

Aliases = Mapping[str, Sequence[tuple[int, int]]]
"""Aliases of each region, by the region's symbol: pairs (output number, input number) that share a buffer."""


def with_aliases(
    instructions: Sequence[Instruction],
    values: Sequence[Value],
    results: Collection[int],
    donated: Collection[int],
    aliases: Aliases,
) -> list[Instruction]:
    """Insert a `Move` to each aliased output before the call that updates it. `results` are the value numbers of the plan's
    outputs; `donated` are the value numbers of inputs whose buffers the plan owns."""
    last: dict[int, int] = {}
    for step, instruction in enumerate(instructions):
        last.update(dict.fromkeys(read_by(instruction), step))
    new_instructions: list[Instruction] = []
    for step, instruction in enumerate(instructions):
        pairs = aliases.get(instruction.symbol, ()) if isinstance(instruction, Invoke) else ()
        if pairs:
            assert isinstance(instruction, Invoke)
            inputs = list(instruction.inputs)
            for output, operand in pairs:
                source, target = inputs[operand], instruction.outputs[output]
                is_owned = values[source].storage in ("arena", "dynamic") or source in donated
                # An output must not be in the arena, which the plan reuses.
                leaves_arena = values[source].storage == "arena" and values[target].storage == "output"
                is_last_read = last[source] == step and source not in results and inputs.count(source) == 1
                new_instructions.append(Move(source, target, donate=is_owned and is_last_read and not leaves_arena))
                inputs[operand] = target
            instruction = replace(instruction, inputs=tuple(inputs))
        new_instructions.append(instruction)
    return new_instructions
