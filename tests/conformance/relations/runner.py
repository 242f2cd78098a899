"""Runs workers, and attributes the end of a worker to the case that it ran."""

from __future__ import annotations

import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .oracle import stated
from .programs import Choice, chosen
from .sizes import cases
from .worker import LAYOUTS

SECONDS = 600
"""Time after which a worker that has printed nothing is taken to hang."""
MAX_WORKERS = 40
"""Number of workers for one part of the programs."""
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that no fault of compiled code raises: a worker that they end says nothing about its case."""
DEATHS = 3
"""Number of cases of a program that may end or hang workers before the program is left out."""


@dataclass
class Report:
    """What the programs of one way did. `unsupported` counts the reasons for which programs were not compiled, by operator."""

    way: str
    unavailable: str = ""
    programs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    operators: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    unsupported: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: dict[str, Any]) -> None:
        """Add the outcome of a program."""
        self.problems += outcome["problems"]
        self.seconds[outcome["program"]] += outcome["seconds"]
        if outcome["unsupported"]:
            self.unsupported[outcome["operator"], outcome["unsupported"]] += 1
            return
        self.programs += 1
        self.operators.add(outcome["operator"])
        self.counts.update(outcome["counts"])

    def merge(self, other: Report) -> None:
        """Add the outcomes of another part of the programs."""
        self.unavailable = self.unavailable or other.unavailable
        self.programs += other.programs
        self.counts.update(other.counts)
        self.operators |= other.operators
        self.problems += other.problems
        self.unsupported.update(other.unsupported)


def run_way(way: str, choice: Choice, folder: Path, source: Path | None = None) -> Report:
    """Run programs in one way. A worker that ends or hangs is replaced by another, which continues after the case at fault.
    Packages are imported from the folder `source`, if given, in place of the installed ones."""
    report = Report(way)
    progress = folder / f"progress-{way}-{choice.part}"
    progress.write_bytes(bytes(24))
    request: dict[str, Any] = {
        "way": way, "choice": asdict(choice), "first": 0, "skip": [], "folder": str(folder), "progress": str(progress),
    }  # fmt: skip
    paths = [*([source] if source else []), Path(__file__).parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    for _ in range(MAX_WORKERS):
        ended = _run_worker(request, environment, report)
        if not ended:
            return report
        number, case, layout = struct.unpack("3q", progress.read_bytes())
        report.problems.append(f"{_described(choice, number, case)}: {ended} (guard {LAYOUTS[layout]})")
        if number != request["first"]:
            request |= {"first": number, "skip": []}
        request["skip"] += [(case, 0), (case, 1)]
        if case < 0 or len(request["skip"]) >= 2 * DEATHS:
            request |= {"first": number + 1, "skip": []}
    report.problems.append(f"{way}: {MAX_WORKERS} workers have ended or hung, the remaining programs are not run")
    return report


def _run_worker(request: dict[str, Any], environment: dict[str, str], report: Report) -> str:
    """Run a worker. Returns how it ended before it was done, "" if it was done."""
    command = [sys.executable, "-m", "relations.worker", json.dumps(request)]
    rung: list[bool] = []

    def ring() -> None:
        rung.append(True)
        process.kill()

    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        with process:
            assert process.stdout is not None
            while True:
                alarm = threading.Timer(SECONDS, ring)
                alarm.start()
                line = process.stdout.readline()
                alarm.cancel()
                if not line:
                    break
                message = json.loads(line)
                if "done" in message or "unavailable" in message:
                    report.unavailable = message.get("unavailable", "")
                    return ""
                report.add(message)
        if rung:
            return f"hangs for {SECONDS} s"
        if -process.returncode in _FROM_OUTSIDE:
            raise RuntimeError(f"a worker was ended from outside, by {signal.Signals(-process.returncode).name}")
        if process.returncode < 0:
            return f"ends by {signal.Signals(-process.returncode).name}"
        errors.seek(0)
        return f"ends with status {process.returncode}: {errors.read()[-2000:]}"


def _described(choice: Choice, number: int, case: int) -> str:
    """Name a program and a case by their numbers."""
    program = next(program for program_number, program in chosen(choice) if program_number == number)
    if case < 0:
        return f"{program.name}, compiling"
    case_ = next(itertools.islice(cases(program, stated(program).conditions), case, None))
    return f"{program.name} {case_.name}"
