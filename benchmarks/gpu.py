"""Compare the cuda target with PyTorch and Triton on an NVIDIA GPU, and write the benchmark page.

    python benchmarks/gpu.py [--group gemm] [--only REGEX] [--minutes 8] [--write docs/benchmarks-gpu.md]
    python benchmarks/gpu.py --draw --write docs/benchmarks-gpu.md

Groups: gemm, attention, memory, models, launch, conformance. Each row is appended to a results file as a JSON line with device,
driver, versions and date. The rows measured longest ago run first and a group stops after `--minutes`: a later call resumes.
Times of Triton and torch.compile, which are slow to prepare, are reused for the same device, driver and version unless `--peers`
is given. The page shows the latest row of each case.

Exit status: 2 without a device, with the reason and nothing written; 1 if a row failed or results differ from a peer's by more than
the tolerance.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import gpu_engines as engines
import gpu_page as page
import inlaid
from gpu_cases import Case, cases
from gpu_engines import COMPILED, TORCH, TRITON, Clock, Engine, Settings
from gpu_page import GROUPS, SUITE, Row
from inlaid import ops
from inlaid.graph.ir import Expr
from inlaid_bench.comparison import UNFUSED, Result
from inlaid_conformance.case import LEVELS
from inlaid_cuda.driver import DeviceFacts
from inlaid_runtime.errors import InlaidError
from machine import versions
from zoo import cache_folder, model_path, written
from zoo.half import half
from zoo.light import light
from zoo.sizes import feeds

DISTRIBUTIONS = ("inlaid", "inlaid-cuda", "nvidia-cuda-nvrtc", "cuda-bindings", "torch", "triton", "onnx2torch", "onnx")
MINUTES = 8.0
"""Time limit of a group."""
BEGUN = 0.75
"""Fraction of the time limit after which no row is started."""
LAUNCHES = (1, 10, 100)
ENQUEUED, GRAPH, DEVICE = "enqueued", "enqueued as a graph", "on the device"
WAYS = (ENQUEUED, GRAPH, DEVICE)
"""Timings of a chain of launches."""
NODE_CASES = ("a", "b", "c", "d-h", "i-l", "m-o", "p-q", "r", "s", "t-z")
"""Ranges of first letters of ONNX's node cases, a row each."""

Peers = Mapping[str, Callable[[], Engine]]


@dataclass(frozen=True)
class Task:
    """A row to measure. `measure` takes the previous row and returns the result and the peers whose times were reused."""

    group: str
    name: str
    precision: str
    measure: Callable[[Row | None], tuple[Result | Mapping[str, float] | str, tuple[str, ...]]]
    operations: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Bench:
    """Settings of all tasks. `again`: measure peers again instead of reusing times; `peers`: installed versions by label; `until`:
    deadline of suites, by `time.monotonic`."""

    target: str
    clock: Clock
    settings: Settings
    again: bool
    tiny: bool
    peers: Mapping[str, str]
    until: float = float("inf")

    def precision_target(self, precision: str) -> str:
        """The target, with option tf32 for that precision."""
        if precision != "tf32":
            return self.target
        return f"{self.target}{',' if ':' in self.target else ':'}tf32=true"

    def compare(
        self, inlaid_makers: Sequence[Callable[[], Engine]], peers: Peers, before: Row | None
    ) -> tuple[Result, tuple[str, ...]]:
        """Time Inlaid, the first of `inlaid_makers`, and the peers whose times cannot be reused."""
        earlier_timings = () if self.again else page.reusable_timings(before, self.peers)
        reused_timings = {item.label: item for item in earlier_timings if item.label in peers}
        missing, timed_engines, seconds = [], [], []
        for make in inlaid_makers:
            start = time.perf_counter()
            timed_engines.append(make())
            seconds.append(time.perf_counter() - start)
        for label, make in peers.items():
            if label in reused_timings:
                continue
            start = time.perf_counter()
            try:
                engine = make()
                engine.milliseconds(1)
                timed_engines.append(engine)
                seconds.append(time.perf_counter() - start)
            except Exception as error:  # of any class of its own
                missing.append(engines.missing(label, error))
        timings = engines.time_in_turns(timed_engines, seconds, self.settings)
        return Result((*timings, *reused_timings.values()), tuple(missing)), tuple(reused_timings)


def tasks(group: str, bench: Bench) -> Iterator[Task]:
    """Rows of a group."""
    if group == "models":
        yield from _models(bench)
    elif group == "launch":
        for launches in LAUNCHES:
            for way in WAYS:
                yield Task("launch", f"{launches} launches, {way}", "f32", partial(_launch, bench, launches, way))
    elif group == "conformance":
        yield from _conformance(bench)
    else:
        for case in cases(group, bench.tiny):
            yield Task(group, case.name, case.precision, partial(_operator, bench, case), case.operations, case.moved)


def _operator(bench: Bench, case: Case, before: Row | None) -> tuple[Result, tuple[str, ...]]:
    target = bench.precision_target(case.precision)
    inlaid_makers: list[Callable[[], Engine]] = [
        lambda: engines.OperatorEngine(case.function(), case.operands(), target, bench.clock)
    ]
    if case.group == "memory":
        inlaid_makers.append(lambda: engines.CopyEngine(case.moved, target, bench.clock))
    peers: dict[str, Callable[[], Engine]] = {TORCH: lambda: engines.torch_operator(case)}
    if case.group == "gemm":
        peers[TRITON] = lambda: engines.triton_product(case)
    return bench.compare(inlaid_makers, peers, before)


def _models(bench: Bench) -> Iterator[Task]:
    files: dict[str, Callable[[], Path]] = {
        f"{name}, batch 1": partial(model_path, name, bench.tiny) for name in ("mobilenet_v2", "bert_base", "gpt2_step")
    }
    if not bench.tiny:
        files["resnet50, batch 1"] = partial(model_path, "resnet50")
        build = partial(light, "resnet50", (32, 3, 224, 224))
        files["resnet50, batch 32"] = partial(written, cache_folder(), "resnet50_batch32", build)
    for precision in ("f16",) if bench.tiny else ("f32", "tf32", "f16"):
        for name, file in files.items():
            yield Task("models", name, precision, partial(_model, bench, file, precision))


def _model(bench: Bench, file: Callable[[], Path], precision: str, before: Row | None) -> tuple[Result, tuple[str, ...]]:
    wide = path = file()
    if precision == "f16":
        path = written(cache_folder(), f"{wide.stem}_half", lambda: half(onnx.load(wide)))
    inputs, target = feeds(onnx.load(path)), bench.precision_target(precision)
    inlaid_makers: list[Callable[[], Engine]] = [lambda: engines.ModelEngine(path, inputs, target, bench.clock)]
    if wide.stem.startswith("mobilenet"):
        inlaid_makers.append(lambda: engines.ModelEngine(path, inputs, target, bench.clock, UNFUSED, fusion=False))
    peers = {label: partial(engines.torch_model, label, path, inputs, precision) for label in (TORCH, COMPILED)}
    return bench.compare(inlaid_makers, peers, before)


def _launch(bench: Bench, launches: int, way: str, before: Row | None) -> tuple[Result, tuple[str, ...]]:
    """A chain of small additions without fusion, one kernel each."""
    shape = (32, 32)
    x, y = (inlaid.var(name, inlaid.TensorType(shape, "float32")) for name in "xy")
    body: Expr = x
    for _ in range(launches):
        body = ops.add(body, y)
    function, operands = inlaid.function([x, y], body), [np.ones(shape, np.float32)] * 2

    def timed(engine: engines.OperatorEngine | engines.TorchEngine) -> Engine:
        return engine if way == DEVICE else engines.Enqueued(engine, way == GRAPH)

    inlaid_makers = [lambda: timed(engines.OperatorEngine(function, operands, bench.target, bench.clock, fusion=False))]
    return bench.compare(inlaid_makers, {TORCH: lambda: timed(engines.torch_chain(operands, launches))}, before)


def _conformance(bench: Bench) -> Iterator[Task]:
    def suite(level: str, before: Row | None) -> tuple[Mapping[str, float] | str, tuple[str, ...]]:
        return _suite(bench, level), ()

    def nodes(match: str, before: Row | None) -> tuple[Mapping[str, float] | str, tuple[str, ...]]:
        return _node_suite(bench, match), ()

    for level in LEVELS:
        yield Task("conformance", f"{SUITE}, {level}", "", partial(suite, level))
    for letters in NODE_CASES:
        yield Task("conformance", f"ONNX node cases, {letters}", "", partial(nodes, f"^test_[{letters}]"))
    yield Task("conformance", "ONNX light models", "", partial(nodes, "^light_"))


def _suite(bench: Bench, level: str) -> Mapping[str, float] | str:
    """Outcome counts of one level of the conformance suite."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = ["-c", "from inlaid_cli import main; main()", "conformance", "--target", bench.target, "--only", f"{level}/"]
        failed, _ = _run([*command, "--report", str(path)], (0, 1), bench.until)
        if failed or not path.exists():
            return failed or "no report was written"
        (counts,) = (item for item in json.loads(path.read_text(encoding="utf-8"))["levels"] if item["level"] == level)
    return {name: float(count) for name, count in counts.items() if name != "level"}


def _node_suite(bench: Bench, match: str) -> Mapping[str, float] | str:
    """Outcome counts of ONNX's node cases or light models."""
    script = Path(__file__).with_name("onnx_node_suite.py")
    jobs = str(len(os.sched_getaffinity(0)))
    failed, printed = _run([str(script), "--device", bench.target, "--match", match, "--jobs", jobs], (0,), bench.until)
    summary_match = re.search(r"(\d+) of \d+ passed: (\d+) wholly native, .*; (\d+) failed", printed)
    if failed or summary_match is None:
        return failed or "no counts were printed"
    passed, native, lost = map(float, summary_match.groups())
    return {"passed": passed, "failed": lost, "wholly native": native}


def _run(arguments: Sequence[str], codes: tuple[int, ...], until: float) -> tuple[str, str]:
    """Run Python in a process group that is killed at a deadline. Returns the failure message, "" on success, and stdout. Raises
    `subprocess.TimeoutExpired`."""
    limit = None if until == float("inf") else max(until - time.monotonic(), 1.0)
    command, pipe = [sys.executable, *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0) as process:
        try:
            printed, complaints = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    failed = "" if process.returncode in codes else (complaints.strip().splitlines() or ["no message"])[-1]
    return failed, printed


def driver_version(facts: DeviceFacts) -> str:
    """CUDA version that the driver supports, and the driver's version if the system reports it."""
    text = f"CUDA {facts.driver // 1000}.{facts.driver % 1000 // 10}"
    try:
        match = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        match = None
    return f"{text}, {match[1]}" if match else text


def run(arguments: argparse.Namespace, facts: DeviceFacts, clock: Clock) -> Iterator[Row]:
    """Measure the selected groups."""
    device, driver, package_versions = str(facts).partition(": ")[2], driver_version(facts), versions(*DISTRIBUTIONS)
    present: dict[str, str] = {}
    for label in engines.REUSABLE_PEERS:
        try:
            present[label] = engines.installed(label)
        except ImportError:
            continue
    settings = Settings(arguments.rounds, arguments.seconds)
    bench = Bench(arguments.target, clock, settings, arguments.peers, arguments.tiny, present)
    for group in arguments.group or GROUPS:
        yield from _run_group(group, arguments, bench, Row(group, "", "", device, driver, "", versions=package_versions))


def _run_group(group: str, arguments: argparse.Namespace, bench: Bench, empty: Row) -> Iterator[Row]:
    """Measure a group within its time limit, the rows measured longest ago first. `empty`: template of its rows."""
    start, seconds = time.monotonic(), 60 * arguments.minutes
    before = {row.key: row for row in page.latest(arguments.results)}
    chosen = re.compile(arguments.only).search
    planned = []
    for task in tasks(group, replace(bench, until=start + seconds)):
        if chosen(task.name):
            row = replace(empty, name=task.name, precision=task.precision, operations=task.operations, moved=task.moved)
            planned.append((task, row, before.get(row.key)))
    planned.sort(key=lambda item: item[2].date if item[2] else "")
    for number, (task, row, last) in enumerate(planned):
        if time.monotonic() - start > BEGUN * seconds:
            return
        try:
            result, reused_labels = task.measure(last)
        except InlaidError as error:
            result, reused_labels = " ".join(str(error).split()), ()
        except subprocess.TimeoutExpired as error:
            if number:
                return  # the next call begins with it
            result, reused_labels = f"took more than {error.timeout:.0f} s", ()
        yield replace(row, result=result, kept=reused_labels, date=page.now())
        gc.collect()


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", nargs="+", choices=tuple(GROUPS), metavar="GROUP", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--only", default="", metavar="REGEX", help="only the rows whose name this matches")
    parser.add_argument("--target", default="cuda", help="a target of kind cuda; default: cuda")
    parser.add_argument("--tiny", action="store_true", help="small operands and models, for smoke tests")
    parser.add_argument("--peers", action="store_true", help="measure peers again instead of reusing their times")
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--seconds", type=float, default=Settings.seconds, help="target time of each engine per round")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="time limit of a group; default: %(default)g")
    parser.add_argument("--draw", action="store_true", help="only write the page; needs no GPU")
    parser.add_argument("--results", type=Path, help="results file; default: in the user's cache folder")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    arguments = parser.parse_args()
    arguments.results = arguments.results or cache_folder().parents[1] / "benchmarks" / "gpu.jsonl"
    return arguments


def main() -> int:
    """Command line."""
    arguments, failed = parse(), False
    if not arguments.draw:
        try:
            device = engines.open_device(arguments.target)
        except InlaidError as error:
            print(error, file=sys.stderr)
            return 2
        with closing(Clock(device)) as clock:
            for row in run(arguments, device.facts, clock):
                page.keep(arguments.results, row)
                print(page.line(row), flush=True)
                failed |= row.wrong
    text = page.draw(page.latest(arguments.results))
    if arguments.write:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text(text, encoding="utf-8")
    elif arguments.draw:
        print(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
