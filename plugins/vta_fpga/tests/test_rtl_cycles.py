"""The timing simulator counts the cycles of the RTL core, on streams and on single layers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import Instruction, Load
from inlaid_vta_fpga.simulators.timed import Timed

from .convolutions import RESNET_LAYERS, SMALL_LAYERS, Convolution
from .core_streams import STREAMS, double_buffered
from .image import Image, serial
from .open_core import open_core
from .random_streams import StreamCase, legal

TOLERANCE = 0.01
"""Relative difference of cycles; the aim is 0.03."""


def cycles_agree(image: Image, stream: list[Instruction], slack: int = 0) -> tuple[int, int]:
    """Cycles of the core and of the timing simulator, which agree; so does DRAM."""
    core, other = open_core(), copy.copy(image)
    other.dram = image.dram.copy()
    expected = other.run(Timed(strict=False), stream).cycles
    actual = image.run(core, stream).cycles
    np.testing.assert_array_equal(image.dram, other.dram)
    assert actual is not None
    assert expected is not None
    assert abs(expected - actual) <= TOLERANCE * actual + slack
    return actual, expected


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str) -> None:
    """Every instruction, alone and overlapped."""
    image = Image()
    cycles_agree(image, STREAMS[name](image))


@pytest.mark.parametrize("order", [serial, list], ids=["serial", "overlapped"])
@pytest.mark.parametrize("layer", SMALL_LAYERS.values(), ids=SMALL_LAYERS.keys())
def test_single_layers(layer: Convolution, order: Callable[[list[Instruction]], list[Instruction]]) -> None:
    """Convolutions in two threads, with and without overlap of the modules."""
    image = Image()
    actual, expected = cycles_agree(image, order(layer.stream(image)))
    print(f"rtl {actual:,} cycles, timing {expected:,}, {100 * layer.micro_ops / actual:.1f} % of GEMM's peak")


@pytest.mark.slow
@pytest.mark.parametrize("layer", RESNET_LAYERS.values(), ids=RESNET_LAYERS.keys())
def test_layers_of_resnet(layer: Convolution) -> None:
    """Prints what ADR 77 publishes: half a million cycles each."""
    cycles = {}
    for name, order in (("serial", serial), ("overlapped", list)):
        image = Image()
        cycles[name], expected = cycles_agree(image, order(layer.stream(image)))
        print(f"{name}: rtl {cycles[name]:,} cycles, timing {expected:,}, {100 * layer.micro_ops / cycles[name]:.1f} % of peak")
    assert layer.micro_ops > 0.85 * cycles["overlapped"]
    assert layer.micro_ops < 0.8 * cycles["serial"]


def test_overlap_hides_loads() -> None:
    """What the tokens are worth on the core: the same layer without and with overlap."""
    layer = SMALL_LAYERS["3x3 14x14 48-64"]
    first, second = Image(), Image()
    apart, overlapped = first.run(open_core(), serial(layer.stream(first))), second.run(open_core(), layer.stream(second))
    assert apart.cycles is not None
    assert overlapped.cycles is not None
    assert overlapped.cycles < 0.75 * apart.cycles
    assert layer.micro_ops > 0.8 * overlapped.cycles


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.integers(3, 40), st.integers(1, 4))
def test_double_buffering(tiles: int, rows: int, depth: int) -> None:
    """Modules contend for the port."""
    image = Image()
    cycles_agree(image, double_buffered(tiles, rows, depth)(image))


@settings(deadline=None, max_examples=15)
@given(legal(Config(), uops=24, portable=True))
def test_random_streams(case: StreamCase) -> None:
    """One instruction at a time, of any shape. A row that the core's zero walker passes takes a cycle of the core's."""
    fill = [Load(Memory.UOP, 0, case.prologue[0].dram_base, 1, 24, 24)]  # type: ignore[union-attr]
    rows = sum(load.y_size for load in case.body if isinstance(load, Load))
    core, other = open_core(), copy.copy(case.image)
    other.dram = case.image.dram.copy()
    stream = serial([*case.prologue, *fill, *case.body])
    expected, actual = other.run(Timed(strict=False), stream).cycles, case.image.run(core, stream).cycles
    assert expected is not None
    assert actual is not None
    assert abs(expected - actual) <= rows + 1
