"""Regions that are loops: a unit that runs the body's calls in rounds, and copies states, slices and outputs.

Inputs and outputs of the body share memory with its intermediate values, as those of any model. So each round copies all of its
inputs into the body's part of the arena, and its results out of it. States are kept in the loop's outputs between rounds.
"""

from __future__ import annotations

import math
from dataclasses import replace

from inlaid.codegen.c_kernel import stored_type
from inlaid.tensor.region import RegionLoop
from inlaid_microcontroller.unit import Buffer, Copy, Loop, Unit
from inlaid_runtime.artifact import TensorSpec

ALIGNED = 8
"""Alignment of the loop's inputs and outputs in bytes."""


def looped(loop: RegionLoop, body: Unit) -> Unit:
    """Return the unit that runs a loop, made from the unit of the loop's body."""
    ports = {
        (storage, index): number
        for storage in ("input", "output")
        for number, buffer in reversed(list(enumerate(body.buffers)))
        for index in (buffer.index,)
        if buffer.storage == storage
    }
    buffers = [item if item.storage == "constant" else replace(item, storage="arena", index=0) for item in body.buffers]
    arena = body.arena

    def add_value(storage: str, index: int, spec: TensorSpec) -> int:
        nonlocal arena
        assert spec.dtype is not None
        elements = math.prod(dim for dim in spec.shape if isinstance(dim, int))
        size = elements * spec.dtype.bytes
        offset = -(-arena // ALIGNED) * ALIGNED
        buffers.append(Buffer(spec.name, storage, index, offset, stored_type(spec.dtype), elements, size))
        arena = offset + size
        return len(buffers) - 1

    inputs = [add_value("input", index, spec) for index, spec in enumerate(loop.signature.inputs)]
    outputs = [add_value("output", index, spec) for index, spec in enumerate(loop.signature.outputs)]
    control_count = loop.trip_count + loop.condition
    slices = range(control_count + loop.states, control_count + loop.states + loop.scanned)
    scanned_bytes = [buffers[inputs[number]].bytes for number in slices]
    lengths = {int(str(loop.signature.inputs[number].shape[0])) for number in slices}
    lengths |= {int(str(spec.shape[0])) for spec in loop.signature.outputs[loop.states :]}
    rounds = min(lengths, default=-1)

    def slice_bytes(total: int) -> int:
        return total // rounds if rounds > 0 else 0

    first, before, after = [], [], []
    for state in range(loop.states):
        size = buffers[outputs[state]].bytes
        first.append(Copy(inputs[control_count + state], outputs[state], size))
        before.append(Copy(outputs[state], ports["input", 1 + state], size))
        after.append(Copy(ports["output", loop.may_stop + state], outputs[state], size))
    for number, total in zip(slices, scanned_bytes, strict=True):
        size = slice_bytes(total)
        before.append(Copy(inputs[number], ports["input", 1 + number - control_count], size, source_step=size))
    for number in range(slices.stop, len(inputs)):
        before.append(Copy(inputs[number], ports["input", 1 + number - control_count], buffers[inputs[number]].bytes))
    for number in range(loop.states, len(outputs)):
        size = slice_bytes(buffers[outputs[number]].bytes)
        after.append(Copy(ports["output", loop.may_stop + number], outputs[number], size, target_step=size))
    repeated = Loop(
        rounds,
        inputs[0] if loop.trip_count else -1,
        inputs[loop.trip_count] if loop.condition else -1,
        ports["input", 0],
        ports["output", 0] if loop.may_stop else -1,
        exact=len(outputs) > loop.states,
        first=tuple(first),
        before=tuple(before),
        after=tuple(after),
    )
    return replace(
        body, buffers=tuple(buffers), arena=arena, headers=tuple(dict.fromkeys((*body.headers, "string.h"))), loop=repeated
    )
