"""Configurations, and the binary encoding of instructions and micro-ops."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.errors import TargetError
from inlaid_vta_fpga.isa.assembler import parse_program
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, Config, Memory
from inlaid_vta_fpga.isa.encoding import ALU, FINISH, GEMM, LOAD, STORE, Encoding, EncodingError
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Load, Store, Uop

from .programs import configs, instructions, uops

# Specification of VTA, section 1.10: instruction, assembler text, bytes in memory order.
GOLDEN = [
    (
        Load(Memory.INP, 5, 0x1234, 3, 4, 10, 1, 1, 1, 2, Flags(push_next=True)),
        "load.inp sram=5 dram=0x1234 size=3x4 stride=10 y_pad=1,1 x_pad=1,2 push_next",
        "401500d048000000030004000a001121",
    ),
    (
        Load(Memory.UOP, 9, 0x400, 1, 7, 7, flags=Flags(pop_prev=True)),
        "load.uop sram=9 dram=0x400 size=1x7 stride=7 pop_prev",
        "08240000100000000100070007000000",
    ),
    (
        Gemm(9, 16, 5, 1, dst_factors=(7, 0), reset=True, flags=Flags(push_prev=True)),
        "gemm.reset uops=9:16 loops=5x1 dst=7,0 push_prev",
        "a2090002280002000700000000000000",
    ),
    (
        Gemm(2, 3, 2, 4, (0, 1), (1, 2), (1, 0), flags=Flags(pop_prev=True, push_prev=True)),
        "gemm uops=2:3 loops=2x4 dst=0,1 src=1,2 wgt=1,0 pop_prev push_prev",
        "2a026000100008000008400004100000",
    ),
    (
        Alu(AluOp.SHR, 0, 5, 4, 1, (5, 0), (5, 0), 6),
        "alu.shr uops=0:5 loops=4x1 dst=5,0 src=5,0 imm=6",
        "0400a000200002000500400100b00600",
    ),
    (
        Alu(AluOp.MAX, 0, 1, 1, 1, (1, 0), (1, 0), -128, Flags(push_next=True)),
        "alu.max uops=0:1 dst=1,0 src=1,0 imm=-128 push_next",
        "440020000800020001004000009080ff",
    ),
    (
        Store(0, 0x77, 2, 3, 56, Flags(pop_prev=True, push_prev=True)),
        "store dram=0x77 size=2x3 stride=56 pop_prev push_prev",
        "290200dc010000000200030038000000",
    ),
    (Load(Memory.UOP, flags=Flags(pop_prev=True, pop_next=True)), "load.uop pop_prev pop_next", "18" + 15 * "00"),
    (Finish(), "finish", "03" + 15 * "00"),
]


@pytest.mark.parametrize(("instruction", "text", "data"), GOLDEN)
def test_golden_encodings(instruction, text, data):
    encoding = Encoding(Config())
    assert encoding.encode(instruction).hex() == data
    assert encoding.decode(bytes.fromhex(data)) == instruction
    assert parse_program(text, Config()).instructions == (instruction,)


def test_golden_micro_op():
    encoding = Encoding(Config())
    words = encoding.encode_uops([Uop(3, 8, 7)])
    assert words.astype("<u4").tobytes().hex() == "0340c001"
    assert [column.tolist() for column in encoding.decode_uops(words)] == [[3], [8], [7]]


@given(st.data(), configs())
def test_encoding_round_trips(data, config):
    encoding = Encoding(config)
    program = data.draw(st.lists(instructions(config), max_size=4))
    encoded = encoding.encode_program(program)
    assert encoding.decode_program(encoded) == program
    for number, instruction in enumerate(program):
        word = int.from_bytes(encoded[number * INSTRUCTION_BYTES : (number + 1) * INSTRUCTION_BYTES], "little")
        opcode = {Load: LOAD, Store: STORE, Gemm: GEMM, Finish: FINISH, Alu: ALU}[type(instruction)]
        unused = ~encoding.mask(opcode) & (1 << 128) - 1
        assert word & unused == 0
        assert encoding.decode((word | unused).to_bytes(16, "little")) == instruction
    table = data.draw(st.lists(uops(config), max_size=4))
    columns = encoding.decode_uops(encoding.encode_uops(table))
    assert [Uop(*row) for row in zip(*(column.tolist() for column in columns), strict=True)] == table


def test_masks_of_the_default_configuration():
    encoding = Encoding(Config())
    unused = {LOAD: [*range(58, 64)], STORE: [*range(58, 64)], GEMM: [63], ALU: [63], FINISH: [*range(7, 128)]}
    for opcode, bits in unused.items():
        assert encoding.mask(opcode) == (1 << 128) - 1 - sum(1 << bit for bit in bits)


@given(configs())
def test_fields_do_not_overlap(config):
    encoding = Encoding(config)
    for fields in (*encoding.fields.values(), encoding.uop_fields):
        size = 32 if fields is encoding.uop_fields else 128
        bits = [bit for _, low, width in fields for bit in range(low, low + width)]
        assert len(bits) == len(set(bits)) and max(bits) < size
        assert all(low // 64 == (low + width - 1) // 64 for _, low, width in fields)


@given(st.binary(min_size=16, max_size=16))
@settings(max_examples=200)
def test_any_bytes_decode_or_are_refused(data):
    encoding = Encoding(Config())
    try:
        instruction = encoding.decode(data)
    except EncodingError:
        return
    assert encoding.decode(encoding.encode(instruction)) == instruction


def test_default_configuration():
    config = Config()
    assert [config.depth(memory) for memory in Memory] == [8192, 1024, 2048, 2048, 2048, 2048]
    assert [config.element_bytes(memory) for memory in Memory] == [4, 256, 16, 64, 16, 16]
    assert (config.batch, config.block) == (1, 16)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"log_inp_width": 2}, "int8 operands"),
        ({"log_batch": -1}, "log_batch from 0 to 12, found -1"),
        ({"log_block": 13}, "log_block from 0 to 12, found 13"),
        ({"log_acc_buff": 100_000}, "log_acc_buff from 0 to 28, found 100000"),
        ({"log_wgt_buff": 1 << 100_000}, "log_wgt_buff from 0 to 28, found a number of 100001 bits"),
        ({"bus_bytes": 0}, "bus_bytes from 1 to 128, found 0"),
        ({"bus_bytes": 256}, "bus_bytes from 1 to 128, found 256"),
        ({"burst_beats": 1 << 40}, "burst_beats from 1 to 256"),
        ({"bus_bytes": 12}, "powers of two"),
        ({"log_uop_buff": 2}, "UOP buffer of two"),
        ({"log_wgt_buff": 8}, "WGT buffer of two"),
        ({"log_inp_buff": 16}, "32 bits"),
        ({"log_inp_buff": 21, "log_wgt_buff": 13, "log_acc_buff": 11}, "INP buffer of at most"),
        ({"log_block": 7, "log_wgt_buff": 18}, "WGT elements of at most a page"),
        ({"log_wgt_buff": 9, "log_inp_buff": 17, "log_acc_buff": 20}, "second half"),
        ({"log_uop_buff": 16}, "first half"),
    ],
)
def test_illegal_configurations(changes, expected):
    with pytest.raises(TargetError, match=expected):
        Config(**changes)


@pytest.mark.parametrize(
    "instruction",
    [
        Load(Memory.OUT),
        Load(Memory.INP, sram_base=1 << 16),
        Load(Memory.INP, y_pad_0=16),
        Store(dram_base=-1),
        Gemm(1 << 13, 0),
        Gemm(0, 1, wgt_factors=(1 << 10, 0)),
        Alu(AluOp.ADD, 0, 1, imm=0x8000),
    ],
)
def test_values_beyond_their_fields_are_refused(instruction):
    with pytest.raises(EncodingError, match="expected"):
        Encoding(Config()).encode(instruction)


def test_micro_ops_beyond_their_fields_are_refused():
    for uop in (Uop(2048), Uop(0, -1), Uop(0, 0, 1024)):
        with pytest.raises(EncodingError, match="of micro-ops"):
            Encoding(Config()).encode_uops([uop])


@pytest.mark.parametrize("data", ["05", "00" * 15, "04" + 12 * "00" + "50" + 2 * "00", "0003" + 14 * "00", "0002" + 14 * "00"])
def test_bytes_that_are_no_instruction(data):
    with pytest.raises(EncodingError, match="expected"):
        Encoding(Config()).decode(bytes.fromhex(data))
