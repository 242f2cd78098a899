"""The calls of a region with the memory that they read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from inlaid.tensor.analysis.in_place import head_start
from inlaid.tensor.ir import Buffer, LoopProgram
from inlaid.tensor.region import KernelCall
from inlaid_runtime.arith import Dim
from inlaid_runtime.memory.order import ExecutionStep, Work
from inlaid_runtime.memory.planner import Lifetime, aligned
from inlaid_runtime.records import dataclass, field


@dataclass(frozen=True)
class ByteRange:
    """Location of a buffer: the number of its root buffer, the byte offset in it, and its size in bytes."""

    root: int
    start: int
    bytes: Dim

    def meets(self, other: ByteRange) -> bool:
        """Test whether two ranges may overlap."""
        if not isinstance(self.bytes, int) or not isinstance(other.bytes, int):
            return self.root == other.root
        return self.root == other.root and self.start < other.start + other.bytes and other.start < self.start + self.bytes


@dataclass(frozen=True)
class Root:
    """A buffer that is not a view of another, with its size in bytes."""

    storage: Literal["input", "output", "constant", "arena"]
    bytes: Dim


@dataclass(frozen=True)
class Calls:
    """Calls in execution order. `inside` locates each buffer in its root. `roots` are the buffers that are not views. `windows`
    maps roots to the smaller buffers that store a window of them. `head_start_cache` memoizes `head_start` by kernel, output and
    input."""

    kernels: tuple[LoopProgram, ...]
    calls: tuple[KernelCall, ...]
    inside: tuple[ByteRange, ...]
    roots: Mapping[int, Root]
    head_start_cache: dict[tuple[LoopProgram, int, int], int | None] = field(default_factory=dict)
    windows: Mapping[int, Buffer] = field(default_factory=dict)

    @property
    def owners(self) -> list[int]:
        """Roots that need memory in the arena."""
        return [number for number, root in self.roots.items() if root.storage != "constant"]

    def touched(self, step: int) -> set[int]:
        """Return the roots that a call reads or writes."""
        call = self.calls[step]
        return {self.inside[number].root for number in (*call.reads, *call.outputs)}

    def lives(self, owners: Sequence[int]) -> list[Lifetime]:
        """Compute the live ranges of roots, in call numbers. Inputs are live before the first call, outputs after the last."""
        first = {number: -1 for number in owners if self.roots[number].storage == "input"}
        last = {number: len(self.calls) for number in owners if self.roots[number].storage == "output"}
        for step, call in enumerate(self.calls):
            for number in (*call.reads, *call.outputs):
                owner = self.inside[number].root
                first.setdefault(owner, step)
                last[owner] = max(last.get(owner, step), step)
        return [
            Lifetime(self.roots[number].bytes, first.get(number, 0), last.get(number, first.get(number, 0))) for number in owners
        ]

    def work(self, alignment: int) -> Work:
        """Describe the calls as memory-planning steps over roots."""
        sizes = {
            number: size
            for number, root in self.roots.items()
            if root.storage != "constant" and isinstance(size := aligned(root.bytes, alignment), int)
        }
        writers: dict[int, list[tuple[int, ByteRange]]] = {}
        for step, call in enumerate(self.calls):
            for number in call.outputs:
                writers.setdefault(self.inside[number].root, []).append((step, self.inside[number]))
        steps = []
        for step, call in enumerate(self.calls):
            read_ranges, written_ranges = ([self.inside[number] for number in side] for side in (call.reads, call.outputs))
            needs = {n for part in read_ranges for n, other in writers.get(part.root, ()) if n != step and part.meets(other)}
            reads, writes = (tuple(part.root for part in parts if part.root in sizes) for parts in (read_ranges, written_ranges))
            steps.append(ExecutionStep(reads, writes, tuple(sorted(needs))))
        overlaps = {
            (output_root, input_root): max(0, min(sizes[output_root] - distance, sizes[input_root]))
            for (output_root, input_root), distance in self.head_starts().items()
            if output_root in sizes and input_root in sizes
        }
        return Work(tuple(steps), sizes, frozenset(number for number in sizes if self.roots[number].storage == "output"), overlaps)

    def head_starts(self) -> dict[tuple[int, int], int]:
        """Compute, for each pair (written root, read root) of a call that may overlap in memory, how many bytes before the read
        root the written root must start."""
        starts: dict[tuple[int, int], int] = {}
        for call in self.calls:
            kernel = self.kernels[call.kernel]
            for result, output in enumerate(call.outputs):
                if self.inside[output].root != output:
                    continue
                root_distances: dict[int, list[int | None]] = {}
                for operand, number in enumerate(call.inputs):
                    part = self.inside[number]
                    if self.roots[part.root].storage == "constant":
                        continue
                    key = kernel, result, operand
                    if key not in self.head_start_cache:
                        fits = _may_share(kernel.outputs[result], kernel.inputs[operand])
                        self.head_start_cache[key] = head_start(kernel, result, operand) if fits else None
                    distance = self.head_start_cache[key]
                    root_distances.setdefault(part.root, []).append(None if distance is None else distance - part.start)
                for owner, distances in root_distances.items():
                    if None not in distances:
                        starts[output, owner] = max(distance for distance in distances if distance is not None)
        return starts


def _may_share(output: Buffer, operand: Buffer) -> bool:
    """Test whether overlap obeys C's strict aliasing: the buffers have equal element types, or one has single-byte elements."""
    return output.dtype is operand.dtype or 1 in (output.dtype.bytes, operand.dtype.bytes)
