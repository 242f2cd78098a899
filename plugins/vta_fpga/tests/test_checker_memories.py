"""The static checker's rules of single instructions and of memory, on hand-written streams."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from inlaid_vta_fpga.checker import Rule, check
from inlaid_vta_fpga.isa.assembler import parse_program
from inlaid_vta_fpga.isa.config import Config

CONFIG = Config()
TABLE = ".uops 0x400\n0 0 0\n16 16 1\n0 16 0\n.code\n"
"""Micro-ops of the first and the second slot of a double buffer, and one from the second to the first."""
HEAD = "load.uop dram=0x400 size=1x3 stride=3\n"
ROW = "loops=1x16 dst=0,1 src=0,1"


def violations(code, **options):
    program = parse_program(TABLE + code, CONFIG)
    dram = np.zeros(0x10000, np.uint8)
    program.write_uops(dram, CONFIG)
    return [(violation.number, violation.rule) for violation in check(program.instructions, dram, CONFIG, **options)]


def compute(code):
    """Violations of instructions of the compute module, between a load of INP, WGT and UOP, and a store-free end; the first has
    number 4."""
    loads = "load.inp dram=0x200 size=1x32 stride=32\nload.wgt dram=0x30 size=1x2 stride=2 push_next\nload.uop pop_prev\n"
    return [(number - 4, rule) for number, rule in violations(HEAD + loads + code + "\nfinish")]


def double_buffered(tiles=5):
    """Tiles of 16 elements through two slots of INP, WGT, ACC: load runs ahead by one tile."""
    lines = [HEAD, "load.uop push_prev", "load.uop push_prev"]
    for tile in range(tiles):
        slot = tile % 2
        uop = f"uops={slot}:{slot + 1} {ROW}"
        lines += [
            f"load.inp sram={16 * slot} dram={0x200 + 16 * tile} size=1x16 stride=16 pop_next",
            f"load.wgt sram={slot} dram=0x30 size=1x1 stride=1 push_next",
            f"gemm.reset {uop} {'pop_next' if tile >= 2 else ''}",
            f"gemm {uop} pop_prev push_prev",
            f"alu.shr {uop} imm=4",
            f"alu.max {uop} imm=0 push_next",
            f"store sram={16 * slot} dram={0x400 + 16 * tile} size=4x4 stride=4 pop_prev push_prev",
        ]
    lines += ["load.inp pop_next", "load.inp pop_next push_next", "load.uop pop_prev pop_next", "load.uop pop_next", "finish"]
    return "\n".join(lines)


def test_a_double_buffered_stream_is_legal():
    assert not violations(double_buffered())


def list_flags(code):
    instructions = parse_program(TABLE + code, CONFIG).instructions
    return [
        (number, field.name)
        for number, instruction in enumerate(instructions)
        for field in dataclasses.fields(instruction.flags)
        if getattr(instruction.flags, field.name)
    ]


@pytest.mark.parametrize(("number", "flag"), list_flags(double_buffered()))
def test_dropping_any_flag_is_caught(number, flag):
    program = parse_program(TABLE + double_buffered(), CONFIG)
    dram = np.zeros(0x10000, np.uint8)
    program.write_uops(dram, CONFIG)
    code = list(program.instructions)
    code[number] = dataclasses.replace(code[number], flags=dataclasses.replace(code[number].flags, **{flag: False}))
    rules = {violation.rule for violation in check(code, dram, CONFIG)}
    assert rules & {Rule.TOKEN_BALANCE, Rule.DEADLOCK, Rule.RACE}


def test_dropping_a_push_and_its_pop_is_a_race_or_unordered():
    """Balanced mutants: every dependence of the stream is needed, but those that others imply."""
    code = double_buffered()
    lines = code.split("\n")
    token_lines = [number for number, line in enumerate(lines) if line.startswith(("load.wgt", "gemm uops"))]
    for push, pop in zip(token_lines[::2], token_lines[1::2], strict=True):
        mutant = list(lines)
        mutant[push] = mutant[push].replace("push_next", "")
        mutant[pop] = mutant[pop].replace("pop_prev", "")
        assert Rule.RACE in {rule for _, rule in violations("\n".join(mutant))}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"gemm.reset uops=0:2 {ROW}\ngemm uops=0:2 {ROW}\nalu.add uops=0:1 {ROW}", []),
        # fields, loops, ranges
        ("gemm.reset uops=0:1 loops=0x16 dst=0,1", [(0, Rule.LOOP_COUNT)]),
        ("gemm.reset uops=0:1 loops=16x0 dst=1,0", [(0, Rule.LOOP_COUNT)]),
        ("gemm.reset uops=1:1", [(0, Rule.LOOP_COUNT)]),
        ("load.acc sram=3 dram=0x80 size=0x4", [(0, Rule.LOOP_COUNT)]),
        ("load.acc sram=3000 dram=0x80 size=4x0", []),
        ("load.acc sram=2044 dram=0x80 size=1x4", []),
        ("load.acc sram=2045 dram=0x80 size=1x4", [(0, Rule.SRAM_RANGE)]),
        ("load.acc sram=2036 dram=0x80 size=1x3 y_pad=1,1 x_pad=0,1", []),
        ("load.acc sram=2037 dram=0x80 size=1x3 y_pad=1,1 x_pad=0,1", [(0, Rule.SRAM_RANGE)]),
        ("gemm.reset uops=1:2 loops=1x2032 dst=0,1", []),
        ("gemm.reset uops=1:2 loops=1x2033 dst=0,1", [(0, Rule.SRAM_RANGE)]),
        ("gemm.reset uops=8191:8193 dst=0,1", [(0, Rule.SRAM_RANGE)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 loops=1x3 dst=0,1 src=0,1024", [(1, Rule.SRAM_RANGE)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 loops=1x3 dst=0,1 wgt=0,512", [(1, Rule.SRAM_RANGE)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.add uops=0:1 loops=1x3 dst=0,1 src=0,1024", [(1, Rule.SRAM_RANGE)]),
        ("load.acc dram=0x3f size=1x1", [(0, Rule.DRAM_RANGE)]),
        ("load.acc dram=0x3ff size=1x1", []),
        ("load.acc dram=0x400 size=1x1", [(0, Rule.DRAM_RANGE)]),
        ("load.acc dram=0x3fd size=2x1 stride=2", []),
        ("load.acc dram=0x3fd size=2x1 stride=3", [(0, Rule.DRAM_RANGE)]),
        ("load.acc dram=0xffffffff size=1x1", [(0, Rule.DRAM_RANGE)]),
        # portable streams, shifts
        ("load.acc_8bit dram=0x200 size=1x1", [(0, Rule.PORTABLE)]),
        ("load.uop dram=0x400 size=2x1 stride=1", [(0, Rule.PORTABLE)]),
        ("load.uop dram=0x400 size=1x1 x_pad=1,0", [(0, Rule.PORTABLE)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.mul uops=0:1 {ROW} imm=3", [(1, Rule.PORTABLE)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.shr uops=0:1 {ROW} imm=15\nalu.shr uops=0:1 {ROW} imm=-16", []),
        (f"gemm.reset uops=0:1 {ROW}\nalu.shr uops=0:1 {ROW} imm=16", [(1, Rule.SHIFT)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.shr uops=0:1 {ROW} imm=-17", [(1, Rule.SHIFT)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.add uops=0:1 {ROW} imm=16", []),
        # initialized reads
        ("gemm uops=0:1 loops=1x16 dst=0,1 src=0,1", [(0, Rule.INITIALIZED)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 loops=1x17 dst=0,1", [(1, Rule.INITIALIZED)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 loops=1x16 dst=0,1 src=0,3", [(1, Rule.INITIALIZED)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 loops=1x3 dst=0,1 wgt=0,1", [(1, Rule.INITIALIZED)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.add uops=2:3 {ROW}", [(1, Rule.INITIALIZED)]),
        (f"gemm.reset uops=0:1 {ROW}\nalu.add uops=2:3 {ROW} imm=1", []),
        ("alu.add uops=0:1 imm=1", [(0, Rule.INITIALIZED)]),
        ("gemm.reset uops=2:4 dst=0,1", [(0, Rule.INITIALIZED)]),
        ("load.acc dram=0x80 size=1x16\nalu.add uops=0:1 loops=1x16 dst=0,1 imm=3", []),
        # accumulators in the pipeline
        ("gemm.reset uops=0:2 loops=2x1", [(0, Rule.DISTANCE)]),
        ("gemm.reset uops=0:3 loops=1x1", [(0, Rule.DISTANCE)]),
        ("gemm.reset uops=0:1 loops=1x16 dst=1,0", [(0, Rule.DISTANCE)]),
        ("gemm.reset uops=0:1 loops=16x1 dst=1,0", []),
        ("gemm.reset uops=0:1 loops=2x2 dst=0,1", [(0, Rule.DISTANCE)]),
        ("gemm.reset uops=0:1 loops=2x3 dst=0,1", []),
        (f"gemm.reset uops=0:2 {ROW}\nalu.add uops=0:1 loops=1x15 dst=0,1 src=0,1", []),
        (f"gemm.reset uops=0:2 {ROW}\ngemm uops=0:1 loops=9x16 dst=0,1 src=1,1", []),
        (f"gemm.reset uops=0:2 {ROW}\ngemm uops=0:1 loops=16x9 dst=1,0 src=1,1", [(1, Rule.DISTANCE)]),
    ],
)
def test_rules_of_compute(code, expected):
    assert compute(code) == expected


@pytest.mark.parametrize(("ahead", "expected"), [(1, [Rule.DISTANCE]), (2, [Rule.DISTANCE]), (3, [])])
def test_alu_reads_of_accumulators_in_the_pipeline(ahead, expected):
    """acc[i + ahead] += acc[i]: a micro-op reads what an earlier one wrote."""
    code = f".uops 0x400\n{ahead} 0 0\n.code\nload.uop dram=0x400 size=1x1\nload.acc dram=0x80 size=1x64\n"
    program = parse_program(code + "alu.add uops=0:1 loops=1x9 dst=0,1 src=0,1\nfinish", CONFIG)
    dram = np.zeros(0x10000, np.uint8)
    program.write_uops(dram, CONFIG)
    assert [violation.rule for violation in check(program.instructions, dram, CONFIG)] == expected


def store(code):
    """Violations of compute instructions, and a store of the first 4 results, ordered by tokens."""
    return compute(f"{code} push_next\nstore dram=0x400 size=1x4 stride=4 pop_prev push_prev\nload.uop pop_next")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 {ROW}", []),
        ("gemm.reset uops=0:1 loops=1x16 dst=0,1", [(1, Rule.OUT_BUFFER)]),
        ("load.acc dram=0x80 size=1x16", [(1, Rule.OUT_BUFFER)]),
        ("load.acc dram=0x80 size=1x16\nalu.shr uops=0:1 loops=1x4 dst=0,1 imm=0", []),
        ("load.acc dram=0x80 size=1x16\nalu.shr uops=0:1 loops=1x3 dst=0,1 imm=0", [(2, Rule.OUT_BUFFER)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 {ROW}\nload.acc sram=3 dram=0x80 size=1x1", [(3, Rule.OUT_BUFFER)]),
        (f"gemm.reset uops=0:1 {ROW}\ngemm uops=0:1 loops=1x3 dst=0,1\nload.acc sram=4 dram=0x80 size=1x1", [(3, Rule.OUT_BUFFER)]),
        ("load.uop", [(1, Rule.INITIALIZED)]),
    ],
)
def test_rules_of_store(code, expected):
    assert store(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # LOAD waits for no token, and compute reads.
        ("load.inp dram=0x200 size=1x16\nload.wgt dram=0x30 size=1x1 push_next\n{gemm} pop_prev\n{end}", []),
        ("load.wgt dram=0x30 size=1x1 push_next\nload.inp dram=0x200 size=1x16 push_next\n{gemm} pop_prev\n{wait}", [4]),
        ("load.inp dram=0x200 size=1x16 push_next\nload.wgt dram=0x30 size=1x1 push_next\n{gemm} pop_prev\n{wait}", [4]),
        # The next tile overwrites what compute reads.
        ("{in} push_next\n{gemm} pop_prev\nload.inp sram=15 dram=0x300 size=1x1 push_next\n{wait}", [5]),
        ("{in} push_next\n{gemm} pop_prev\nload.inp sram=16 dram=0x300 size=1x1 push_next\n{wait}", []),
        ("{in} push_next\n{gemm} pop_prev\nload.inp sram=14 dram=0x300 size=1x1 x_pad=0,1 push_next\n{wait}", [5]),
        ("{in} push_next\n{gemm} pop_prev push_prev\nload.inp sram=15 dram=0x300 size=1x1 pop_next push_next\n{wait}", []),
        # Compute overwrites what STORE reads.
        ("{in} push_next\n{result}\n{reset}\nload.uop pop_next\n{end}", [6]),
        ("{in} push_next\n{result}\n{reset} pop_next\n{end}", []),
        ("{in} push_next\n{result}\nload.acc dram=0x80 size=1x1\nload.uop pop_next\n{end}", [6]),
        ("{in} push_next\n{result}\nload.acc sram=16 dram=0x80 size=1x1\nload.uop pop_next\n{end}", []),
        # A STORE to DRAM, and a LOAD of the same bytes by the load module, by compute.
        ("{in} push_next\n{result}\nload.inp sram=64 dram=0x40f size=1x1 push_next\n{both}\n{end}", [6]),
        ("{in} push_next\n{result}\nload.inp sram=64 dram=0x410 size=1x1 push_next\n{both}\n{end}", []),
        ("{in} push_next\n{result}\nload.inp sram=64 dram=0x3ff size=2x1 stride=17 push_next\n{both}\n{end}", []),
        ("{in} push_next\n{result}\nload.inp sram=64 dram=0x3ff size=2x1 stride=16 push_next\n{both}\n{end}", [6]),
        ("{in} push_next\n{result}\nload.acc sram=64 dram=0x103 size=1x1\nload.uop pop_next\n{end}", [6]),
        ("{in} push_next\n{result}\nload.acc sram=64 dram=0x104 size=1x1\nload.uop pop_next\n{end}", []),
        ("{in} push_next\n{result}\nload.acc sram=64 dram=0x103 size=1x1 pop_next\n{end}", []),
        # A STORE to DRAM that an earlier LOAD of compute or of the load module reads.
        ("{in} push_next\n{gemm} pop_prev push_next\nload.acc sram=64 dram=0x103 size=1x1\n{store}\n{free}\n{end}", [6]),
        ("{in} push_next\nload.acc sram=64 dram=0x103 size=1x1\n{gemm} pop_prev push_next\n{store}\n{free}\n{end}", []),
        ("{in} push_next\n{gemm} pop_prev push_next\nload.inp sram=64 dram=0x402 size=1x1 push_next\n{store}\n{both}\n{end}", [6]),
        ("load.inp sram=64 dram=0x402 size=1x1\n{in} push_next\n{gemm} pop_prev push_next\n{store}\n{free}\n{end}", []),
        # Relayed by compute.
        ("{in} push_next\n{result}\nload.uop pop_next push_prev\n"
         "load.inp sram=64 dram=0x40f size=1x1 pop_next push_next\n{wait}", []),
    ],
)  # fmt: skip
def test_races(code, expected):
    code = code.format(
        **{"in": "load.wgt dram=0x30 size=1x1\nload.inp dram=0x200 size=1x16"},
        reset=f"gemm.reset uops=0:1 {ROW}",
        gemm=f"gemm uops=0:1 {ROW}",
        result=f"gemm uops=0:1 {ROW} pop_prev push_next\nstore dram=0x400 size=1x16 pop_prev push_prev",
        wait="load.uop pop_prev\nfinish",
        store="store dram=0x400 size=1x16 pop_prev push_prev",
        free="load.uop pop_next",
        both="load.uop pop_prev pop_next",
        end="finish",
    )
    assert violations(f"{HEAD}gemm.reset uops=0:1 {ROW}\n{code}") == [(number, Rule.RACE) for number in expected]
