"""Times the matrix of variants beside ONNX Runtime and OpenVINO, each row also beside its sibling, and writes the page.

    python benchmarks/variants_bench.py [--only REGEX] [--threads 1 2] [--quick]
    python benchmarks/variants_bench.py --missing --limit 600
    python benchmarks/variants_bench.py --draw --write docs/benchmarks-variants.md

Engines run in this process, in turns; a ratio is taken within a round. Before, the outputs are compared with those of ONNX
Runtime without graph optimizations: a row whose values differ has failed, and is not timed. Every measurement is appended to a
file as a line of JSON, and the page is drawn from the latest of each, so that the whole may be measured in pieces: `--missing`
leaves out what the file has already, `--limit` stops after some seconds. `--quick` measures the listed rows and a tenth of the
generated ones, in few rounds. `make bench-variants` measures twice: as the processor is, and with every engine held to AVX2.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import inlaid
import page
import variants
from inlaid_bench.comparison import INLAID, Missing, Result, Timing, check_installed
from inlaid_bench.engines import ENGINES, Job, time_runs
from inlaid_runtime.errors import InlaidError, ScheduleWarning
from machine import Limits, limits, processor, versions
from page import Measurement
from variants import Row
from variants.axes import stays
from variants.epilogues import ACTIVATIONS
from variants.reference import mismatch, reference
from variants_page import ALONE, AVX2, AVX512, PEERS, SIBLING, draw
from zoo import cache_folder
from zoo.net import Net

DISTRIBUTIONS = ("inlaid", "numpy", "onnx", *PEERS)
SETTLE = 0.1
"""Seconds before an engine's turn, where threads of another may still spin."""
ENOUGH = 10.0
"""Seconds after which no further round of a row begins, once it has `LEAST_ROUNDS`."""
LEAST_ROUNDS = 2
QUICK_ROUNDS, QUICK_SECONDS = 2, 0.005
TENTH = 10
CACHED = 2**17
"""Elements of float32 on which activations are timed alone at most: half a megabyte, which caches of a core hold."""


@dataclass(frozen=True)
class Settings:
    """How to measure: threads of every engine, rounds, and seconds per engine and round."""

    threads: int
    rounds: int
    seconds: float
    target: str


@dataclass(frozen=True)
class Prepared:
    """A row, compiled, with its inputs. `seconds`: of loading and compiling."""

    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    run: Callable[[], Mapping[str, Any]]
    seconds: float


@lru_cache(maxsize=24)
def prepare(name: str, target: str) -> Prepared:
    """Compile a row, one of those that thinning leaves out included. Rows that are close to each other share siblings."""
    row = variants.named()[name]
    model = row.build()
    return _compiled(model, row.feeds(model), target)


@lru_cache(maxsize=24)
def prepare_activation(name: str, count: int, target: str) -> Prepared:
    """Compile an activation of `count` float32 values."""
    net = Net("activation")
    net.output(ACTIVATIONS[name](net, net.input("x", (count,))), "y", (count,))
    feeds = {"x": np.random.default_rng(0).uniform(-3, 3, count).astype(np.float32)}
    return _compiled(net.build(), feeds, target)


def _compiled(model: onnx.ModelProto, feeds: Mapping[str, Any], target: str) -> Prepared:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScheduleWarning)
        executable = inlaid.compile(model, [target], cache=False)
    return Prepared(model, feeds, lambda: executable.run(feeds), time.perf_counter() - start)


@dataclass(frozen=True)
class Timed:
    """What is timed: `seconds` it took to prepare, and the factor of its times."""

    label: str
    version: str
    seconds: float
    run: Callable[[], Any]
    factor: float = 1.0


def measure(row: Row, settings: Settings) -> Result | str:
    """Time a row, its sibling and the peers; or say why the row has failed."""
    try:
        mine = prepare(row.name, settings.target)
        outputs = list(mine.run().values())
    except InlaidError as error:
        return f"refused: {' '.join(str(error).split())}"[:300]
    try:
        expected = reference(mine.model, mine.feeds)
    except Exception as error:  # of any class of its own
        return f"no reference: {_first_line(error)}"
    if reason := mismatch(outputs, expected, row.levels, row.tolerance):
        return f"wrong: {reason}"
    every = [Timed(INLAID, inlaid.__version__, mine.seconds, mine.run), *_siblings(row, outputs, settings)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(mine.model, path)
        peers, missing = _peers(path, mine.feeds, settings.threads)
        every += peers
        rounds = _rounds([item.run for item in every], settings)
    timings = (
        Timing(item.label, item.version, "", item.seconds, 0.0, 0.0, tuple(time * item.factor for time in times), 0.0)
        for item, times in zip(every, rounds, strict=True)
    )
    return Result(tuple(timings), missing)


def _siblings(row: Row, outputs: list[Any], settings: Settings) -> Iterator[Timed]:
    """Yield the row's sibling and the activation alone, where the row has them and they compile."""
    if row.sibling is None:
        return
    try:
        other = prepare(row.sibling.row, settings.target)
        other.run()
    except InlaidError:
        return
    yield Timed(SIBLING, inlaid.__version__, other.seconds, other.run)
    if row.sibling.alone:
        count = min(outputs[0].size, CACHED)
        alone = prepare_activation(row.sibling.alone, count, settings.target)
        yield Timed(ALONE, inlaid.__version__, alone.seconds, alone.run, outputs[0].size / count)


def _peers(path: Path, feeds: Mapping[str, Any], threads: int) -> tuple[list[Timed], tuple[Missing, ...]]:
    """Load a model into the peers that are installed."""
    runs, missing = [], []
    for name in PEERS:
        start = time.perf_counter()
        try:
            check_installed([name])
            prepared = ENGINES[name](Job(name, name, str(path), tuple(feeds), "", "", threads), feeds)
            prepared.run()
            runs.append(Timed(name, prepared.version, time.perf_counter() - start, prepared.run))
        except Exception as error:  # of any class of its own
            missing.append(Missing(name, _first_line(error)))
    return runs, tuple(missing)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _rounds(runs: list[Callable[[], Any]], settings: Settings) -> list[list[float]]:
    """Time all in turns: milliseconds of each round."""
    rounds: list[list[float]] = [[] for _ in runs]
    start = time.perf_counter()
    for turn in range(settings.rounds):
        if turn >= LEAST_ROUNDS and time.perf_counter() - start > ENOUGH:
            break
        for number in range(len(runs)):
            at = (number + turn) % len(runs)
            if settings.threads > 1:
                time.sleep(SETTLE)
            rounds[at].append(time_runs(runs[at], settings.seconds)["median_ms"])
    return rounds


def instructions(text: str) -> str:
    """Name the instruction set of a processor as `machine.processor` describes it."""
    return AVX512 if "avx512f" in text else AVX2


def chosen(arguments: argparse.Namespace, kind: str) -> Iterator[tuple[Row, int]]:
    """Yield the rows that are asked for, with a number of threads each."""
    search_name = re.compile(arguments.only).search
    measured_keys = {item.key for item in page.latest(arguments.results)} if arguments.missing else set()
    for row in variants.rows().values():
        for threads in arguments.threads:
            is_selected = search_name(row.name) and (not arguments.quick or row.listed or stays(f"quick {row.name}", TENTH))
            if is_selected and (kind, row.name, "model", threads) not in measured_keys:
                yield row, threads


def run(arguments: argparse.Namespace, kind: str) -> Iterator[Measurement]:
    """Measure what is asked for, one by one."""
    machine_limits: dict[int, Limits] = {}
    until = time.perf_counter() + arguments.limit
    for row, threads in chosen(arguments, kind):
        if time.perf_counter() > until:
            return
        limit = machine_limits.get(threads) or machine_limits.setdefault(threads, limits(threads))
        settings = Settings(threads, arguments.rounds, arguments.seconds, f"x86:threads={threads}")
        yield Measurement.create(kind, row.name, "model", limit, measure(row, settings), group=str(row.part))


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the rows whose name this matches")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="of every engine, one measurement each; default: 1 2"
    )
    parser.add_argument("--rounds", type=int, help=f"default: 5, with --quick {QUICK_ROUNDS}")
    parser.add_argument("--seconds", type=float, help=f"of each engine in a round; default: 0.02, with --quick {QUICK_SECONDS}")
    parser.add_argument("--quick", action="store_true", help="only listed rows and a tenth of the others, in few rounds")
    parser.add_argument("--missing", action="store_true", help="only what the file of results has not yet")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin nothing new after so long")
    parser.add_argument("--draw", action="store_true", help="measure nothing: only draw the page")
    parser.add_argument("--results", type=Path, help="where measurements are kept; default: the user's cache folder")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else 5)
    arguments.seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else 0.02)
    arguments.results = arguments.results or cache_folder().parents[1] / "benchmarks" / "variants.jsonl"
    return arguments


def main() -> None:
    """Measure, keep and draw."""
    arguments = parse()
    if not arguments.draw:
        machine = processor()
        kind, package_versions = instructions(machine), versions(*DISTRIBUTIONS)
        for measurement in run(arguments, kind):
            measurement.keep(arguments.results, machine, package_versions)
            print(f"{measurement.kind} {measurement.line()}", flush=True)
    text = draw(page.latest(arguments.results), variants.rows())
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    elif arguments.draw:
        print(text)


if __name__ == "__main__":
    main()
