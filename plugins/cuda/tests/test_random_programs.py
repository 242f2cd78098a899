"""Random programs of every kind of statement as CUDA kernels on the host, with threads in every order."""

from __future__ import annotations

import pytest
from tests.threads.random_programs import check_phases, check_schedules, check_statements
from tests.unit.tensor import fork_join

from .host import check

pytestmark = pytest.mark.usefixtures("host_compiler")


def test_threads_share_memory():
    cases = [fork_join.named_case(name) for name in fork_join.NAMED]
    check([program for program, *_ in cases], [inputs for _, inputs, *_ in cases])


def test_phases():
    check_phases(check)


def test_statements():
    check_statements(check)


def test_schedules():
    check_schedules(check)
