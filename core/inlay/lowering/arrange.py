"""When the calls of a region run, and where its buffers lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inlay.arith import Dim
from inlay.memory.order import Step, Work, best_order
from inlay.memory.planner import Lifetime, aligned, plan
from inlay.memory.tiers import plan_tiers
from inlay.plugins.contract import StaticMemory
from inlay.tensor.in_place import head_start
from inlay.tensor.ir import Buffer, LoopProgram
from inlay.tensor.region import KernelCall


@dataclass(frozen=True)
class Part:
    """Where a buffer lies: the number of its root, from which byte of that on, and its bytes."""

    root: int
    start: int
    bytes: Dim

    def meets(self, other: Part) -> bool:
        """Whether the two may have bytes in common."""
        if not isinstance(self.bytes, int) or not isinstance(other.bytes, int):
            return self.root == other.root
        return self.root == other.root and self.start < other.start + other.bytes and other.start < self.start + self.bytes


@dataclass(frozen=True)
class Root:
    """A buffer that lies in no other, and its bytes."""

    storage: Literal["input", "output", "constant", "arena"]
    bytes: Dim


@dataclass(frozen=True)
class Arrangement:
    """The calls in order, the offsets of roots that have places in the arena, by number, and the bytes of the arena. Those of the
    roots that are `quick` are in fast memory, of which `fast` bytes are taken."""

    calls: tuple[KernelCall, ...]
    offsets: Mapping[int, Dim]
    size: Dim
    quick: frozenset[int] = frozenset()
    fast: int = 0


def arrange(
    kernels: Sequence[LoopProgram],
    calls: Sequence[KernelCall],
    inside: Sequence[Part],
    roots: Mapping[int, Root],
    memory: StaticMemory | None,
) -> Arrangement:
    """Places for what is neither input, output nor constant, in an arena that the caller provides.

    With a `memory` that is scarce, inputs and outputs have places as well; calls run in the order that takes least of it; and
    results lie over what they are computed from. Kernels then run one iteration after the other.

    `inside` says of each buffer where it lies.
    """
    if memory is None:
        owners = [number for number, root in roots.items() if root.storage == "arena"]
        lives = _lives(calls, inside, roots, owners)
        arena = plan(lives)
        return Arrangement(tuple(calls), dict(zip(owners, arena.offsets, strict=True)), arena.size)
    owners = [number for number, root in roots.items() if root.storage != "constant"]
    alignment = max([memory.alignment, *(param.dtype.bytes for kernel in kernels for param in kernel.params)])
    starts = head_starts(kernels, calls, inside)
    if not any(call.defines for call in calls):
        work = _work(calls, inside, {n: roots[n] for n in owners}, starts, alignment)
        calls = [calls[number] for number in best_order(work)]
    lives = _lives(calls, inside, roots, owners)
    places = {number: place for place, number in enumerate(owners)}
    shared = {
        (places[over], places[under]): distance
        for (over, under), distance in starts.items()
        if over in places and under in places and lives[places[over]].first == lives[places[under]].last
    }
    touched = [{inside[number].root for number in (*call.inputs, *call.outputs)} for call in calls]
    uses = [sum(number in call for call in touched) for number in owners]
    tiers = plan_tiers(lives, uses, memory.fast, alignment, shared)
    quick = frozenset(owners[place] for place in tiers.quick)
    return Arrangement(tuple(calls), dict(zip(owners, tiers.offsets, strict=True)), tiers.slow, quick, tiers.fast)


def _lives(calls: Sequence[KernelCall], inside: Sequence[Part], roots: Mapping[int, Root], owners: Sequence[int]) -> list[Lifetime]:
    """From which call to which roots live. Inputs are there before the first call, and outputs after the last."""
    first = {number: -1 for number in owners if roots[number].storage == "input"}
    last = {number: len(calls) for number in owners if roots[number].storage == "output"}
    for step, call in enumerate(calls):
        for number in (*call.inputs, *call.outputs):
            owner = inside[number].root
            first.setdefault(owner, step)
            last[owner] = max(last.get(owner, step), step)
    return [Lifetime(roots[number].bytes, first.get(number, 0), last.get(number, first.get(number, 0))) for number in owners]


def _work(
    calls: Sequence[KernelCall],
    inside: Sequence[Part],
    roots: Mapping[int, Root],
    starts: Mapping[tuple[int, int], int],
    alignment: int,
) -> Work:
    """The calls as steps over roots."""
    sizes = {number: size for number, root in roots.items() if isinstance(size := aligned(root.bytes, alignment), int)}
    writers: dict[int, list[tuple[int, Part]]] = {}
    for step, call in enumerate(calls):
        for number in call.outputs:
            writers.setdefault(inside[number].root, []).append((step, inside[number]))
    steps = []
    for step, call in enumerate(calls):
        read, written = ([inside[number] for number in side] for side in (call.inputs, call.outputs))
        needs = {n for part in read for n, other in writers.get(part.root, ()) if n != step and part.meets(other)}
        reads, writes = (tuple(part.root for part in parts if part.root in sizes) for parts in (read, written))
        steps.append(Step(reads, writes, tuple(sorted(needs))))
    shared = {
        (over, under): max(0, min(sizes[over] - distance, sizes[under]))
        for (over, under), distance in starts.items()
        if over in sizes and under in sizes
    }
    return Work(tuple(steps), sizes, frozenset(number for number in sizes if roots[number].storage == "output"), shared)


def head_starts(kernels: Sequence[LoopProgram], calls: Sequence[KernelCall], inside: Sequence[Part]) -> dict[tuple[int, int], int]:
    """By how many bytes the root that a call writes must begin before one that it reads that the two may share memory: by the
    numbers of both."""
    known: dict[tuple[int, int, int], int | None] = {}
    found: dict[tuple[int, int], int] = {}
    for call in calls:
        kernel = kernels[call.kernel]
        for result, output in enumerate(call.outputs):
            if inside[output].root != output:
                continue
            needed: dict[int, list[int | None]] = {}
            for operand, number in enumerate(call.inputs):
                key = call.kernel, result, operand
                if key not in known:
                    fits = _may_share(kernel.outputs[result], kernel.inputs[operand])
                    known[key] = head_start(kernel, result, operand) if fits else None
                distance = known[key]
                part = inside[number]
                needed.setdefault(part.root, []).append(None if distance is None else distance - part.start)
            for owner, distances in needed.items():
                if None not in distances:
                    found[output, owner] = max(distance for distance in distances if distance is not None)
    return found


def _may_share(output: Buffer, operand: Buffer) -> bool:
    """Whether a compiler keeps the order of accesses: to elements of one type, or to bytes, which C lets lie anywhere."""
    return output.dtype is operand.dtype or 1 in (output.dtype.bytes, operand.dtype.bytes)
