"""Times engines beside one another, so that a ratio of two of them means something on a machine that others use too.

Each engine lives in a process of its own. All but the one being timed are stopped, since worker threads that spin would steal its
cores. They take turns, round after round; each round starts with another one, so that none always follows the same. A ratio is
taken within a round, where both had much the same machine.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.cli import engines
from inlaid.cli.engines import MODULES, PACKAGES, Job
from inlaid.errors import CompileError, InputError
from inlaid.plugins.registry import PluginRegistry, default_registry

OWN = "inlaid"
UNFUSED = "inlaid, fusion off"
PEERS = tuple(PACKAGES)
TIME_LIMIT = 900.0
"""Seconds that an engine may take to prepare a model."""

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Comparison:
    """What to compare. `inputs` are arrays by name, in the model's order; `dims` sizes and bounds of symbolic dimensions;
    `threads` is what every engine gets; `seconds` how long each runs per round. Where there are peers, Inlaid without fusion takes
    part too if `unfused`. `precision` is one of Inlaid's, which every engine is held to."""

    model: Path
    inputs: Mapping[str, np.ndarray[Any, Any]]
    targets: tuple[str, ...]
    threads: int
    against: tuple[str, ...] = ()
    dims: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = 5
    seconds: float = 1.0
    unfused: bool = True
    precision: str = "model"


@dataclass(frozen=True)
class Timing:
    """One engine's part. `prepare_s` is what it took to compile and load, `peak_mib` the greatest resident memory of the process
    that runs the model, and `compiler_mib` of one that it started to compile, 0 where it did so itself. `rounds` are the medians of
    the rounds, in milliseconds. `difference` is the greatest difference of an output from Inlaid's, relative to its greatest
    number."""

    label: str
    version: str
    settings: str
    prepare_s: float
    peak_mib: float
    compiler_mib: float
    rounds: tuple[float, ...]
    difference: float

    @property
    def median(self) -> float:
        """Milliseconds per run."""
        return statistics.median(self.rounds)


@dataclass(frozen=True)
class Missing:
    """An engine that could not take part, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class Result:
    """All engines' parts, Inlaid's first."""

    timings: tuple[Timing, ...]
    missing: tuple[Missing, ...]

    @property
    def own(self) -> Timing:
        """Inlaid's part."""
        return self.timings[0]

    @property
    def peers(self) -> tuple[Timing, ...]:
        """The parts of the engines that are not Inlaid."""
        return tuple(item for item in self.timings if item.label in PEERS)

    @property
    def best(self) -> Timing | None:
        """The fastest peer."""
        return min(self.peers, key=lambda item: item.median, default=None)

    def ratios(self, other: Timing) -> tuple[float, ...]:
        """Inlaid's time by another's, round by round: below 1 Inlaid is faster."""
        return tuple(mine / its for mine, its in zip(self.own.rounds, other.rounds, strict=True))

    def ratio(self, other: Timing) -> float:
        """Inlaid's median by another's: between the least and the greatest of `ratios`, and as the medians say."""
        return self.own.median / other.median


def with_threads(targets: Sequence[str], threads: int | None, registry: PluginRegistry) -> tuple[tuple[str, ...], int]:
    """The targets with a number of threads each, where they have that option, and that number: the one given, or that of the
    first target that gives one, or all processors that this process may use."""
    parsed = [registry.target(text) for text in targets]
    given = [getattr(target.options, "threads", 0) for target in parsed]
    count = threads or next(filter(None, given), 0) or len(os.sched_getaffinity(0))
    changed = (
        replace(target, options=replace(target.options, threads=count)) if hasattr(target.options, "threads") else target
        for target in parsed
    )
    return tuple(map(str, changed)), count


def compare_engines(comparison: Comparison, report: Report = lambda stage, done, total: None) -> Result:
    """Prepare the model on every engine and time them in turns.

    Raises `InputError` for a peer that is not known, and `CompileError` where Inlaid itself cannot run the model.
    """
    unknown = [name for name in comparison.against if name not in PEERS]
    if unknown:
        raise InputError(f"there is no peer {unknown[0]!r}", remedy=f"the peers are {', '.join(PEERS)}")
    if comparison.against and comparison.model.suffix == ".inlaid":
        raise InputError(f"peers cannot read {comparison.model}", remedy="give the ONNX model that it was made from")
    with tempfile.TemporaryDirectory(prefix="inlaid-bench-") as folder:
        return time_in_turns(_jobs(comparison, Path(folder)), comparison.rounds, comparison.seconds, report)


def check_installed(against: Sequence[str]) -> None:
    """Raise `InputError` for a peer that is not installed, before anything is prepared."""
    for name in against:
        if not all(map(_importable, MODULES.get(name, ()))):
            raise InputError(
                f"engine {name!r} is not installed", remedy=f"pip install {PACKAGES[name]}, or leave it out of --against"
            )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of the package that it is part of
        return False


def time_in_turns(jobs: Sequence[Job], rounds: int, seconds: float, report: Report = lambda stage, done, total: None) -> Result:
    """Prepare each job in a process of its own, and time them in turns. The first is the one that the result is about.

    Raises `CompileError` where that one fails.
    """
    running: list[_Engine] = []
    try:
        return _time_in_turns(jobs, rounds, seconds, running, report)
    finally:
        for engine in running:
            engine.end()


def _time_in_turns(jobs: Sequence[Job], rounds: int, seconds: float, running: list[_Engine], report: Report) -> Result:
    missing: list[Missing] = []

    def drop(engine: _Engine, reason: str) -> None:
        if engine.job is jobs[0]:
            raise CompileError(f"Inlaid cannot run {Path(engine.job.model).name}: {reason}")
        running.remove(engine)
        engine.end()
        missing.append(Missing(engine.job.label, reason))

    for number, job in enumerate(jobs):
        report(f"prepare {job.label}", number, len(jobs))
        running.append(_Engine(job))
        if failed := running[-1].prepare():
            drop(running[-1], failed)
    for turn in range(rounds):
        order = running[turn % len(running) :] + running[: turn % len(running)]
        for number, engine in enumerate(order):
            report(f"time {engine.job.label}", turn * len(order) + number, rounds * len(order))
            if failed := engine.time(seconds):
                drop(engine, failed)
    return Result(tuple(engine.timing(running[0]) for engine in running), tuple(missing))


def _jobs(comparison: Comparison, folder: Path) -> list[Job]:
    """One per engine, its files in a folder."""
    inputs = folder / "inputs.npz"
    np.savez(inputs, *comparison.inputs.values())
    fixed = {name: size for name, size in comparison.dims.items() if isinstance(size, int)}
    model = _fix_sizes(comparison.model, fixed, folder / comparison.model.name) if fixed else comparison.model
    targets, _ = with_threads(comparison.targets, comparison.threads, default_registry())
    bounds = {name: size for name, size in comparison.dims.items() if name not in fixed}
    names = tuple(comparison.inputs)
    own = Job(
        OWN,
        "inlaid",
        str(model),
        names,
        str(inputs),
        str(folder / "0.npz"),
        comparison.threads,
        targets,
        bounds,
        precision=comparison.precision,
    )
    unfused = replace(own, label=UNFUSED, fusion=False, outputs=str(folder / "1.npz"))
    peers = [
        replace(own, label=name, engine=name, targets=(), dims={}, outputs=str(folder / f"{number}.npz"))
        for number, name in enumerate(comparison.against, 2)
    ]
    return [own, unfused, *peers] if peers and comparison.unfused else [own, *peers]


def _fix_sizes(model: Path, sizes: Mapping[str, int], path: Path) -> Path:
    """A copy of a model in which symbolic dimensions have sizes, so that every engine knows as much as Inlaid is told."""
    import onnx

    proto = onnx.load(model)
    for item in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    onnx.save(proto, path)
    return path


class _Engine:
    """A process with an engine, stopped except while it prepares or is timed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.facts: dict[str, Any] = {}
        self.rounds: list[float] = []
        # Its own process group, so that what it starts stops with it. If this process dies, the kernel ends a group left stopped.
        self._process = subprocess.Popen(
            [sys.executable, "-P", engines.__file__, job.text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def prepare(self) -> str:
        """Wait until the model is ready. Returns why it is not, "" where it is."""
        self.facts = self._receive(TIME_LIMIT)
        self._stop()
        failed = str(self.facts.get("failed", ""))
        if failed.startswith("is not installed") and self.job.engine in PACKAGES:
            return f"{failed} (pip install {PACKAGES[self.job.engine]})"
        return failed

    def time(self, seconds: float) -> str:
        """One round. Returns why it failed, "" where it did not."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # as in `_signal`
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        answer = self._receive(TIME_LIMIT)
        self._stop()
        if "failed" not in answer:
            self.rounds.append(answer["median_ms"])
        return str(answer.get("failed", ""))

    def timing(self, own: _Engine) -> Timing:
        """This engine's part of the result."""
        difference = 0.0 if own is self else _difference(Path(self.job.outputs), Path(own.job.outputs))
        return Timing(self.job.label, **self.facts, rounds=tuple(self.rounds), difference=difference)

    def end(self) -> None:
        """End the process, and whatever it has started."""
        self._signal(signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()

    def _receive(self, limit: float) -> dict[str, Any]:
        """The next line that the process prints."""
        assert self._process.stdout is not None
        until = time.monotonic() + limit
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    return {"failed": f"took more than {limit:.0f} s"}
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    return {"failed": f"its process ended with code {self._process.wait()}"}
                line += part
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _stop(self) -> None:
        """Stop the process, and wait until it has stopped or ended."""
        self._signal(signal.SIGSTOP)
        with suppress(ChildProcessError):  # `_receive` has seen its end
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself, which `_receive` reports
            os.killpg(self._process.pid, number)


def _difference(path: Path, own: Path) -> float:
    """The greatest difference of outputs, relative to the greatest number of each; infinite where they are not alike in shape."""
    greatest = 0.0
    with np.load(path) as theirs, np.load(own) as mine:
        if theirs.files != mine.files:
            return float("inf")
        for name in mine.files:
            a, b = mine[name], theirs[name]
            if a.shape != b.shape:
                return float("inf")
            if a.size:
                scale = float(np.abs(b.astype(np.float64)).max()) or 1.0
                greatest = max(greatest, float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) / scale)
    return greatest
