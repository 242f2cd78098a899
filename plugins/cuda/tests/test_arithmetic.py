"""Every operator and conversion on every element type, scalar and in lanes, bit for bit what the interpreter computes."""

from __future__ import annotations

import pytest
from tests.kernels.arithmetic import arithmetic, check_functions, narrow_types

from .emulated import Compiled, check

LANES = [1, 8]
pytestmark = pytest.mark.usefixtures("host_compiler")


@pytest.mark.parametrize("lanes", LANES)
def test_arithmetic(lanes):
    check(*arithmetic(lanes), arch=None)


@pytest.mark.parametrize("lanes", LANES)
def test_narrow_types(lanes):
    check(*narrow_types(lanes), arch=None)


@pytest.mark.parametrize("lanes", LANES)
def test_nvrtc_compiles_every_operation(lanes):
    """Of as many elements as lanes, since loops are unrolled. Only sm_80 and later convert bfloat16."""
    check(*arithmetic(lanes, lanes))
    for arch in ("sm_75", "sm_90a"):
        check(*narrow_types(lanes, lanes), arch=arch)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("of", ["float32", "float64"])
def test_functions(of, lanes):
    check_functions(of, lanes, lambda region: Compiled(region).run)
