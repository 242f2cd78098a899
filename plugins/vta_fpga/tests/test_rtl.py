"""The RTL core gives the same DRAM as the functional simulator, bit for bit."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Instruction, Load, Uop
from inlaid_vta_fpga.simulators.functional import Functional

from .core_streams import STREAMS, double_buffered
from .image import Image, serial
from .open_core import open_core
from .random_streams import StreamCase, legal


def agree(image: Image, stream: list[Instruction], strict: bool = True) -> None:
    """Run a stream on both; compare all of DRAM and the counters."""
    core, reference = open_core(), copy.copy(image)
    reference.dram = image.dram.copy()
    expected = reference.run(Functional(strict=strict), stream)
    actual = image.run(core, stream)
    np.testing.assert_array_equal(image.dram, reference.dram)
    assert actual.cycles is not None
    assert (actual.gemm_uops, actual.reset_uops, actual.alu_uops) == (expected.gemm_uops, expected.reset_uops, expected.alu_uops)
    assert (actual.loaded, actual.stored) == (expected.loaded, expected.stored)


@pytest.mark.parametrize("name", STREAMS)
def test_hand_written_streams(name: str) -> None:
    """Loads with padding, both loops, resets, each ALU operation and form, strided stores, token patterns."""
    image = Image()
    agree(image, STREAMS[name](image), strict=name not in ("dependent_alu", "token_bursts"))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(3, 40), st.integers(1, 4))
def test_double_buffering(tiles: int, rows: int, depth: int) -> None:
    """Load, compute and store overlap; each tile has its own half of the buffers."""
    image = Image()
    agree(image, double_buffered(tiles, rows, depth)(image))


@settings(deadline=None, max_examples=30)
@given(legal(Config(), uops=24, portable=True))
def test_random_streams(case: StreamCase) -> None:
    """Every SRAM element is written before the body runs; micro-ops in any order, repeated accumulators included."""
    touch = case.image.uops(Uop(0, 0))
    touch_instructions = [Load(Memory.UOP, 2047, touch, 1, 1, 1), Alu(AluOp.ADD, 2047, 2048, 32, 64, (64, 1), (64, 1), 0)]
    agree(case.image, serial([*case.prologue, *touch_instructions, *case.body]), strict=False)
