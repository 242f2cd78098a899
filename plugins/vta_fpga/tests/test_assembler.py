"""Assembler text of VTA programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid_runtime.errors import ParseError
from inlaid_vta_fpga.isa.assembler import Program, parse_program, print_program
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Flags, Load, Uop

from .programs import configs, instructions, uops

EXAMPLE = """\
.uops 0x400
  3 8 7
  4 9 7
.code
  load.uop sram=9 dram=0x400 size=1x2 stride=2
  load.inp sram=5 dram=0x1234 size=3x4 stride=10 y_pad=1,1 x_pad=1,2 push_next
  # conv1
  gemm.reset uops=9:11 loops=5x1 dst=7,0
  gemm uops=9:11 loops=2x4 dst=0,1 src=1,2 wgt=1,0 pop_prev push_prev
  alu.shr uops=9:11 dst=5,0 src=5,0 imm=6
  alu.add uops=9:11 dst=5,0 src=5,0 push_next
  store dram=0x77 size=2x3 stride=56 pop_prev push_prev
  finish
"""


def test_canonical_text_round_trips():
    program = parse_program(EXAMPLE, Config())
    assert program.uops == {0x400: (Uop(3, 8, 7), Uop(4, 9, 7))}
    assert print_program(program, ["", "", *["conv1"] * 6]) == EXAMPLE


@given(st.data(), configs())
def test_text_round_trips(data, config):
    code = tuple(data.draw(st.lists(instructions(config), max_size=5)))
    tables = {base: tuple(data.draw(st.lists(uops(config), min_size=1, max_size=4))) for base in (0x400, 0x404)}
    program = Program(code, tables)
    sources = data.draw(st.lists(st.text(max_size=3), max_size=5))
    assert parse_program(print_program(program, sources), config) == program


def test_order_of_operands_number_formats_and_comments_are_free():
    text = "\n# nothing\nload.inp push_next size=0x2x3 dram=16 sram=0X5 # a tile\n"
    expected = Load(Memory.INP, 5, 16, 2, 3, flags=Flags(push_next=True))
    assert parse_program(text, Config()).instructions == (expected,)


def test_tables_are_written_to_memory():
    program = parse_program(EXAMPLE, Config())
    dram = np.zeros(0x2000, np.uint8)
    program.write_uops(dram, Config())
    assert dram[0x1000:0x1008].view("<u4").tolist() == Encoding(Config()).encode_uops(program.uops[0x400]).tolist()
    assert not dram[:0x1000].any() and not dram[0x1008:].any()


WORDS = st.sampled_from(
    [*EXAMPLE.split(), "0", "0x", "9" * 5000, "²3", "-1", ".uops", ".code", "#", "=", "sram=", "size=1x", "push_prev\u2028", "gemm"]
)


@given(st.lists(st.lists(WORDS, max_size=5).map(" ".join) | st.sampled_from(EXAMPLE.splitlines()), max_size=6).map("\n".join))
def test_any_text_is_parsed_or_refused(text):
    try:
        program = parse_program(text, Config())
    except ParseError:
        return
    assert parse_program(print_program(program), Config()) == program


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lod.inp", "expected a mnemonic, found 'lod.inp' .is 'load.inp' meant"),
        ("load.out", "expected a mnemonic"),
        ("alu", "expected a mnemonic"),
        ("load.inp rows=3", "expected an operand or a flag of load.inp, found 'rows=3'"),
        ("store y_pad=1,1", "expected an operand or a flag of store"),
        ("finish now", "found 'now'"),
        ("finish push_next=1", "found 'push_next=1'"),
        ("load.inp sram", "found 'sram'"),
        ("load.inp sram=", "expected sram=N, found sram="),
        ("load.inp size=3", "expected size=NxN"),
        ("load.inp size=3,4", "expected size="),
        ("load.inp sram=1_0", "expected sram=N"),
        ("load.inp sram=1 sram=2", "expected sram at most once"),
        ("load.inp push_next push_next", "expected push_next at most once"),
        ("gemm dst=1,0", "expected uops=N:N"),
        ("gemm uops=0:1 imm=3", "found 'imm=3'"),
        ("load.inp sram=65536", "expected sram_base of 16 bits, found 65536"),
        ("store sram=-1", "expected sram_base"),
        ("alu.add uops=0:1 imm=32768", "an immediate of 16 bits"),
        (".data", "expected .code or .uops N, found '.data'"),
        (".uops", "expected .code or .uops N"),
        (".uops -4", "expected an unused DRAM index >= 0, found -4"),
        (".uops 0x200", "expected an unused DRAM index >= 0, found 0x200"),
        (".uops 0x1ff\n1 2 3\n4 5 6", "line 6: expected tables that do not overlap, found a micro-op at 0x200"),
        (".uops 4\n1 2", "line 5: expected a micro-op"),
        (
            ".uops 4\nfinish",
            "line 5: expected a micro-op as three numbers, dst src wgt, found 'finish'; start instructions with .code",
        ),
        (".uops 4\n2048 0 0", "line 5: expected dst of micro-ops of 11 bits"),
    ],
)
def test_malformed_text_is_refused(line, expected):
    text = ".uops 0x200\n1 2 3\n.code\n" + line
    with pytest.raises(ParseError, match=expected) as caught:
        parse_program(text, Config())
    assert str(caught.value).startswith("line ")
    assert caught.value.remedy
