"""The timing simulator: exact cycles of small streams, stalls by cause, and what overlap is worth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from inlaid_runtime.errors import KernelFault
from inlaid_vta_fpga.isa.config import PAGE_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Instruction, Load, Module, Store
from inlaid_vta_fpga.simulators.functional import Functional
from inlaid_vta_fpga.simulators.port import bursts
from inlaid_vta_fpga.simulators.timed import Timed
from inlaid_vta_fpga.simulators.timing import BUSY, FINISHED, INSTRUCTIONS, PORT, Span, Timeline

from .image import Image, serial
from .random_streams import SMALL, StreamCase, hostile, legal

LOAD_OVERHEAD = 1 + 1 + 16 + 2 + 1 + 1
"""Accept, request, latency of an idle port, response, notice of the last write, done."""


def timeline(instructions: Sequence[Instruction], config: Config | None = None) -> Timeline:
    """The timeline of a stream, FINISH appended, without data."""
    return Timed(config).time([*instructions, Finish()], PAGE_BYTES)


def span(trace: Timeline, number: int) -> Span:
    """The span of an instruction."""
    return next(span for span in trace.spans if span.number == number)


def alone(instruction: Instruction, config: Config | None = None) -> int:
    """Cycles of an instruction with the port to itself."""
    interval = span(timeline(serial([instruction]), config), 0)
    return interval.end - interval.start


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        (Gemm(0, 1), 1 + 8),
        (Gemm(0, 5, 3, 7), 105 + 8),
        (Gemm(0, 5, 3, 7, reset=True), 105 + 8),
        (Alu(AluOp.MAX, 0, 4, 2, 2, imm=0), 16 + 8),
        (Alu(AluOp.ADD, 0, 4, 2, 2), 2 * 16 + 8),
        (Load(Memory.UOP), 2),
        (Load(Memory.INP), 2),
        (Store(), 2),
        # Rows of 4 and 7 elements: a burst of 5 cycles, and 3 cycles an element.
        (Store(0, 256, 1, 4, 4), 2 + 5 + 3 * 4),
        (Store(0, 256, 3, 7, 56), 2 + 3 * (5 + 3 * 7)),
        # 130 elements from 16 bytes before a 2 KiB block: bursts of 1, 128 and 1 elements.
        (Store(0, 383, 1, 130, 130), 2 + 3 * 5 + 3 * 130),
    ],
)
def test_an_instruction_takes_its_cycles(instruction: Instruction, expected: int) -> None:
    """Rates and overheads of specification sections 3.1 and 3.2."""
    assert alone(instruction) == expected


@pytest.mark.parametrize(
    ("load", "beats", "extra"),
    [
        (Load(Memory.INP, 0, 256, 1, 8, 8), 16, 0),
        (Load(Memory.WGT, 0, 16, 1, 2, 2), 64, 0),
        (Load(Memory.ACC, 0, 64, 1, 2, 2), 16, 0),
        (Load(Memory.ACC_8BIT, 0, 256, 1, 2, 2), 4, 0),
        (Load(Memory.UOP, 0, 1024, 1, 7, 7), 4, 0),
        (Load(Memory.UOP, 0, 1025, 1, 7, 7), 4, 0),
        (Load(Memory.INP, 0, 256, 4, 8, 100), 64, 0),
        # Two zero rows delay the first request by two cycles.
        (Load(Memory.INP, 0, 256, 1, 8, 8, y_pad_0=2), 16, 2),
        # 34 cycles without beats (15 late ones, request, latency, response) hide zero elements; rows without zeros take one.
        (Load(Memory.INP, 0, 256, 2, 4, 56, y_pad_0=15), 16, 15 + 15 * 4 - (15 + 19) + 2),
        # 3 * 10 + 2 zero elements fill cycles without beats: 2 late cycles, request, latency and response are 21.
        (Load(Memory.INP, 0, 256, 1, 8, 8, 2, 1, 1, 1), 16, 2 + 3 * 10 + 2 - 21),
    ],
)
def test_a_load_takes_latency_and_beats(load: Load, beats: int, extra: int) -> None:
    """Rows follow without a gap; zero elements cost cycles only where no beat hides them."""
    # Fetch has done with the port: it reads one instruction and FINISH before.
    assert alone(load) == LOAD_OVERHEAD + beats + extra


def test_bursts_end_at_aligned_blocks() -> None:
    """2 KiB of the default, 128 bytes of the de10 configuration."""
    assert bursts(4096, 2048, Config()) == [256]
    assert bursts(4096 + 1024, 2048, Config()) == [128, 128]
    assert bursts(4096 - 8, 4112, Config()) == [1, 256, 256, 1]
    assert bursts(4100, 4, Config()) == [1]
    assert bursts(4096, 300, Config(burst_beats=16)) == [16, 16, 6]
    assert bursts(4096, 300, Config(bus_bytes=16)) == [19]
    assert bursts(0, 0, Config()) == []


def test_fetch_reads_batches_and_dispatches_one_instruction_per_cycle() -> None:
    """First batch: request, latency, 2 beats an instruction, response; then dispatch; then the next batch."""
    trace = timeline([Load(Memory.UOP)] * 199)
    first = 1 + 1 + 16 + 256 + 2
    assert trace.fetches == ((1, first + 128, 128), (first + 128, first + 128 + 1 + 16 + 144 + 2 + 72, 72))
    assert [span(trace, number).start for number in (0, 1, 2)] == [first + 2, first + 4, first + 6]
    assert trace.fetched == 200 * 16
    assert trace.read_beats == 400
    assert trace.cycles == span(trace, 199).end


def _pair(tokens: bool) -> list[Instruction]:
    flags = (Flags(push_next=True), Flags(pop_prev=True)) if tokens else (Flags(), Flags())
    return [Load(Memory.INP, 0, 256, 1, 100, 100, flags=flags[0]), Gemm(0, 1, 1, 300, flags=flags[1])]


def test_a_token_makes_compute_wait_for_load() -> None:
    """Compute starts in the cycle in which load is done, and the wait is attributed to the token queue."""
    trace = timeline(_pair(True))
    assert span(trace, 1).start == span(trace, 0).end
    waits = trace.activity[Module.COMPUTE]
    # Compute has its instruction one cycle after load has its own.
    assert waits["load to compute"] == span(trace, 0).end - span(trace, 0).start - 1
    assert waits[BUSY] == 308 + 2
    free = timeline(_pair(False))
    assert span(free, 1).start == span(free, 0).start + 1


def test_activity_sums_to_the_cycles_of_the_run() -> None:
    """Each cycle of each module has one cause."""
    trace = timeline(_pair(True))
    assert all(sum(causes.values()) == trace.cycles for causes in trace.activity.values())
    load = trace.activity[Module.LOAD]
    assert load[PORT] == LOAD_OVERHEAD - 2
    assert load[BUSY] == 200 + 2
    assert load[INSTRUCTIONS] == span(trace, 0).start
    assert trace.activity[Module.STORE][FINISHED] + trace.activity[Module.STORE].get(INSTRUCTIONS, 0) == trace.cycles
    assert "load to compute" in trace.to_text()


def test_the_port_serves_one_burst_at_a_time_and_uop_before_inp() -> None:
    """Two clients share the beats: together they take the sum, without a second latency."""
    inp, uop = Load(Memory.INP, 0, 256, 30, 64, 128, flags=Flags(push_next=True)), Load(Memory.UOP, 0, 1024, 1, 512, 512)
    wait = Load(Memory.UOP, flags=Flags(pop_prev=True))
    both, late, lone = timeline([inp, uop, wait]), timeline([inp, *[Load(Memory.UOP)] * 12, uop, wait]), timeline([inp, wait])
    first, second = span(both, 0), span(lone, 0)
    assert first.end - first.start == second.end - second.start + 256
    # One burst is accepted per cycle. The micro-ops wait for those accepted before: one a cycle later, 16 when these are all.
    assert span(both, 1).end - first.start == 128 + 256 + LOAD_OVERHEAD
    assert span(late, 13).end - span(late, 0).start == 16 * 128 + 256 + LOAD_OVERHEAD


def test_wider_buses_and_shorter_bursts_change_the_cycles() -> None:
    """A 128-bit bus halves the beats, and a store's beats an element; bursts of 16 beats multiply a store's overhead."""
    load, store = Load(Memory.WGT, 0, 16, 1, 8, 8), Store(0, 256, 1, 64, 64)
    assert alone(load, Config(bus_bytes=16)) == LOAD_OVERHEAD + 8 * 16
    assert alone(store, Config(bus_bytes=16)) == 2 + 5 + 2 * 64
    assert alone(store, Config(burst_beats=16)) == 2 + 8 * 5 + 3 * 64


def _tiles(number: int, serialize: bool) -> Timeline:
    """Loads and products of tiles in two halves of INP: the loads run ahead unless the stream is serial."""
    stream: list[Instruction] = []
    for tile in range(number):
        half = tile % 2
        pop, last = tile >= 2, tile >= number - 2
        stream.append(Load(Memory.INP, 512 * half, 256, 1, 100, 100, flags=Flags(pop_next=pop, push_next=True)))
        stream.append(Gemm(half, half + 1, 1, 250, flags=Flags(pop_prev=True, push_prev=not last)))
    return timeline(serial(stream) if serialize else stream)


def test_overlap_hides_loads() -> None:
    """With tokens of two halves the products run back to back; serialized, loads and products add up."""
    overlapped, serialized = _tiles(20, False), _tiles(20, True)
    assert overlapped.cycles is not None
    assert serialized.cycles is not None
    assert overlapped.utilization > 0.9
    assert serialized.cycles > 1.5 * overlapped.cycles
    assert serialized.gemm_uops == overlapped.gemm_uops == 20 * 250


def test_full_command_queues_and_tokens_are_faults() -> None:
    """Fetch is in order: a full queue in front of the instruction that would drain it is a deadlock."""
    waiting = [Gemm(0, 1, flags=Flags(pop_prev=True))] * 513
    with pytest.raises(KernelFault, match=r"deadlock.*fetch for the full command queue of COMPUTE"):
        timeline([*waiting, *[Load(Memory.INP, flags=Flags(push_next=True))] * 513])
    pushes = [Load(Memory.INP, flags=Flags(push_next=True))] * 256
    with pytest.raises(KernelFault, match="at most 255 tokens from load to compute"):
        timeline([*pushes, *[Load(Memory.UOP, flags=Flags(pop_prev=True))] * 256, *[Gemm(0, 1, 100, 100)]])


@settings(deadline=None, max_examples=40)
@given(legal(SMALL))
def test_timed_results_are_the_functional_ones(case: StreamCase) -> None:
    """The same memory and counters, and cycles on top; no instruction of a module overlaps another of it."""
    stream = serial([*case.prologue, *case.body])
    other = Image(SMALL)
    other.dram = case.image.dram.copy()
    expected = other.run(Functional(SMALL, strict=False), stream)
    actual = case.image.run(Timed(SMALL, strict=False), stream)
    np.testing.assert_array_equal(case.image.dram, other.dram)
    assert isinstance(actual, Timeline)
    assert (actual.gemm_uops, actual.reset_uops, actual.alu_uops) == (expected.gemm_uops, expected.reset_uops, expected.alu_uops)
    assert (actual.loaded, actual.stored) == (expected.loaded, expected.stored)
    assert len(actual.spans) == len(stream) + 1
    by_start = sorted(actual.spans, key=lambda span: span.start)
    assert [span.number for span in by_start] == list(range(len(stream) + 1))
    assert all(first.end <= second.start for first, second in pairwise(by_start))
    assert all(sum(causes.values()) == actual.cycles for causes in actual.activity.values())


@settings(deadline=None, max_examples=150)
@given(hostile(Config()))
def test_hostile_streams_end(case: tuple[np.ndarray, bytes]) -> None:
    """Random instructions on random memory give a report or a `KernelFault`."""
    dram, data = case
    dram[4096 : 4096 + len(data)] = np.frombuffer(data, np.uint8)
    with suppress(KernelFault):
        Timed(strict=False, limit=1 << 16).run(dram, 4096, len(data) // 16)
