"""Which results of kernels may lie over what the kernels read, where memory is scarce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlay.memory.planner import Lifetime
from inlay.tensor.in_place import head_start
from inlay.tensor.ir import Buffer, LoopProgram
from inlay.tensor.region import KernelCall


def head_starts(
    kernels: Sequence[LoopProgram],
    calls: Sequence[KernelCall],
    owners: Sequence[tuple[int, int]],
    lives: Mapping[int, Lifetime],
) -> dict[tuple[int, int], int]:
    """By how many bytes the buffer of a result must begin before one that is read by the same call and by no later one, for the two
    to share memory: by the numbers of both.

    `owners` has, for each buffer, the one in which it lies and from which byte on; `lives` those that have places to be planned.
    Kernels run one iteration after the other.
    """
    known: dict[tuple[int, int, int], int | None] = {}
    found: dict[tuple[int, int], int] = {}
    for step, call in enumerate(calls):
        kernel = kernels[call.kernel]
        for result, output in enumerate(call.outputs):
            if output not in lives or lives[output].first != step:
                continue
            needed: dict[int, list[int | None]] = {}
            for operand, number in enumerate(call.inputs):
                owner, start = owners[number]
                if owner not in lives or lives[owner].last != step:
                    continue
                key = call.kernel, result, operand
                if key not in known:
                    fits = _may_share(kernel.outputs[result], kernel.inputs[operand])
                    known[key] = head_start(kernel, result, operand) if fits else None
                distance = known[key]
                needed.setdefault(owner, []).append(None if distance is None else distance - start)
            for owner, distances in needed.items():
                if None not in distances:
                    found[output, owner] = max(distance for distance in distances if distance is not None)
    return found


def _may_share(output: Buffer, operand: Buffer) -> bool:
    """Whether a compiler keeps the order of accesses: to elements of one type, or to bytes, which C lets lie anywhere."""
    return output.dtype is operand.dtype or 1 in (output.dtype.bytes, operand.dtype.bytes)
