"""Times Inlay beside its peers on whole models and on single operators, and writes the page of benchmarks.

    python benchmarks/bench.py [--only REGEX] [--threads 1 2] [--against onnxruntime openvino] [--write docs/benchmarks.md]

Whole models run against every peer, single operators against ONNX Runtime. How engines are kept apart and what a ratio is:
`inlay bench --help`. The limits of the machine are measured in the same run.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import numpy_helper

from inlay.cli.contest import PEERS, UNFUSED, Contest, Result, Timing, compete
from inlay.errors import InlayError
from machine import Limits, limits, processor, versions
from zoo import MODELS, feeds, path_of
from zoo.operators import OperatorCase, cases

CONVOLUTIONS = ("resnet50", "mobilenet_v2")
"""Models whose convolutions are timed one by one."""
GOALS = {"resnet50": 0.70}
"""Time by that of the best peer, where it is not `GOAL`."""
GOAL = 0.80
BOUND = 0.70
"""Where reading the weights takes this share of the best peer's time, as fast as the best peer is as good as can be."""
DISTRIBUTIONS = ("inlay", "numpy", "onnx", "onnxruntime", "openvino", "torch", "onnx2torch", "apache-tvm", "iree-base-compiler")


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    against: tuple[str, ...]
    rounds: int
    seconds: float


def read_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the weights that a run reads whole: tables that are looked up in do not count."""
    graph = model.graph
    whole = {name for node in graph.node for name in node.input if node.op_type not in ("Gather", "Slice")}
    return sum(numpy_helper.to_array(item).nbytes for item in graph.initializer if item.name in whole)


def run(
    path: Path, model: onnx.ModelProto, threads: int, settings: Settings, against: Sequence[str], unfused: bool
) -> Result | str:
    """One model on all engines; or why Inlay cannot run it."""
    contest = Contest(
        path,
        feeds(model),
        ("x86",),
        threads,
        tuple(against),
        rounds=settings.rounds,
        seconds=settings.seconds,
        unfused=unfused,
    )
    try:
        return compete(contest)
    except InlayError as error:
        return " ".join(str(error).split())


def whole_models(names: Iterable[str], limit: Limits, settings: Settings, tiny: bool) -> list[str]:
    """The section of whole models for one number of threads; each row is printed when it is known."""
    engines = (UNFUSED, *settings.against)
    header = ["model", "Inlay, ms", *(f"{name}, ms" for name in engines), "ratio to the best peer", "goal", "differs", "compile, s"]
    lines = [
        f"## Whole models, {_threads(limit.threads)}",
        "",
        _row([*header, "peak MiB", "of the best peer"]),
        _row(["---"] * (len(header) + 2)),
    ]
    print("", *lines, sep="\n", flush=True)
    ratios: list[float] = []
    settled: dict[str, None] = {}
    absent: dict[str, list[str]] = {}
    for name in names:
        path = path_of(name, tiny)
        model = onnx.load(path)
        result = run(path, model, limit.threads, settings, settings.against, unfused=True)
        if isinstance(result, str):
            line = _row([name, result, *[""] * len(header)])
        else:
            line = _model_row(name, result, engines, read_bytes(model) / limit.bandwidth * 1e3)
            if result.best:
                ratios.append(statistics.median(result.ratios(result.best)))
            settled.update(dict.fromkeys(f"{item.label} {item.version}: {item.settings}" for item in result.timings))
            for item in result.missing:
                absent.setdefault(f"{item.label}: {item.reason}", []).append(name)
        lines.append(line)
        print(line, flush=True)
    if ratios:
        lines += ["", f"Geometric mean of the ratios over {len(ratios)} models: **{statistics.geometric_mean(ratios):.2f}**."]
        print(lines[-1], flush=True)
    notes = ["", "Settings:", "", *(f"- {text}" for text in settled)]
    if absent:
        notes += ["", "Did not take part:", "", *(f"- {reason} ({', '.join(models)})" for reason, models in absent.items())]
    print(*notes, sep="\n", flush=True)
    return lines + notes


def _model_row(name: str, result: Result, engines: Sequence[str], bound: float) -> str:
    """`bound`: milliseconds that reading the weights takes."""
    times = {item.label: _milliseconds(item.median) for item in result.timings} | {item.label: "-" for item in result.missing}
    best = result.best
    ratio, goal, memory = "-", "-", "-"
    if best:
        bounded = bound > BOUND * best.median
        ratio = f"{_spread(result.ratios(best))} {best.label}"
        goal = f"1.00 (reading the weights takes {bound:.2f} ms)" if bounded else f"{GOALS.get(name, GOAL):.2f}"
        memory = f"{best.peak_mib:.0f}"
    return _row(
        [
            name,
            _own(result.own),
            *(times[engine] for engine in engines),
            ratio,
            goal,
            f"{max((item.difference for item in result.peers), default=0):.0e}",
            f"{result.own.prepare_s:.1f}",
            f"{result.own.peak_mib:.0f}",
            memory,
        ]
    )


def single_operators(chosen: Sequence[OperatorCase], limit: Limits, settings: Settings) -> list[str]:
    """The section of single operators."""
    header = ["group", "operator", "times", "Inlay, ms", "GFLOP/s or GB/s", "of the peak", "onnxruntime, ms", "ratio"]
    lines = [f"## Single operators, {_threads(limit.threads)}", "", _row(header), _row(["---"] * len(header))]
    print("", *lines, sep="\n", flush=True)
    spent: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            path, model = Path(folder) / f"{case.name}.onnx", case.build()
            onnx.save(model, path)
            result = run(path, model, limit.threads, settings, ("onnxruntime",), unfused=False)
            if isinstance(result, str):
                line = _row([case.group, case.name, str(case.times), result, *[""] * (len(header) - 4)])
            else:
                line = _operator_row(case, result, limit)
                operations, seconds = spent.get(case.group, (0.0, 0.0))
                spent[case.group] = (
                    operations + case.times * case.operations,
                    seconds + case.times * result.own.median / 1e3,
                )
            lines.append(line)
            print(line, flush=True)
    for group, (operations, seconds) in spent.items():
        if group.startswith("conv"):
            share = operations / seconds / limit.flops
            lines += ["", f"{group}: {operations / seconds / 1e9:.0f} GFLOP/s weighted by time, {share:.0%} of the peak."]
            print(lines[-1], flush=True)
    return lines


def _operator_row(case: OperatorCase, result: Result, limit: Limits) -> str:
    seconds = result.own.median / 1e3
    rate = (case.operations or case.moved) / seconds
    peers = [_milliseconds(result.peers[0].median), _spread(result.ratios(result.peers[0]))] if result.peers else ["-", "-"]
    share = f"{rate / limit.flops:.0%}" if case.operations else "-"  # what is only moved may well be in a cache
    return _row([case.group, case.name, str(case.times), _own(result.own), f"{rate / 1e9:.1f}", share, *peers])


def _own(item: Timing) -> str:
    return f"{_milliseconds(item.median)} ({_milliseconds(min(item.rounds))} to {_milliseconds(max(item.rounds))})"


def _milliseconds(value: float) -> str:
    """Three digits that count."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value < 100 else f"{value:.0f}"


def _spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _head(command: str, every: Sequence[Limits]) -> list[str]:
    measured = "; ".join(
        f"{_threads(limit.threads)}: {limit.flops / 1e9:.0f} GFLOP/s in float32, {limit.bandwidth / 1e9:.0f} GB/s read from memory"
        for limit in every
    )
    return [
        "# Benchmarks",
        "",
        f"`{command}` on {time.strftime('%Y-%m-%d')}.",
        "",
        f"- Machine: {processor()}.",
        f"- Measured limits: {measured}.",
        f"- Versions: {versions(*DISTRIBUTIONS)}.",
        "",
        "Times are medians of rounds in milliseconds, in brackets the least and the greatest round. A ratio is Inlay's time by a "
        "peer's within one round: below 1, Inlay is faster. *compile* is the wall time to compile and load in fresh processes, "
        "*peak MiB* the resident memory of the one that runs. *differs* is the greatest difference from a peer's outputs, "
        "relative to their greatest number.",
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the models and operators whose name this matches")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads, each a section")
    parser.add_argument("--against", nargs="*", default=PEERS, choices=PEERS, metavar="PEER", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each engine runs in a round")
    parser.add_argument("--tiny", action="store_true", help="the small variants of the generated models, to see that all works")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    arguments = parser.parse_args()
    chosen: Callable[[str], object] = re.compile(arguments.only).search
    names = [name for name, entry in MODELS.items() if chosen(name) and (entry.tiny or not arguments.tiny)]
    sources = {name: path_of(name) for name in CONVOLUTIONS}
    operators = [case for case in cases(sources) if chosen(case.name) or chosen(case.group)]
    settings = Settings(tuple(arguments.against), arguments.rounds, arguments.seconds)
    every = [limits(count) for count in arguments.threads]
    sections = [_head(shlex.join(["python", *sys.argv]), every)]
    print("\n".join(sections[0]), flush=True)
    for limit in every:
        if names:
            sections.append(whole_models(names, limit, settings, arguments.tiny))
    if operators:
        sections.append(single_operators(operators, every[0], settings))
    if arguments.write:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text("\n\n".join("\n".join(section) for section in sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
