"""The end of a stream: the last tile's ALU operations and stores in chunks, so that storing overlaps with computing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, sqrt

from inlaid_vta_fpga.compiler.dma import MOST, moved
from inlaid_vta_fpga.compiler.tasks import Access, Step
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Store

_START = 8
"""Cycles of an ALU instruction besides its micro-ops."""
_STORED = 3
"""Cycles of a STORE for each element."""


def drained(steps: Sequence[Step], config: Config) -> list[Step]:
    """The steps with the last operations on a run of accumulators, and the stores of them, cut into chunks.

    Nothing is computed beside the last stores of a stream. The number of chunks weighs the cycles that each further instruction
    takes against those of the last chunk's store.
    """
    stores = _last(steps, len(steps), _is_store)
    first = _last(steps, stores, _is_operation)
    operations = [step for step in steps[first:stores] if _run(step) == _run(steps[stores - 1])]
    run = _run(operations[0]) if len(operations) == stores - first > 0 else None
    if run is None:
        return list(steps)
    rows = [row for step in steps[stores:] for row in _rows(step)]
    start, length = run
    expected = start
    for row in rows:  # the stores cover the run from its beginning to its end, or nothing is cut
        if row[0] != expected:
            return list(steps)
        expected += row[1]
    if expected != start + length:
        return list(steps)
    count = max(1, round(sqrt(_STORED * length / (_START * len(operations)))))
    return [*steps[:first], *_chunks(operations, rows, ceil(length / count), start, config)]


def _last(steps: Sequence[Step], end: int, wanted: Callable[[Step], bool]) -> int:
    """Where the run of wanted steps before `end` begins."""
    while end and wanted(steps[end - 1]):
        end -= 1
    return end


def _is_store(step: Step) -> bool:
    return isinstance(step.instruction, Store)


def _is_operation(step: Step) -> bool:
    return _run(step) is not None


def _run(step: Step) -> tuple[int, int] | None:
    """The accumulators that an instruction with an immediate changes one after the other: the first, and how many."""
    item = step.instruction
    if not isinstance(item, Alu) or item.imm is None or item.uop_end != 1 or item.iter_out != 1 or item.dst_factors[1] != 1:
        return None
    return step.accesses[0].start, step.accesses[0].length


def _rows(step: Step) -> Iterator[tuple[int, int, int]]:
    """SRAM place, elements and DRAM place of each row of a store."""
    item = step.instruction
    assert isinstance(item, Store)
    for row in range(item.y_size):
        yield item.sram_base + row * item.x_size, item.x_size, item.dram_base + row * item.x_stride


def _chunks(
    operations: Sequence[Step], rows: Sequence[tuple[int, int, int]], most: int, start: int, config: Config
) -> Iterator[Step]:
    pieces = [(sram + at, min(most, length - at), dram + at) for sram, length, dram in rows for at in range(0, length, most)]
    while pieces:
        size = taken = 0
        while taken < len(pieces) and (not taken or size + pieces[taken][1] <= most):
            size += pieces[taken][1]
            taken += 1
        chunk, pieces = pieces[:taken], pieces[taken:]
        place = chunk[0][0]
        for step in operations:
            assert isinstance(step.instruction, Alu) and step.kernel is not None
            access = Access(Memory.ACC, True, place, size)
            changed = replace(step.instruction, iter_in=size)
            yield Step(changed, step.source, (access,), step.kernel + (place - start))
        yield from _stored(chunk, operations[0].source, config)


def _stored(pieces: Sequence[tuple[int, int, int]], source: str, config: Config) -> Iterator[Step]:
    """Stores of pieces, those of one length and distance in one instruction."""
    while pieces:
        sram, length, dram = pieces[0]
        stride = pieces[1][2] - dram if len(pieces) > 1 else length
        count = 1
        while count < len(pieces) and 0 < stride <= MOST and pieces[count][1:] == (length, dram + count * stride):
            count += 1
        yield moved(config, Store(sram, dram, count, length, stride if count > 1 else length), source)
        pieces = pieces[count:]
