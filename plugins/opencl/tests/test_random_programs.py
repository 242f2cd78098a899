"""Random programs of every kind of statement: loops, threads that share memory, and what schedules make."""

from __future__ import annotations

from tests.threads.printed import make_region
from tests.threads.random_programs import check_phases, check_schedules, check_statements
from tests.unit.tensor import fork_join

from .pocl import Compiled, check


def test_threads_share_memory():
    cases = [fork_join.named_case(name) for name in fork_join.NAMED]
    programs = [program for program, *_ in cases]
    source = Compiled(make_region(programs)).source
    assert "barrier" in source and "__local float sa[32]" in source
    check(programs, [inputs for _, inputs, *_ in cases])


def test_phases():
    check_phases(check)


def test_statements():
    check_statements(check)


def test_schedules():
    check_schedules(check)
