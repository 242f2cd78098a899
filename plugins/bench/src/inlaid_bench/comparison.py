"""Times engines in interleaved rounds, so that ratios are meaningful on a shared machine.

Each engine runs in a separate process. All engines but the timed one are stopped (SIGSTOP), since spinning worker threads would
take its cores. Each round starts with another engine, so that no engine always follows the same engine. A ratio compares times of
one round, in which both engines ran under similar conditions.
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

from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid_bench import engines
from inlaid_bench.engines import MODULES, PACKAGES, Job
from inlaid_runtime.cores import usable_cores
from inlaid_runtime.errors import CompileError, InputError

INLAID = "inlaid"
UNFUSED = "inlaid, fusion off"
PEERS = tuple(PACKAGES)
TIME_LIMIT = 900.0
"""Seconds that an engine may take to prepare a model, or to run one round."""

Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Comparison:
    """Settings of a comparison. `inputs` are arrays by name, in the model's order; `dims` are sizes or bounds of symbolic
    dimensions; `threads` applies to every engine; `seconds` is the time per engine and round. With `unfused` and at least one peer,
    Inlaid without fusion is timed too. `precision`, as for `inlaid.compile`, applies to every engine."""

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
    """The measurements of one engine. `prepare_s` is the time to compile and load; `peak_mib` the peak resident memory of the
    process that runs the model; `compiler_mib` the peak of its compiler process, 0 if the model was compiled in the same process.
    `rounds` has the median time of each round in ms. `difference` is the greatest difference from Inlaid's outputs, relative to an
    output's greatest magnitude."""

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
        """Median milliseconds per run."""
        return statistics.median(self.rounds)


@dataclass(frozen=True)
class Missing:
    """An engine that could not run, and the reason."""

    label: str
    reason: str


@dataclass(frozen=True)
class Result:
    """The measurements of all engines, Inlaid's first."""

    timings: tuple[Timing, ...]
    missing: tuple[Missing, ...]

    @property
    def inlaid(self) -> Timing:
        """The measurements of Inlaid."""
        return self.timings[0]

    @property
    def peers(self) -> tuple[Timing, ...]:
        """The measurements of the other engines."""
        return tuple(item for item in self.timings if item.label in PEERS)

    @property
    def best(self) -> Timing | None:
        """The fastest peer."""
        return min(self.peers, key=lambda item: item.median, default=None)

    def ratios(self, other: Timing) -> tuple[float, ...]:
        """Compute Inlaid's time divided by the other engine's, per round; below 1 Inlaid is faster."""
        return tuple(inlaid_time / other_time for inlaid_time, other_time in zip(self.inlaid.rounds, other.rounds, strict=True))

    def ratio(self, other: Timing) -> float:
        """Return Inlaid's median time divided by the other engine's, which is between the least and the greatest of `ratios`."""
        return self.inlaid.median / other.median


def with_threads(targets: Sequence[str], threads: int | None, registry: PluginRegistry) -> tuple[tuple[str, ...], int]:
    """Set the number of threads of each target that has that option. Returns the targets and the number of threads: `threads`, else
    the number of the first target that states one, else the number of usable cores."""
    parsed = [registry.target(text) for text in targets]
    thread_counts = [getattr(target.options, "threads", 0) for target in parsed]
    count = threads or next(filter(None, thread_counts), 0) or usable_cores()
    updated = (
        replace(target, options=replace(target.options, threads=count)) if hasattr(target.options, "threads") else target
        for target in parsed
    )
    return tuple(map(str, updated)), count


def compare_engines(comparison: Comparison, report: Report = lambda stage, completed, total: None) -> Result:
    """Prepare the model on every engine and time them in interleaved rounds.

    Raises `InputError` for an unknown peer, and `CompileError` if Inlaid itself cannot run the model.
    """
    unknown = [name for name in comparison.against if name not in PEERS]
    if unknown:
        raise InputError(f"unknown peer {unknown[0]!r}", remedy=f"choose from {', '.join(PEERS)}")
    if comparison.against and comparison.model.suffix == ".inlaid":
        raise InputError(f"peers need a model, got the package {comparison.model}", remedy="give the ONNX model")
    with tempfile.TemporaryDirectory(prefix="inlaid-bench-") as folder:
        return time_in_turns(_jobs(comparison, Path(folder)), comparison.rounds, comparison.seconds, report)


def check_installed(against: Sequence[str]) -> None:
    """Raise `InputError` for a peer that is not installed, before any engine is prepared."""
    for name in against:
        if not all(map(_importable, MODULES.get(name, ()))):
            raise InputError(
                f"engine {name!r} is not installed", remedy=f"pip install {PACKAGES[name]}, or leave it out of --against"
            )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # its parent package is missing
        return False


def time_in_turns(
    jobs: Sequence[Job], rounds: int, seconds: float, report: Report = lambda stage, completed, total: None
) -> Result:
    """Prepare each job in a separate process, and time the jobs in interleaved rounds. Ratios compare the first job with the
    others.

    Raises `CompileError` if the first job fails.
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
        if failure := running[-1].prepare():
            drop(running[-1], failure)
    for round_number in range(rounds):
        order = running[round_number % len(running) :] + running[: round_number % len(running)]
        for number, engine in enumerate(order):
            report(f"time {engine.job.label}", round_number * len(order) + number, rounds * len(order))
            if failure := engine.time(seconds):
                drop(engine, failure)
    return Result(tuple(engine.timing(running[0]) for engine in running), tuple(missing))


def _jobs(comparison: Comparison, folder: Path) -> list[Job]:
    """Create one job per engine, with its files in `folder`."""
    inputs = folder / "inputs.npz"
    np.savez(inputs, *comparison.inputs.values())
    fixed = {name: size for name, size in comparison.dims.items() if isinstance(size, int)}
    model = _fix_sizes(comparison.model, fixed, folder / comparison.model.name) if fixed else comparison.model
    targets, _ = with_threads(comparison.targets, comparison.threads, default_registry())
    bounds = {name: size for name, size in comparison.dims.items() if name not in fixed}
    names = tuple(comparison.inputs)
    inlaid_job = Job(
        INLAID,
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
    unfused = replace(inlaid_job, label=UNFUSED, fusion=False, outputs=str(folder / "1.npz"))
    peers = [
        replace(inlaid_job, label=name, engine=name, targets=(), dims={}, outputs=str(folder / f"{number}.npz"))
        for number, name in enumerate(comparison.against, 2)
    ]
    return [inlaid_job, unfused, *peers] if peers and comparison.unfused else [inlaid_job, *peers]


def _fix_sizes(model: Path, sizes: Mapping[str, int], path: Path) -> Path:
    """Write a copy of a model with symbolic dimensions fixed, so that every engine knows the same sizes as Inlaid."""
    import onnx

    proto = onnx.load(model)
    for item in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    onnx.save(proto, path)
    return path


class _Engine:
    """The process of one engine, stopped except while it prepares or is timed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.facts: dict[str, Any] = {}
        self.rounds: list[float] = []
        # The engine gets its own process group, so that stopping it also stops its children. If the parent process dies, the
        # operating system ends the stopped group.
        self._process = subprocess.Popen(
            [sys.executable, "-P", engines.__file__, job.text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def prepare(self) -> str:
        """Wait until the model is ready. Returns "", or the reason if preparing failed."""
        self.facts = self._receive(TIME_LIMIT)
        self._stop()
        failed = str(self.facts.get("failed", ""))
        if failed.startswith("is not installed") and self.job.engine in PACKAGES:
            return f"{failed} (pip install {PACKAGES[self.job.engine]})"
        return failed

    def time(self, seconds: float) -> str:
        """Time one round. Returns "", or the reason if the round failed."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        with suppress(BrokenPipeError):  # the process has ended, which `_receive` reports
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        answer = self._receive(TIME_LIMIT)
        self._stop()
        if "failed" not in answer:
            self.rounds.append(answer["median_ms"])
        return str(answer.get("failed", ""))

    def timing(self, inlaid_engine: _Engine) -> Timing:
        """Return the measurements of this engine."""
        difference = 0.0 if inlaid_engine is self else _difference(Path(self.job.outputs), Path(inlaid_engine.job.outputs))
        return Timing(self.job.label, **self.facts, rounds=tuple(self.rounds), difference=difference)

    def end(self) -> None:
        """Kill the process and its children."""
        self._signal(signal.SIGKILL)
        with suppress(BrokenPipeError):
            self._process.communicate()

    def _receive(self, limit: float) -> dict[str, Any]:
        """Read the next line that the process prints, as JSON."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return {"failed": f"took more than {limit:.0f} s"}
                part = os.read(self._process.stdout.fileno(), 1 << 16)
                if not part:
                    return {"failed": f"its process ended with code {self._process.wait()}"}
                line += part
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _stop(self) -> None:
        """Stop the process (SIGSTOP), and wait until it is stopped or has ended."""
        self._signal(signal.SIGSTOP)
        with suppress(ChildProcessError):  # `_receive` has already reaped it
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the process has ended, which `_receive` reports
            os.killpg(self._process.pid, number)


def _difference(path: Path, inlaid_path: Path) -> float:
    """Compute the greatest difference of outputs, relative to each output's greatest magnitude; infinite if shapes differ."""
    greatest = 0.0
    with np.load(path) as theirs, np.load(inlaid_path) as mine:
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
