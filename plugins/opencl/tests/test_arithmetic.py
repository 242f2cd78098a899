"""Arithmetic on every element type, scalar and in lanes, on OpenCL."""

from __future__ import annotations

import pytest
from tests.threads.arithmetic import (
    LANES,
    check_arithmetic,
    check_functions,
    check_integers_to_narrow_types,
    check_narrow_types,
)
from tests.threads.lanes import check_lanes
from tests.unit.tensor.strategies import NARROW, NATIVE

from .pocl import Compiled, check, native_types


@pytest.mark.parametrize("lanes", LANES)
def test_arithmetic(lanes):
    check_arithmetic(check, lanes, native_types())


@pytest.mark.parametrize("lanes", LANES)
def test_narrow_types(lanes):
    check_narrow_types(check, lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(dtype, lanes):
    if dtype not in native_types():
        pytest.skip("the device lacks float64")
    check_functions(Compiled, dtype, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_arithmetic_without_float64(lanes):
    check_arithmetic(check, lanes, ("float64", "float32", "int64", "uint64", "uint8", "bool"), float64=False)


@pytest.mark.parametrize("lanes", LANES)
def test_integers_to_narrow_types_without_float64(lanes):
    check_integers_to_narrow_types(check, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_functions_without_float64(lanes):
    check_functions(Compiled, "float32", lanes, float64=False)


def test_lanes():
    check_lanes(check, NATIVE, examples=6, count=10)


def test_lanes_of_narrow_types():
    check_lanes(check, (*NARROW, "float32", "bool", "int32", "int64"), examples=2, count=6)
