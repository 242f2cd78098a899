"""Random programs of every kind of statement: loops, threads that share memory, and what schedules make."""

from __future__ import annotations

from tests.threads.printed import region_of
from tests.threads.random_programs import check_phases, check_schedules, check_statements
from tests.unit.tensor import fork_join

from .pocl import Compiled, check


def test_threads_share_memory():
    found = [fork_join.inputs_of(name) for name in fork_join.NAMED]
    programs = [program for program, *_ in found]
    source = Compiled(region_of(programs)).source
    assert "barrier" in source and "__local float sa[32]" in source
    check(programs, [inputs for _, inputs, *_ in found])


def test_phases():
    check_phases(check)


def test_statements():
    check_statements(check)


def test_schedules():
    check_schedules(check)
