"""The pool of threads: jobs that meet, nest, fail, follow fast upon each other, and processes that fork."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from inlaid_x86_runtime.pool import Pool, pool

BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, BODY, ctypes.c_void_p, ctypes.c_int64)


def run(workers: Pool, body: Callable[[int, int], int], extent: int) -> int:
    """Run a Python function as the body of a parallel loop."""
    return int(RUN(workers.run)(workers.state, BODY(lambda _closure, begin, end: body(begin, end)), None, extent))


class Tally:
    """A body that notes which iterations ran, and on which threads."""

    def __init__(self, fails: int = -1) -> None:
        self.fails = fails
        self.iterations: list[int] = []
        self.threads: set[int] = set()

    def __call__(self, begin: int, end: int) -> int:
        self.iterations.extend(range(begin, end))
        self.threads.add(threading.get_ident())
        return 5 if begin <= self.fails < end else 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_iteration_once(threads: int) -> None:
    for extent in (0, 1, 2, 15, 16, 17, 33, 1000):
        tally = Tally()
        assert run(pool(threads), tally, extent) == 0
        assert sorted(tally.iterations) == list(range(extent))


def test_threads_begin_with_ranges_of_their_own() -> None:
    """Of two threads that both have something to do all the time, each begins with its own half."""
    barrier = threading.Barrier(2, timeout=30)
    first: dict[int, int] = {}

    def body(begin: int, end: int) -> int:
        if threading.get_ident() not in first:
            first[threading.get_ident()] = begin
            barrier.wait()
        return 0

    assert run(pool(2), body, 100) == 0
    assert first.pop(threading.get_ident()) == 0
    assert list(first.values()) == [50]


def test_others_help() -> None:
    """While one iteration waits for another thread, that one is run by a worker."""
    barrier = threading.Barrier(2, timeout=30)

    def body(begin: int, end: int) -> int:
        if end > begin and begin < 2:
            barrier.wait()
        return 0

    for _ in range(20):
        assert run(pool(2), body, 2) == 0


def test_failures() -> None:
    """The status of a body that fails is that of the job; the rest runs, and the next job is not harmed."""
    for failing in (0, 7, 99):
        tally = Tally(failing)
        assert run(pool(2), tally, 100) == 5
        assert sorted(tally.iterations) == list(range(100))
        assert run(pool(2), Tally(), 100) == 0


def test_nested_jobs_run_alone() -> None:
    inner = []

    def body(begin: int, end: int) -> int:
        tally = Tally()
        status = run(pool(2), tally, 10)
        inner.append((sorted(tally.iterations), tally.threads == {threading.get_ident()}))
        return status

    assert run(pool(2), body, 4) == 0
    assert inner and all(item == (list(range(10)), True) for item in inner)


def test_jobs_of_several_threads() -> None:
    """A job that finds the pool busy runs alone, and none waits for another."""
    wrong: list[object] = []

    def work() -> None:
        for extent in range(200):
            tally = Tally()
            if run(pool(2), tally, extent) != 0 or sorted(tally.iterations) != list(range(extent)):
                wrong.append(extent)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_one_pool_per_size() -> None:
    pools: list[Pool] = []
    threads = [threading.Thread(target=lambda: pools.append(pool(3))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(pools) == 8 and len(set(map(id, pools))) == 1


def test_many_quick_jobs() -> None:
    workers = pool(2)
    count = [0]
    body = BODY(lambda _closure, begin, end: count.__setitem__(0, count[0] + 1) or 0)
    call = RUN(workers.run)
    for _ in range(20000):
        assert call(workers.state, body, None, 2) == 0
    assert count[0] >= 20000


def child(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False)


MODEL = """
    import numpy as np
    from inlaid import ops
    from inlaid.driver.compile import compile_module
    from inlaid.graph.ir import Module, function, var
    from inlaid_runtime.types import TensorType

    x = var("x", TensorType((512, 128), "float32"))
    executable = compile_module(Module({"main": function([x], ops.relu(ops.add(x, x)))}), ["x86:threads=2"])
    value = np.linspace(-1, 1, 512 * 128, dtype=np.float32).reshape(512, 128)
    right = np.maximum(2 * value, 0)
    def good():
        (result,) = executable.run({"x": value}).values()
        return bool(np.array_equal(result, right))
    assert good()
"""


def test_fork() -> None:
    """A forked process has no workers, and goes on alone; its parent keeps its own."""
    process = child(
        MODEL
        + """
    import os, warnings
    warnings.simplefilter("ignore")
    for _ in range(5):
        number = os.fork()
        if number == 0:
            os._exit(0 if all(good() for _ in range(20)) else 1)
        assert os.waitpid(number, 0)[1] == 0
        assert good()
    print("fine")
    """
    )
    assert process.stdout == "fine\n", process.stderr


def test_exit_right_after_a_job() -> None:
    """Workers that are about to sleep do not hinder the end of the process."""
    code = """
    import ctypes
    from inlaid_x86_runtime.pool import pool
    BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    workers = pool(4)
    body = BODY(lambda closure, begin, end: 0)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, BODY, ctypes.c_void_p, ctypes.c_int64)(workers.run)
    run(workers.state, body, None, 64)
    """
    for _ in range(5):
        process = child(code)
        assert process.returncode == 0, (process.returncode, process.stderr)


def test_executables_in_several_threads() -> None:
    process = child(
        MODEL
        + """
    import threading
    bad = []
    threads = [threading.Thread(target=lambda: bad.extend(1 for _ in range(100) if not good())) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not bad
    print("fine")
    """
    )
    assert process.stdout == "fine\n", process.stderr


def test_interrupt_between_jobs() -> None:
    """The workers take no signals that are the main thread's to handle."""

    def body(begin: int, end: int) -> int:
        os.kill(os.getpid(), signal.SIGUSR1)
        return 0

    signals: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
    try:
        assert run(pool(2), body, 4) == 0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert signals
