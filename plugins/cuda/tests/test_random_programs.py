"""Random programs as CUDA kernels: NVRTC compiles them, and the host runs them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.kernels.random_programs import OTHER, phases, schedules, statements, vectorised
from tests.kernels.regions import SCOPES
from tests.unit.tensor import fork_join
from tests.unit.tensor.strategies import NARROW

from .emulated import check

SLOW = list(HealthCheck)
pytestmark = pytest.mark.usefixtures("host_compiler")


def test_threads_share_memory():
    found = [fork_join.inputs_of(name) for name in fork_join.NAMED]
    compiled = check([program for program, *_ in found], [inputs for _, inputs, *_ in found])
    assert "__syncthreads()" in compiled.source and "__shared__ float sa[32]" in compiled.source


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(phases())
def test_phases(case):
    check(*case)


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(statements())
def test_statements(case):
    check(*case, (*SCOPES, OTHER))


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(schedules())
def test_schedules(case):
    check(*case)


@settings(deadline=None, max_examples=4, suppress_health_check=SLOW)
@given(vectorised())
def test_lanes(case):
    check(*case)


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(vectorised(6, (*NARROW, "float32", "bool", "int32", "int64")))
def test_lanes_of_narrow_types(case):
    check(*case)
