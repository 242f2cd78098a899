"""Times Inlaid beside its peers on whole models and on single operators, and writes the page of benchmarks.

    python benchmarks/bench.py [--only REGEX] [--precisions f32 bf16 int8] [--threads 1 2] [--against onnxruntime openvino]
    python benchmarks/bench.py --quick --models
    python benchmarks/bench.py --draw --write docs/benchmarks.md

Whole models run against every peer, single operators against ONNX Runtime. How engines are kept apart and what a ratio is:
`inlaid bench --help`. Every measurement is appended to a file as a line of JSON, with its date and the limits of the machine
measured just before; the page is drawn from the latest of each. What was measured longest ago comes first, and nothing is begun
after `--minutes`: so a call goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import numpy_helper

import page
from inlaid_bench.comparison import PEERS, Comparison, Result, compare_engines
from inlaid_runtime.errors import InlaidError
from machine import Limits, limits, processor, versions
from page import PRECISIONS, Measurement
from zoo import FLOAT, INT8, MODELS, cache_folder, feeds, model_path
from zoo.operators import OperatorCase, cases

CONVOLUTIONS = ("resnet50", "mobilenet_v2")
"""Models whose convolutions are timed one by one."""
QUICK_PEERS = ("onnxruntime", "openvino")
DISTRIBUTIONS = ("inlaid", "numpy", "onnx", "onnxruntime", "openvino", "torch", "onnx2torch", "apache-tvm", "iree-base-compiler")


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    against: tuple[str, ...]
    rounds: int
    seconds: float
    unfused: bool


def read_bytes(model: onnx.ModelProto, precision: str = "f32") -> int:
    """Bytes of the weights that a run reads whole, in the form that the precision stores them in: tables that are looked up in do
    not count."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def is_fully_read(name: str) -> bool:
        return any(
            is_fully_read(node.output[0]) if node.op_type == "DequantizeLinear" else node.op_type not in ("Gather", "Slice")
            for node in readers.get(name, ())
        )

    total = 0
    for item in model.graph.initializer:
        if is_fully_read(item.name):
            data = numpy_helper.to_array(item)
            total += data.nbytes // (2 if precision == "bf16" and data.ndim > 1 and data.dtype == "float32" else 1)
    return total


def entries(chosen: Callable[[str], object], precisions: Sequence[str], tiny: bool) -> list[tuple[str, str]]:
    """(model, precision) of all that is to be timed. Models in eight bits have names of their own."""
    pairs = [(name, precision) for precision in precisions for name in (INT8 if precision == "int8" else FLOAT)]
    return [(name, precision) for name, precision in pairs if chosen(name) and (MODELS[name].tiny or not tiny)]


def measure(
    path: Path, model: onnx.ModelProto, threads: int, settings: Settings, against: Sequence[str], precision: str, unfused: bool
) -> Result | str:
    """One model on all engines; or why Inlaid cannot run it."""
    comparison = Comparison(
        path,
        feeds(model),
        ("x86",),
        threads,
        tuple(against),
        rounds=settings.rounds,
        seconds=settings.seconds,
        unfused=unfused,
        precision="bf16" if precision == "bf16" else "model",
    )
    try:
        return compare_engines(comparison)
    except InlaidError as error:
        return " ".join(str(error).split())


@dataclass(frozen=True)
class Task:
    """What is to be measured: a model on some threads, or an operator."""

    name: str
    precision: str
    threads: int
    case: OperatorCase | None = None

    @property
    def key(self) -> tuple[str, str, str, int]:
        """That of its measurement."""
        return "model" if self.case is None else "operator", self.name, self.precision, self.threads

    def measure(self, limit: Limits, settings: Settings, tiny: bool) -> Measurement:
        """A model beside all peers, an operator beside ONNX Runtime."""
        if self.case is None:
            path = model_path(self.name, tiny)
            model = onnx.load(path)
            result = measure(path, model, self.threads, settings, settings.against, self.precision, settings.unfused)
            return Measurement.create("model", self.name, self.precision, limit, result, moved=read_bytes(model, self.precision))
        case = self.case
        with tempfile.TemporaryDirectory() as folder:
            path, model = Path(folder) / f"{case.name}.onnx", case.build()
            onnx.save(model, path)
            result = measure(path, model, self.threads, settings, ("onnxruntime",), "f32", unfused=False)
        facts = {"times": case.times, "operations": case.operations, "moved": case.moved}
        return Measurement.create("operator", case.name, "f32", limit, result, group=case.group, **facts)


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the models and operators whose name this matches")
    parser.add_argument("--models", action="store_true", help="whole models, no single operators")
    parser.add_argument("--operators", action="store_true", help="single operators, no whole models")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS, metavar="PRECISION")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--against", nargs="*", choices=PEERS, metavar="PEER", help=f"of {', '.join(PEERS)}; default: all")
    parser.add_argument("--rounds", type=int, help="default: 5")
    parser.add_argument("--seconds", type=float, help="how long each engine runs in a round; default: 1")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.25 s against ONNX Runtime and OpenVINO, fusion on")
    parser.add_argument("--tiny", action="store_true", help="the small variants of the generated models, to see that all works")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after that; default: no limit")
    parser.add_argument("--draw", action="store_true", help="measure nothing: only draw the page")
    parser.add_argument("--results", type=Path, help="where measurements are kept; default: the user's cache folder")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--title", default=page.TITLE, help="of the page")
    arguments = parser.parse_args()
    rounds, seconds, against = (3, 0.25, QUICK_PEERS) if arguments.quick else (5, 1.0, PEERS)
    arguments.rounds = arguments.rounds or rounds
    arguments.seconds = seconds if arguments.seconds is None else arguments.seconds
    arguments.against = against if arguments.against is None else arguments.against
    arguments.results = arguments.results or cache_folder().parents[1] / "benchmarks" / "results.jsonl"
    return arguments


def tasks(arguments: argparse.Namespace) -> list[Task]:
    """What is asked for: models on each number of threads, operators on the first."""
    chosen = re.compile(arguments.only).search
    names = [] if arguments.operators else entries(chosen, arguments.precisions, arguments.tiny)
    result = [Task(name, precision, threads) for threads in arguments.threads for name, precision in names]
    if not arguments.models and "f32" in arguments.precisions:
        sources = {name: model_path(name) for name in CONVOLUTIONS}
        every = (case for case in cases(sources) if chosen(case.name) or chosen(case.group))
        result += [Task(case.name, "f32", arguments.threads[0], case) for case in every]
    return result


def run(arguments: argparse.Namespace) -> Iterable[Measurement]:
    """Measure, one by one."""
    until = time.monotonic() + 60 * arguments.minutes
    settings = Settings(tuple(arguments.against), arguments.rounds, arguments.seconds, not arguments.quick)
    before = {item.key: item.date for item in page.latest(arguments.results)}
    limits_by_threads: dict[int, Limits] = {}
    for task in sorted(tasks(arguments), key=lambda task: before.get(task.key, "")):
        if time.monotonic() > until:
            return
        if task.threads not in limits_by_threads:
            limits_by_threads[task.threads] = limits(task.threads)
        yield task.measure(limits_by_threads[task.threads], settings, arguments.tiny)


def main() -> None:
    """Measure, keep and draw."""
    arguments = parse()
    started = time.perf_counter()
    if not arguments.draw:
        machine, package_versions = processor(), versions(*DISTRIBUTIONS)
        for measurement in run(arguments):
            measurement.keep(arguments.results, machine, package_versions)
            print(measurement.line(), flush=True)
        print(f"{time.perf_counter() - started:.0f} s; kept in {arguments.results}", flush=True)
    text = page.draw(page.latest(arguments.results), arguments.title)
    if arguments.write:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
