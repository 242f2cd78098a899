"""The static checker on random streams: against a naive walk over every micro-op and pair of instructions, and on garbage."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_vta_fpga.checker import Rule, check
from inlaid_vta_fpga.checker.footprints import Footprints
from inlaid_vta_fpga.checker.tokens import check_tokens
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Load, Module, Store, Uop

from .programs import FLAGS, instructions, with_tokens

SMALL = Config(log_block=1, log_uop_buff=4, log_inp_buff=4, log_wgt_buff=5, log_acc_buff=6)
"""Buffers of 8 elements, 4 micro-ops: accesses of random streams collide."""
DEPTH = 8
TABLE = 1024
DATA = 1025 * 8


def executions(instruction, table):
    """(dst, src, wgt) of every micro-op, in order."""
    for i, j in itertools.product(range(instruction.iter_out), range(instruction.iter_in)):
        for uop in table[instruction.uop_begin : instruction.uop_end]:
            yield tuple(
                index + i * factors[0] + j * factors[1]
                for index, factors in (
                    (uop.dst, instruction.dst_factors),
                    (uop.src, instruction.src_factors),
                    (uop.wgt, getattr(instruction, "wgt_factors", (0, 0))),
                )
            )


def naive_compute(instruction, table):
    """Reads and writes as sets of (memory, index), whether accumulators are too close, and whether an index is beyond its depth."""
    reads, writes, history, close = set(), set(), [], False
    for dst, src, wgt in executions(instruction, table):
        operands = {(Memory.ACC, dst)}
        if isinstance(instruction, Gemm):
            operands = set() if instruction.reset else operands | {(Memory.INP, src), (Memory.WGT, wgt)}
        elif instruction.imm is None:
            operands |= {(Memory.ACC, src)}
        close |= dst in history[-2:] or any((Memory.ACC, old) in operands for old in history[-2:])
        history.append(dst)
        reads |= operands
        writes |= {(Memory.ACC, dst)}
    return reads, writes, close, any(index >= DEPTH for _, index in reads | writes)


SMALL_INDEX = st.integers(0, 3)
FACTORS = st.tuples(st.integers(0, 2), st.integers(0, 2))
TABLES = st.just([Uop(0, 1, 2), Uop(1, 0, 1), Uop(2, 3, 0), Uop(3, 2, 3)]) | st.lists(
    st.builds(Uop, SMALL_INDEX, SMALL_INDEX, SMALL_INDEX), min_size=4, max_size=4
)
RANGE = st.sampled_from([(begin, end) for begin in range(4) for end in range(begin + 1, 5)])
COUNT = st.integers(1, 4)
COMPUTE = st.one_of(
    st.builds(
        lambda bounds, *rest: Gemm(*bounds, *rest), RANGE, COUNT, COUNT, FACTORS, FACTORS, FACTORS, st.booleans()
    ),
    st.builds(
        lambda bounds, *rest: Alu(AluOp.ADD, *bounds, *rest), RANGE, COUNT, COUNT, FACTORS, FACTORS, st.sampled_from([None, 1])
    ),
)  # fmt: skip


FOOTPRINTS = Footprints(SMALL)
"""One for all examples: it keeps those it has seen."""


@given(COMPUTE, TABLES)
@settings(max_examples=300)
def test_footprints_equal_those_of_every_micro_op(instruction, table):
    words = Encoding(SMALL).encode_uops(table)[instruction.uop_begin : instruction.uop_end]
    footprint = FOOTPRINTS.lookup(instruction, words)
    reads, writes, close, outside = naive_compute(instruction, table)
    assert (footprint.outside is not None) == outside
    if not outside:
        assert footprint.close == close
        assert {(Memory.ACC, index) for index in footprint.written.tolist()} == writes
        assert {(memory, index) for memory, indices in footprint.read for index in indices.tolist()} == reads


@st.composite
def transfers(draw):
    """Loads of INP, WGT and ACC, and stores, of one or two rows, in a DRAM that all share."""
    memory = draw(st.sampled_from([Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT]))
    size = SMALL.element_bytes(memory)
    rows, row = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    fields = (
        draw(st.integers(0, DEPTH - rows * row)),
        (DATA + draw(st.integers(0, 4)) * 8) // size,
        rows,
        row,
        draw(st.integers(0, 3)),
    )
    return Store(*fields) if memory is Memory.OUT else Load(memory, *fields)


@st.composite
def ordered_streams(draw):
    """Streams that run in their own order: tokens go from an instruction to a later one of a neighboring module."""
    code = [Load(Memory.UOP, 0, TABLE, 1, 4, 4), *draw(st.lists(st.one_of(transfers(), COMPUTE), min_size=1, max_size=8)), Finish()]
    return draw(with_tokens(code))


def naive_accesses(instruction, table):
    """Reads and writes as sets of (memory, index); DRAM by the byte. OUT stands for what STORE may read."""
    if isinstance(instruction, Finish) or getattr(instruction, "memory", None) is Memory.UOP:
        return set(), set()
    if isinstance(instruction, Gemm | Alu):
        reads, writes, _, _ = naive_compute(instruction, table)
        return reads, writes | {(Memory.OUT, index) for _, index in writes}
    memory = getattr(instruction, "memory", Memory.OUT)
    size = SMALL.element_bytes(memory)
    sram = {(memory, instruction.sram_base + index) for index in range(instruction.sram_size)}
    dram = set()
    for y, x in itertools.product(range(instruction.y_size), range(instruction.x_size)):
        first = (instruction.dram_base + y * instruction.x_stride + x) * size
        dram |= {("dram", byte) for byte in range(first, first + size)}
    if isinstance(instruction, Store):
        return sram, dram
    return dram, sram | ({(Memory.OUT, index) for _, index in sram} if memory is Memory.ACC else set())


def naive_rules(code, table):
    """The rules of memory that a stream breaks, executed in its own order."""
    order = check_tokens(code, lambda *violation: None)
    positions = {number: position for numbers in order.numbers for position, number in enumerate(numbers)}
    accesses = [naive_accesses(instruction, table) for instruction in code]
    broken = set()
    for (first, (reads, writes)), (last, (later_reads, later_writes)) in itertools.combinations(enumerate(accesses), 2):
        conflict = writes & (later_reads | later_writes) or reads & later_writes
        before = order.clocks[last][code[first].module] > positions[first]
        after = order.clocks[first][code[last].module] > positions[last]
        if conflict and not before and not after:
            broken.add((last, Rule.RACE))
    state = {}
    for number, (instruction, (reads, writes)) in enumerate(zip(code, accesses, strict=True)):
        operands = {element for element in reads if element[0] != "dram"}
        if any(element not in state for element in operands):
            broken.add((number, Rule.INITIALIZED))
        elif any(state[element] == "not computed" for element in operands):
            broken.add((number, Rule.OUT_BUFFER))
        computed = isinstance(instruction, Alu) or (isinstance(instruction, Gemm) and not instruction.reset)
        for element in writes:
            state[element] = "computed" if computed or element[0] is not Memory.OUT else "not computed"
        if isinstance(instruction, Gemm | Alu) and naive_compute(instruction, table)[2]:
            broken.add((number, Rule.DISTANCE))
    return broken


@given(ordered_streams(), TABLES)
@settings(max_examples=250, deadline=None)
def test_memory_rules_equal_a_naive_walk(code, table):
    if any(isinstance(instruction, Gemm | Alu) and naive_compute(instruction, table)[3] for instruction in code):
        return
    dram = np.zeros(DATA + 0x100, np.uint8)
    dram[TABLE * 4 : TABLE * 4 + 16] = Encoding(SMALL).encode_uops(table).view(np.uint8)
    violations = {(violation.number, violation.rule) for violation in check(code, dram, SMALL)}
    violations = {violation for violation in violations if violation[1] is not Rule.BEFORE_FINISH}
    assert violations == naive_rules(code, table)


ANY = st.integers(-(1 << 33), 1 << 33) | st.integers(0, 20)
GARBAGE = st.one_of(
    st.builds(Load, st.sampled_from(Memory), ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, FLAGS),
    st.builds(Store, ANY, ANY, ANY, ANY, ANY, FLAGS),
    st.builds(Gemm, ANY, ANY, ANY, ANY, *[st.tuples(ANY, ANY)] * 3, st.booleans(), FLAGS),
    st.builds(Alu, st.sampled_from(AluOp), ANY, ANY, ANY, ANY, *[st.tuples(ANY, ANY)] * 2, st.none() | ANY, FLAGS),
    st.builds(Finish, FLAGS),
    instructions(SMALL),
    transfers(),
    COMPUTE,
)


@given(st.lists(GARBAGE, max_size=20), st.binary(max_size=0x2000), st.sampled_from([SMALL, Config()]))
@settings(max_examples=150, deadline=None)
def test_garbage_is_reported_not_raised(code, memory, config):
    dram = np.frombuffer(memory, np.uint8)
    for violation in check(code, dram, config, ["conv1"]):
        assert 0 <= violation.number < max(1, len(code))
        assert "expected" in violation.message and "found" in violation.message
        assert (violation.source == "conv1") == (violation.number == 0)
        assert str(violation).startswith(f"instruction {violation.number}: {violation.rule}: ")


def test_loops_too_long_to_enumerate_are_reported():
    code = [Gemm(0, 8192, 16383, 16383, reset=True), Alu(AluOp.ADD, 0, 4, 1024, 1025, (1, 0), (0, 1)), Finish()]
    violations = check(code, np.zeros(0x2000, np.uint8), Config())
    assert [(violation.number, violation.rule) for violation in violations] == [(0, Rule.LOOP_COUNT), (1, Rule.LOOP_COUNT)]


def test_modules_of_garbage_flags():
    """Flags towards a module that is not there are reported, and ignored otherwise."""
    code = [
        Load(Memory.INP, flags=Flags(True, False, True, True)),
        Store(flags=Flags(False, True, True, True)),
        Finish(Flags(True, True)),
    ]
    assert [instruction.module for instruction in code] == [Module.LOAD, Module.STORE, Module.COMPUTE]
    assert [violation.rule for violation in check(code, np.zeros(0, np.uint8), Config())] == [Rule.FLAGS, Rule.FLAGS]
