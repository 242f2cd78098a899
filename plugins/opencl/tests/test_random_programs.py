"""Random programs as OpenCL kernels."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from tests.kernels.random_programs import OTHER, phases, schedules, statements, vectorised
from tests.kernels.regions import SCOPES
from tests.unit.tensor import fork_join
from tests.unit.tensor.strategies import NARROW

from .pocl import check

SLOW = list(HealthCheck)


def test_threads_share_memory():
    found = [fork_join.inputs_of(name) for name in fork_join.NAMED]
    compiled = check([program for program, *_ in found], [inputs for _, inputs, *_ in found])
    assert "barrier" in compiled.source and "__local float sa[32]" in compiled.source


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(phases())
def test_phases(case):
    check(*case)


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(statements())
def test_statements(case):
    check(*case, (*SCOPES, OTHER))


@settings(deadline=None, max_examples=3, suppress_health_check=SLOW)
@given(schedules())
def test_schedules(case):
    check(*case)


@settings(deadline=None, max_examples=6, suppress_health_check=SLOW)
@given(vectorised())
def test_lanes(case):
    check(*case)


@settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
@given(vectorised(6, (*NARROW, "float32", "bool", "int32", "int64")))
def test_lanes_of_narrow_types(case):
    check(*case)
