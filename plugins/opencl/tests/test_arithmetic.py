"""Every operator and conversion on every element type, scalar and in lanes, bit for bit what the interpreter computes."""

from __future__ import annotations

import pytest
from tests.kernels.arithmetic import arithmetic, check_functions, narrow_types

from .pocl import Compiled, check

LANES = [1, 8]


@pytest.mark.parametrize("lanes", LANES)
def test_arithmetic(lanes):
    check(*arithmetic(lanes))


@pytest.mark.parametrize("lanes", LANES)
def test_narrow_types(lanes):
    check(*narrow_types(lanes))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("of", ["float32", "float64"])
def test_functions(of, lanes):
    check_functions(of, lanes, lambda region: Compiled(region).run)
