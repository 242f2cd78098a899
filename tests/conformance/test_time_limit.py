"""Cases that do not end fail, with the place at which they wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from inlaid.plugins import OpRule
from inlaid_conformance.case import Case, Outcome
from inlaid_conformance.suite import run_case
from inlaid_conformance.time_limit import describe_end

from .played import under_test

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no interval timers")
LIMIT = 0.2
"""Seconds that a case may take here."""


def sleeps() -> None:
    """Sleep as a driver that waits for memory does, and go on after interruptions that are errors."""
    for _ in range(100):
        try:
            time.sleep(0.1)
        except Exception:
            continue


def waits_for_a_process() -> None:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(10)"], check=True)


@pytest.mark.parametrize(("wait", "place"), [(sleeps, "sleeps"), (waits_for_a_process, "waits_for_a_process")])
def test_a_case_that_waits_fails(wait: Callable[[], None], place: str) -> None:
    start = time.monotonic()
    result = run_case(under_test(OpRule("add")), Case("codegen", "waits", lambda tested: wait()), LIMIT)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith(f"it took more than {LIMIT} s, in ")
    assert f"{place} (conformance/test_time_limit.py, line " in result.reason
    assert time.monotonic() - start < 5
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_case_that_waits_for_a_thread_names_the_place_of_the_thread() -> None:
    def waits() -> None:
        threading.Event().wait(10)

    namespace: dict[str, Any] = {"__name__": "inlaid_conformance.levels.joined", "threading": threading, "work": waits}
    exec(
        "def check(tested):\n    thread = threading.Thread(target=work, daemon=True)\n    thread.start(); thread.join()", namespace
    )
    result = run_case(under_test(OpRule("add")), Case("codegen", "joins", namespace["check"]), LIMIT)
    assert "waits (conformance/test_time_limit.py, line " in result.reason


def test_a_case_in_another_thread_has_no_limit() -> None:
    results: list[Any] = []
    case = Case("codegen", "sleeps", lambda tested: time.sleep(2 * LIMIT))
    thread = threading.Thread(target=lambda: results.append(run_case(under_test(OpRule("add")), case, LIMIT)))
    thread.start()
    thread.join()
    assert results[0].outcome is Outcome.PASSED


def test_the_timer_of_others_stays() -> None:
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        case = Case("codegen", "sleeps", lambda tested: time.sleep(2 * LIMIT))
        assert run_case(under_test(OpRule("add")), case, LIMIT).outcome is Outcome.PASSED
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("collections.deque(itertools.repeat(0), maxlen=0)", False),
        ("lock(mutex); lock(mutex)", True),
    ],
)
def test_the_watchdog_ends_a_call_that_does_not_return(call: str, named: bool) -> None:
    """The first call holds Python's lock, so that it is not named."""
    code = (
        "import collections, ctypes, itertools; from inlaid_conformance import time_limit\n"
        "mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock; time_limit.GRACE = 1\n"
        f"def waits(): {call}\n"
        f"with time_limit.limited('devices/waits', {LIMIT}, 2): waits()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert process.returncode == 1
    assert ("devices/waits: it took more than 0.2 s, in a call that does not return" in process.stderr) == named
    text = describe_end(process.stderr)
    assert text is not None and text.startswith("it took more than 0:00:01.2") and "waits (<string>, line 3)" in text


def test_other_ends_are_not_of_the_watchdog() -> None:
    assert describe_end('Traceback (most recent call last):\n  File "a.py", line 2, in f\nValueError: Timeout') is None
