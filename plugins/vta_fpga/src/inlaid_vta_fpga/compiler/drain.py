"""Epilogue of a stream. Splits the ALU operations and stores of the last tile into chunks, so that stores overlap with compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, sqrt

from inlaid_vta_fpga.compiler.dma import MAX_FIELD, transfer_step
from inlaid_vta_fpga.compiler.tasks import Step
from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.instructions import Alu, Store

_START = 8
"""Start-up cycles of an ALU instruction, in addition to one cycle per micro-op."""
_STORED = 3
"""Cycles of a STORE per element."""
_Row = tuple[int, int, int]
"""A contiguous store: SRAM index, number of elements, DRAM index."""


def chunk_last_stores(steps: Sequence[Step], config: Config) -> list[Step]:
    """Split the last ALU operations on a run of accumulators, and the stores of the results, into chunks.

    No computation overlaps with the last store of a stream. The number of chunks balances the start-up cycles of the additional
    instructions against the cycles of the last store.
    """
    stores = first = len(steps)
    while stores and isinstance(steps[stores - 1].instruction, Store):
        stores -= 1
    rows = [row for step in steps[stores:] for row in _rows(step.instruction)]
    run = rows[0][0] if rows else 0, sum(length for _, length, _ in rows)
    first = stores
    while first and _run(steps[first - 1]) == run:
        first -= 1
    if first == stores or any(a[0] + a[1] != b[0] for a, b in pairwise(rows)):
        return list(steps)
    chunk_length = ceil(run[1] / max(1, round(sqrt(_STORED * run[1] / (_START * (stores - first))))))
    rows = [
        (sram + offset, min(chunk_length, length - offset), dram + offset)
        for sram, length, dram in rows
        for offset in range(0, length, chunk_length)
    ]
    chunked = list(steps[:first])
    while rows:
        size, count = rows[0][1], 1
        while count < len(rows) and size + rows[count][1] <= chunk_length:
            size, count = size + rows[count][1], count + 1
        start = rows[0][0]
        for step in steps[first:stores]:
            access = replace(step.accesses[0], start=start, length=size)
            assert isinstance(step.instruction, Alu) and step.kernel is not None
            chunked.append(Step(replace(step.instruction, iter_in=size), step.source, (access,), step.kernel + (start - run[0])))
        chunked += _stored(rows[:count], steps[-1].source, config)
        rows = rows[count:]
    return chunked


def _run(step: Step) -> tuple[int, int] | None:
    """Return the first accumulator and the count of a contiguous ALU operation with an immediate; None for other instructions."""
    item = step.instruction
    if isinstance(item, Alu) and item.imm is not None and (item.uop_end, item.iter_out, item.dst_factors[1]) == (1, 1, 1):
        return step.accesses[0].start, step.accesses[0].length
    return None


def _rows(item: object) -> Iterator[_Row]:
    assert isinstance(item, Store)
    for row in range(item.y_size):
        yield item.sram_base + row * item.x_size, item.x_size, item.dram_base + row * item.x_stride


def _stored(rows: Sequence[_Row], source: str, config: Config) -> Iterator[Step]:
    """Yield STOREs of rows. Rows of equal length and stride share a STORE."""
    while rows:
        (sram, length, dram), count = rows[0], 1
        stride = rows[1][2] - dram if len(rows) > 1 else length
        while count < len(rows) and 0 < stride <= MAX_FIELD and rows[count][1:] == (length, dram + count * stride):
            count += 1
        yield transfer_step(config, Store(sram, dram, count, length, stride if count > 1 else length), source)
        rows = rows[count:]
