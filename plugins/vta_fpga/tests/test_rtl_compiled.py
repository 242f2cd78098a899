"""Compiled regions on the RTL core: the same DRAM and cycles as on the simulators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_vta_fpga.simulators.timed import Timed

from .open_core import open_core
from .scheduled import Region, Shape, Tiling, scheduled
from .test_rtl_cycles import TOLERANCE
from .test_stream import arrays, convolutions, two_layers


def agree(region: Region, **options: object) -> None:
    """Lower a region; run it on the core and on the timing simulator."""
    stream = region.lower(**options)
    dram, start = region.image(stream, arrays(region, range(5) if len(region.calls) > 1 else range(2)))
    other = dram.copy()
    actual = open_core().run(dram, start, len(stream.instructions))
    expected = Timed(region.config).run(other, start, len(stream.instructions))
    np.testing.assert_array_equal(dram, other)
    assert (actual.gemm_uops, actual.loaded, actual.stored) == (expected.gemm_uops, expected.loaded, expected.stored)
    assert actual.cycles is not None
    assert expected.cycles is not None
    assert abs(actual.cycles - expected.cycles) <= TOLERANCE * actual.cycles


@settings(deadline=None, max_examples=15)
@given(convolutions(), st.integers(1, 3), st.booleans())
def test_convolutions(case: tuple[Shape, Tiling], slots: int, serial: bool) -> None:
    """Tiles, strides, padding, virtual threads."""
    shape, tiling = case
    agree(Region([(scheduled(shape, tiling), (0, 1, 2))]), slots=slots, serial=serial)


@pytest.mark.parametrize("serial", [False, True])
def test_two_layers(serial: bool) -> None:
    """Loads of the second layer overlap the end of the first."""
    agree(two_layers()[0], serial=serial)
