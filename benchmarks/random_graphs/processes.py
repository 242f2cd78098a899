"""Runs work in processes of their own, so that one that dies or hangs is found, and nothing else fails.

Limits are of processor time, since that does not depend on what else the machine does. A process that sleeps forever is ended after
`PATIENCE` times as long.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

PATIENCE = 10

K = TypeVar("K")
R = TypeVar("R")


@dataclass(frozen=True)
class Ended(Generic[R]):
    """How a process ended: with a result; or with a `problem`, "crash" or "slow", and its description."""

    result: R | None = None
    problem: str = ""
    reason: str = ""
    seconds: float = 0.0


@dataclass
class _Started(Generic[K]):
    key: K
    process: BaseProcess
    since: float


def each(keys: Iterable[K], work: Callable[[K], R], jobs: int, limit: float) -> Iterator[tuple[K, Ended[R]]]:
    """Run `work(key)` for each key, `jobs` at a time, each in a new process for at most `limit` seconds of processor time. Yields
    in the order in which the processes end."""
    context = multiprocessing.get_context("fork")
    waiting, running = iter(keys), dict[Connection, _Started[K]]()
    more = True
    while more or running:
        while more and len(running) < jobs:
            try:
                key = next(waiting)
            except StopIteration:
                more = False
                break
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(sender, work, key, limit))
            process.start()
            sender.close()
            running[receiver] = _Started(key, process, time.monotonic())
        if not running:
            continue
        latest = min(started.since for started in running.values()) + PATIENCE * limit
        arrivals = wait(list(running), max(latest - time.monotonic(), 0.0))
        for receiver in list(running):
            started = running[receiver]
            seconds = time.monotonic() - started.since
            if receiver in arrivals:
                yield started.key, _ended(receiver, started.process, seconds)
            elif seconds > PATIENCE * limit:
                yield started.key, Ended(None, "slow", f"gave no answer for {seconds:.0f} s", seconds)
            else:
                continue
            started.process.kill()
            started.process.join()
            receiver.close()
            del running[receiver]


def alone(work: Callable[[], R], limit: float) -> Ended[R]:
    """Run one piece of work in a new process."""
    ((_, ended),) = each([0], lambda key: work(), 1, limit)
    return ended


def _ended(receiver: Connection, process: BaseProcess, seconds: float) -> Ended[R]:
    try:
        return Ended(receiver.recv(), seconds=seconds)
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return Ended(None, "slow", "took too much processor time", seconds)
        return Ended(None, "crash", f"the process ended with code {process.exitcode}", seconds)


def _serve(connection: Connection, work: Callable[[K], R], key: K, limit: float) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
    with contextlib.closing(connection):
        connection.send(work(key))
