"""Time limits of cases and of the suite's processes, with the place where the time was spent.

A signal interrupts what Python waits for, such as a lock, a sleep or another process. It does not interrupt a call of a driver that
does not return; the watchdog ends the process then.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import re
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from inlaid_conformance.origin import LIBRARIES

CASE_LIMIT = 600
"""Default time limit of a case."""
GRACE = 15
"""Seconds after its limit in which a case or process has to stop by itself."""
EXIT = 60
"""Seconds in which a process has to exit after its last case."""
REPEAT = 1
"""Seconds after which a case that has caught the interruption is interrupted again."""
RUNNER = "inlaid_conformance.suite"
"""Module that runs cases: frames outside of it are no part of a case."""

_DURATION = re.compile(r"Timeout \((?P<time>[\d:.]+)\)!")
_PLACE = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class TimedOut(BaseException):
    """Raised inside a case that exceeds its time limit. It is no `Exception`, so that plugins that catch those let it pass."""


@contextmanager
def limited(name: str, seconds: float, log: int | None = None) -> Iterator[None]:
    """Limit the time of the calling thread. Raises `TimedOut` in it, with the place that it has reached in the plugin. With a file
    descriptor `log`, a call that does not return ends the process, which first writes `name` and a traceback there. There is no
    limit on systems without interval timers, in other threads than the main one, or if another timer is set."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
        or signal.getitimer(signal.ITIMER_REAL)[0]
    ):
        yield
        return

    others = {*sys._current_frames()}

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise TimedOut(f"it took more than {seconds:g} s, {_current_place(frame, others)}")

    handler = signal.signal(signal.SIGALRM, interrupt)
    # The watchdog, which also ends a call that holds Python's lock, does not print names.
    text = f"\n{name}: it took more than {seconds:g} s, in a call that does not return; this ends the process\n"
    notice = threading.Timer(seconds + GRACE / 2, lambda: log is None or os.write(log, text.encode()))
    notice.daemon = True
    if log is not None:
        notice.start()
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=log)
    signal.setitimer(signal.ITIMER_REAL, seconds, REPEAT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        notice.cancel()
        if log is not None:
            faulthandler.cancel_dump_traceback_later()


def end_after(seconds: float) -> None:
    """End this process after some seconds, with a traceback on standard error."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def describe_end(errors: str) -> str | None:
    """Describe the time and place at which the watchdog has ended a process, from its standard error; None if it has not. The place
    is the innermost call outside the standard library, in the main thread, which is listed last, if that has such a call."""
    match = _DURATION.search(errors)
    if match is None:
        return None
    threads = reversed(errors[match.end() :].split("(most recent call first)"))
    calls = [(Path(call["file"]), int(call["line"]), call["function"]) for thread in threads for call in _PLACE.finditer(thread)]
    library = Path(sysconfig.get_paths()["stdlib"])
    calls_outside = [call for call in calls if not call[0].is_relative_to(library) or "site-packages" in call[0].parts]
    place = f", {_described(*calls_outside[0])}" if calls_outside else ""
    return f"it took more than {match['time']}{place}"


def _current_place(frame: FrameType | None, others: Collection[int]) -> str:
    """Describe where a case is, in the plugin if possible: in the thread of `frame`, else in a thread that is not in `others`."""
    threads = [top for number, top in sys._current_frames().items() if number not in others]
    stacks = [[item for item, _ in traceback.walk_stack(top)] for top in (frame, *threads) if top is not None]
    case_stacks = [list(itertools.takewhile(lambda item: item.f_globals.get("__name__") != RUNNER, stack)) for stack in stacks]
    frames = [item for stack in case_stacks for item in stack]
    plugin_frames = [item for item in frames if not _is_of(item, LIBRARIES)]
    package_frames = [item for item in frames if not _is_of(item, sys.stdlib_module_names)]
    (innermost, *_) = (*plugin_frames, *package_frames, *frames)
    return _described(Path(innermost.f_code.co_filename), innermost.f_lineno, innermost.f_code.co_qualname)


def _is_of(frame: FrameType, packages: Collection[str]) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages


def _described(file: Path, line: int, function: str) -> str:
    return f"in {function} ({'/'.join(file.parts[-2:])}, line {line})"
