"""The functional simulator against plain loops, and its reaction to illegal streams."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.errors import KernelFault
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Instruction, Load, Store, Uop
from inlaid_vta_fpga.simulators.core import Core
from inlaid_vta_fpga.simulators.elementwise import batches
from inlaid_vta_fpga.simulators.functional import Functional
from inlaid_vta_fpga.simulators.products import Plans

from .image import Image, serial
from .oracle import Oracle
from .random_streams import OUTPUT, SMALL, StreamCase, hostile, legal


@settings(deadline=None, max_examples=120)
@given(legal())
def test_every_instruction_equals_plain_loops(case: StreamCase) -> None:
    """ACC, OUT and DRAM after each instruction, bit for bit; INT32 wrap, padding, strides and dependent micro-ops included."""
    config = case.image.config
    oracle = Oracle(config, case.image.dram.copy())
    core = Core(Encoding(config), Plans(config.block, config.batch), case.image.dram, strict=False, limit=1 << 20)
    for number, instruction in enumerate([*case.prologue, *case.body]):
        oracle.run([instruction])
        core.execute(number, instruction)
        np.testing.assert_array_equal(core.acc, np.array(oracle.sram[Memory.ACC]))
        np.testing.assert_array_equal(core.out, np.array(oracle.sram[Memory.OUT]).astype(np.int8))
        np.testing.assert_array_equal(case.image.dram, oracle.dram)


@settings(deadline=None, max_examples=40)
@given(legal())
def test_serial_streams_equal_plain_loops(case: StreamCase) -> None:
    """Encoding, token queues and module order included."""
    oracle = Oracle(case.image.config, case.image.dram.copy())
    stream = serial([*case.prologue, *case.body])
    oracle.run(stream)
    case.image.run(Functional(case.image.config, strict=False), stream)
    size = case.image.config.element_bytes(Memory.OUT)
    output_slice = slice(case.output * size, (case.output + OUTPUT) * size)
    np.testing.assert_array_equal(case.image.dram[output_slice], oracle.dram[output_slice])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_batches_keep_the_order_of_dependent_micro_ops(data: st.DataObject) -> None:
    """No micro-op of a batch reads what an earlier one of it wrote, and the batches cover all micro-ops in order."""
    number = data.draw(st.integers(1, 30))
    indices = st.lists(st.integers(0, 12), min_size=number, max_size=number).map(lambda values: np.array(values, np.int64))
    dst, src = data.draw(indices), data.draw(st.one_of(st.none(), indices))
    slices = list(batches(dst, src))
    assert [position for batch in slices for position in range(batch.start, batch.stop)] == list(range(number))
    for batch in slices:
        for position in range(batch.start, batch.stop):
            earlier = set(dst[batch.start : position].tolist())
            assert dst[position] not in earlier
            assert src is None or src[position] not in earlier


@pytest.mark.parametrize(
    "config",
    [Config(), SMALL, Config(log_block=3, log_inp_buff=14, log_wgt_buff=14, log_acc_buff=16), Config(log_block=5, log_inp_buff=14)],
)
def test_a_deep_product_is_exact(config: Config) -> None:
    """-128 * -128 over a depth beyond 2^10 lanes: partial sums exceed 2^24 unless the product is cut."""
    image = Image(config)
    depth = min(config.depth(Memory.INP), 2048 // config.block, config.depth(Memory.UOP))
    minus = np.full(depth * config.element_bytes(Memory.INP), -128, np.int8)
    inp = image.base(Memory.INP, minus)
    wgt = image.base(Memory.WGT, np.full(config.element_bytes(Memory.WGT), -128, np.int8))
    acc = image.base(Memory.ACC, np.full(config.element_bytes(Memory.ACC) // 4, 2**31 - 1, np.int32))
    uops = image.uops(Uop(0, 0, 0))
    core = Core(Encoding(config), Plans(config.block, config.batch), image.dram, strict=False, limit=1 << 20)
    stream: list[Instruction] = [
        Load(Memory.INP, 0, inp, 1, depth, depth),
        Load(Memory.WGT, 0, wgt, 1, 1, 1),
        Load(Memory.ACC, 0, acc, 1, 1, 1),
        Load(Memory.UOP, 0, uops, 1, 1, 1),
        Gemm(0, 1, depth, 1, (0, 0), (1, 0)),
    ]
    for number, instruction in enumerate(stream):
        core.execute(number, instruction)
    expected = (2**31 - 1 + depth * config.block * 2**14 + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(core.acc[0], expected)


def _convolution(image: Image, rows: int = 4) -> tuple[list[Instruction], int]:
    """A legal stream: a product of `rows` INP elements with one weight block, an ALU step, and a store."""
    random = np.random.default_rng(5)
    inp = image.base(Memory.INP, random.integers(-8, 8, (rows, 16), np.int8))
    wgt = image.base(Memory.WGT, random.integers(-8, 8, (16, 16), np.int8))
    uops = image.uops(Uop(0, 0, 0))
    out = image.base(Memory.OUT, np.zeros((rows, 16), np.int8))
    return [
        Load(Memory.INP, 0, inp, 1, rows, rows),
        Load(Memory.WGT, 0, wgt, 1, 1, 1, flags=Flags(push_next=True)),
        Load(Memory.UOP, 0, uops, 1, 1, 1, flags=Flags(pop_prev=True)),
        Gemm(0, 1, 1, rows, (0, 1), reset=True),
        Gemm(0, 1, 1, rows, (0, 1), (0, 1)),
        Alu(AluOp.SHR, 0, 1, 1, rows, (0, 1), (0, 1), 4, flags=Flags(push_next=True)),
        Store(0, out, 1, rows, rows, flags=Flags(pop_prev=True, push_prev=True)),
        Load(Memory.UOP, flags=Flags(pop_next=True)),
    ], out


def test_report_counts_micro_ops_and_bytes() -> None:
    """Reset counts on its own, and padding and no-ops count nothing."""
    image = Image()
    stream, out = _convolution(image)
    report = image.run(Functional(), stream)
    assert (report.cycles, report.gemm_uops, report.reset_uops, report.alu_uops, report.stored) == (None, 4, 4, 4, 64)
    assert report.loaded == {Memory.INP: 64, Memory.WGT: 256, Memory.UOP: 4}
    inp, wgt = image.dram[4096:4160].view(np.int8).reshape(4, 16), image.dram[8192:8448].view(np.int8).reshape(16, 16)
    expected = (inp.astype(np.int32) @ wgt.T.astype(np.int32)) >> 4
    np.testing.assert_array_equal(image.read(out, 4)[:, 0], expected.astype(np.int8))


def _changed(number: int, **fields: object) -> list[Instruction]:
    stream, _ = _convolution(Image())
    stream[number] = replace(stream[number], **fields)  # type: ignore[arg-type]
    return stream


@pytest.mark.parametrize(
    ("stream", "number", "message"),
    [
        (_changed(0, x_size=2049), 0, "elements of INP below 2048, found a range up to 2049"),
        (_changed(0, dram_base=255), 0, "bytes 4096 to"),
        (_changed(0, dram_base=2**32 - 1), 0, "of DRAM"),
        (_changed(0, y_size=0), 0, "y_size >= 1"),
        (_changed(0, flags=Flags(push_prev=True)), 0, "neighboring module"),
        (_changed(3, iter_in=0), 3, "loop counts >= 1"),
        (_changed(3, uop_end=0), 3, "loop counts >= 1"),
        (_changed(3, iter_out=2, dst_factors=(2047, 1)), 3, "indices of ACC below 2048, found 2050"),
        (_changed(4, src_factors=(0, 1000)), 4, "indices of INP below 2048, found 3000"),
        (_changed(4, wgt_factors=(0, 1000)), 4, "indices of WGT below 1024, found 3000"),
        (_changed(4, uop_end=9), 4, "initialized elements of UOP"),
        (_changed(4, src_factors=(0, 2)), 4, r"INP\[4\] never written"),
        (_changed(4, dst_factors=(0, 0)), 4, "a repeat"),
        (_changed(5, imm=16), 5, "shift of -16 to 15, found 16"),
        (_changed(6, x_size=5), 6, "results of GEMM or ALU in OUT"),
        (_changed(6, flags=Flags(pop_prev=True)), 7, "deadlock: instruction 7 waits for a token from store to compute"),
        (_changed(7, flags=Flags()), None, "empty token queues at FINISH, found 1 from store to compute"),
        (_changed(2, flags=Flags(pop_prev=True, pop_next=True)), 2, "deadlock"),
    ],
)
def test_illegal_streams_name_instruction_and_rule(stream: list[Instruction], number: int | None, message: str) -> None:
    """Every rule of the specification that the simulator enforces."""
    image = Image()
    _convolution(image)
    with pytest.raises(KernelFault, match=message) as caught:
        image.run(Functional(), stream)
    assert caught.value.message.startswith("VTA stream" if number is None else f"VTA instruction {number}:")


def test_a_store_after_a_reset_or_a_plain_load_is_refused() -> None:
    """OUT holds results of GEMM and ALU only."""
    image = Image()
    stream, _ = _convolution(image)
    acc = image.base(Memory.ACC, np.zeros((4, 16), np.int32))
    loaded = [*stream[:3], Load(Memory.ACC, 0, acc, 1, 4, 4, flags=Flags(push_next=True)), *stream[6:]]
    for illegal in ([*stream[:3], replace(stream[3], flags=Flags(push_next=True)), *stream[6:]], loaded):
        with pytest.raises(KernelFault, match="results of GEMM or ALU in OUT"):
            image.run(Functional(), illegal)
        image.run(Functional(strict=False), illegal)


def test_streams_are_bounded_and_end_with_finish() -> None:
    """Work beyond the limit, a missing or early FINISH, undecodable bytes, and a stream outside of DRAM are faults."""
    image = Image()
    stream, _ = _convolution(image)
    with pytest.raises(KernelFault, match="at most 2400 micro-op executions and elements"):
        image.run(Functional(limit=2400), stream)
    with pytest.raises(KernelFault, match="at most 3 instructions"):
        image.run(Functional(limit=1000), stream)
    encoding = Encoding(Config())
    for data, message in (
        (encoding.encode_program(stream), "FINISH as the last instruction"),
        (encoding.encode_program([Finish(), Finish()]), "VTA instruction 0: expected FINISH as the last"),
        (encoding.encode_program(stream) + b"\xff" * 16, "instruction 8: expected an opcode"),
    ):
        location = image.program(data)
        with pytest.raises(KernelFault, match=message):
            Functional().run(image.dram, *location)
    for address, count in ((0, 1), (4097, 1), (len(image.dram), 1), (4096, 0), (4096, 10**5)):
        with pytest.raises(KernelFault, match="aligned instructions"):
            Functional().run(image.dram, address, count)


@settings(deadline=None, max_examples=300)
@given(hostile(Config()), st.booleans())
def test_hostile_streams_end(case: tuple[np.ndarray, bytes], strict: bool) -> None:
    """Random instructions on random memory give a report or a `KernelFault`, within bounded work."""
    dram, data = case
    dram[4096 : 4096 + len(data)] = np.frombuffer(data, np.uint8)
    with suppress(KernelFault):
        Functional(strict=strict, limit=1 << 16).run(dram, 4096, len(data) // 16)
