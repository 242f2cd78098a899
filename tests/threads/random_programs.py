"""Check a kernel printer on random programs of every kind of statement."""

from __future__ import annotations

import contextlib

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.unit.schedule.test_random_schedules import PROGRAMS, one_step
from tests.unit.tensor import fork_join
from tests.unit.tensor.strategies import NARROW, NATIVE, make_inputs, programs

from inlaid.lowering.kernels.finish import finish
from inlaid.plugins import Capabilities, MemoryScope, Threads
from inlaid.tensor import ir
from inlaid.tensor.analysis.memory_scopes import places
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.launches import split_launches
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import ScheduleError

from .printed import SCOPES, Check

SLOW = list(HealthCheck)
OTHER = MemoryScope("vta.inp", "thread", 1 << 10)
ABLE = (
    Capabilities((), SCOPES, threads=Threads(), stack_bytes=0, device_memory=True),
    Capabilities((), SCOPES, threads=Threads(1, 1), vector_bits=256, stack_bytes=0, device_memory=True),
)


def check_phases(check: Check) -> None:
    """Check programs whose threads share memory."""

    @settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
    @given(st.lists(fork_join.programs(), min_size=8, max_size=8))
    def run(candidates):
        safe = []
        for program in candidates:
            offsets = places(program, fork_join.SHARED)
            if not fork_join.races(to_spmd(program, SCOPES, offsets), offsets):
                safe.append(program)
        assume(safe)
        check(safe, [[np.arange(8, dtype=np.int32) * 7]] * len(safe), SCOPES)

    run()


def check_statements(check: Check) -> None:
    """Check programs of any statements, on elements of every width."""

    @settings(deadline=None, max_examples=2, suppress_health_check=SLOW)
    @given(st.lists(programs(NATIVE + NARROW), min_size=10, max_size=10), st.data())
    def run(generated_programs, data):
        finished_programs, arrays = [], []
        for program in generated_programs:
            with contextlib.suppress(ScheduleError):
                finished_programs.append(finish(program))
                arrays.append(data.draw(st.composite(make_inputs)(program)))
        check(finished_programs, arrays, (*SCOPES, OTHER))

    run()


def check_schedules(check: Check) -> None:
    """Check randomly scheduled programs, with vectorized loops of any extent."""

    @settings(deadline=None, max_examples=3, suppress_health_check=SLOW)
    @given(st.data())
    def run(data):
        scheduled_programs, arrays = [], []
        size = data.draw(st.integers(1, 9))
        for _ in range(12):
            make, dtype_name = (
                data.draw(st.sampled_from(PROGRAMS)),
                data.draw(st.sampled_from(["int32", "float32", "int8", "int16", "float64"])),
            )
            schedule = Schedule(make(size, dtype_name))
            for _ in range(data.draw(st.integers(1, 8))):
                with contextlib.suppress(ScheduleError):
                    one_step(schedule, data)
            for lanes in data.draw(st.lists(st.sampled_from([2, 4, 5, 8, 16]), max_size=2)):
                with contextlib.suppress(ScheduleError, IndexError):
                    _, inner = schedule.split(schedule.loops(data.draw(st.sampled_from(schedule.blocks)))[-1], (None, lanes))
                    schedule.vectorize(inner)
            with contextlib.suppress(ScheduleError):
                program = finish(schedule.program, able=data.draw(st.sampled_from(ABLE)))
                if any(isinstance(stmt, ir.Intrinsic) for stmt in ir.walk_stmts(program.body)):
                    continue
                split_launches(program, SCOPES)
                scheduled_programs.append(program)
                rng = np.random.default_rng(0)
                shapes = [
                    tuple(arith.evaluate(arith.wrap(dim), {SizeVar("n", 1): size}) for dim in item.shape) for item in program.inputs
                ]
                arrays.append(
                    [
                        rng.integers(-4, 5, shape).astype(item.dtype.numpy)
                        for shape, item in zip(shapes, program.inputs, strict=True)
                    ]
                )
        assume(scheduled_programs)
        check(scheduled_programs, arrays, SCOPES)

    run()
