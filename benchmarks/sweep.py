"""Times every canonical operator beside ONNX Runtime, as a static and as a symbolic model, and writes the page of operators.

    python benchmarks/sweep.py [--only REGEX] [--threads N] [--forms static symbolic] [--sizes small typical large]
    python benchmarks/sweep.py --missing --limit 600
    python benchmarks/sweep.py --draw --write docs/benchmarks-operators.md

Both engines run in this process, in turns; a ratio is taken within a round. Every measurement is appended to a file as a line of
JSON with its date, and the page is drawn from the latest of each, so that the whole may be measured in pieces: `--missing` leaves
out what the file has already, `--limit` stops after so many seconds. For small sizes a difference in microseconds is stated, since
what a call costs before and after the operator hides a ratio.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

import inlaid
import page
from inlaid import ops
from inlaid_bench.comparison import INLAID, Missing, Result, Timing
from inlaid_bench.engines import time_runs
from inlaid_runtime.errors import InlaidError
from machine import limits, processor, versions
from page import Measurement
from sweep_cases import CASES, SMALL, UNCOVERED, Case
from zoo import cache_folder

FORMS = ("static", "symbolic")
SIZES = tuple(dict.fromkeys(size for case in CASES for size in case.sizes))
PEER = "onnxruntime"
DISTRIBUTIONS = ("inlaid", "numpy", "onnx", "onnxruntime")
SETTLE = 0.1
"""Seconds before an engine's turn, where threads of the other may still spin."""
WORST = 20
GOAL, MAX_RATIO, MICROSECONDS = 0.9, 1.5, 3.0
"""Of the geometric mean of ratios, of the greatest, and of the greatest difference at small sizes."""


def uncovered() -> list[str]:
    """Canonical operators that no case is about and no reason is given for."""
    covered = {name for case in CASES for name in case.operators}
    return sorted(set(ops.TABLE) - covered - set(UNCOVERED))


def measure(case: Case, size: str, form: str, arguments: argparse.Namespace) -> Result | str:
    """One case on both engines; or why Inlaid cannot run it."""
    sizes = case.sizes[size]
    model = case.model(sizes if form == "static" else {})
    feeds = case.feeds(sizes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        start = time.perf_counter()
        try:
            executable = inlaid.compile(path, [f"{arguments.target}threads={arguments.threads}"], cache=False)
            outputs = list(executable.run(feeds).values())
        except InlaidError as error:
            return " ".join(str(error).split())
        runs: list[Callable[[], Any]] = [lambda: executable.run(feeds)]
        prepared = [time.perf_counter() - start]
        difference = 0.0
        missing: tuple[Missing, ...] = ()
        start = time.perf_counter()
        try:
            session = _session(path, arguments.threads)
            difference = page.difference(outputs, session.run(None, feeds))
            runs.append(lambda: session.run(None, feeds))
            prepared.append(time.perf_counter() - start)
        except Exception as error:  # of any class of its own
            missing = (Missing(PEER, str(error).splitlines()[0][:200]),)
    rounds: list[list[float]] = [[] for _ in runs]
    for turn in range(arguments.rounds):
        for number in range(len(runs)):
            at = (number + turn) % len(runs)
            if arguments.threads > 1:
                time.sleep(SETTLE)
            rounds[at].append(time_runs(runs[at], arguments.seconds)["median_ms"])
    labels = ((INLAID, inlaid.__version__, 0.0), (PEER, onnxruntime.__version__, difference))
    timings = (
        Timing(label, version, "", seconds, 0.0, 0.0, tuple(times), deviation)
        for (label, version, deviation), seconds, times in zip(labels, prepared, rounds, strict=False)
    )
    return Result(tuple(timings), missing)


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[Case, str, str]]:
    """The cases that are asked for, with a size and a form each."""
    search_name = re.compile(arguments.only).search
    measured_keys = {item.key for item in page.latest(arguments.results)} if arguments.missing else set()
    for case in CASES:
        for size in case.sizes:
            for form in FORMS:
                if form == "symbolic" and not case.sizes[size]:
                    continue
                is_selected = search_name(case.name) and size in arguments.sizes and form in arguments.forms
                if is_selected and (form, _name(case, size), "model", arguments.threads) not in measured_keys:
                    yield case, size, form


def _name(case: Case, size: str) -> str:
    return f"{case.name}, {size}"


def run(arguments: argparse.Namespace) -> Iterator[Measurement]:
    """What is asked for, one by one."""
    limit, until = None, time.perf_counter() + arguments.limit
    for case, size, form in chosen(arguments):
        if time.perf_counter() > until:
            return
        limit = limit or limits(arguments.threads)
        yield Measurement.create(form, _name(case, size), "model", limit, measure(case, size, form, arguments), group=size)


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the cases whose name this matches")
    parser.add_argument("--sizes", nargs="+", default=SIZES, choices=SIZES, metavar="SIZE", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS, metavar="FORM", help=f"of {', '.join(FORMS)}")
    parser.add_argument("--threads", type=int, default=1, help="of both engines")
    parser.add_argument("--cpu", default="", help="a processor or level that Inlaid compiles for, for comparing Inlaid with itself")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.02, help="how long each engine runs in a round, and 3 runs at least")
    parser.add_argument("--missing", action="store_true", help="only what the file of results has not yet")
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin nothing new after so long")
    parser.add_argument("--draw", action="store_true", help="measure nothing: only draw the page")
    parser.add_argument("--results", type=Path, help="where measurements are kept; default: the user's cache folder")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    arguments = parser.parse_args()
    arguments.results = arguments.results or cache_folder().parents[1] / "benchmarks" / "operators.jsonl"
    arguments.target = f"x86:cpu={arguments.cpu}," if arguments.cpu else "x86:"
    return arguments


# --- the page ---------------------------------------------------------------------------------------------------------


def draw(every: Sequence[Measurement]) -> str:
    """The page, in Markdown."""
    lines = [
        "# Every operator beside ONNX Runtime",
        "",
        "One model for each canonical operator that ONNX can say, at small, typical and large sizes, static and with free",
        "dimensions. Both engines run in turns on the same number of threads. A ratio is Inlaid's time by ONNX Runtime's, the",
        "median over rounds: below 1 Inlaid is faster. At small sizes the difference of a call is stated instead.",
        "`python benchmarks/sweep.py` measures, and draws this page with `--draw --write docs/benchmarks-operators.md`.",
    ]
    for machine, package_versions in dict.fromkeys((item.machine, item.versions) for item in every):
        lines += ["", f"Measured on {machine}; {package_versions}."]
    for threads in sorted({item.limit.threads for item in every}):
        mine = [item for item in every if item.limit.threads == threads]
        lines += ["", f"## {threads} thread{'s' * (threads > 1)}", "", *_summary(mine), "", *_worst(mine), "", *_all(mine)]
    lines += ["", "## Not compared", ""]
    reasons = {reason: [name for name, why in UNCOVERED.items() if why == reason] for reason in UNCOVERED.values()}
    lines += [f"- {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines) + "\n"


def _summary(every: Sequence[Measurement]) -> list[str]:
    lines = ["| form | size | cases | geometric mean | goal | above 1.5 |", "|---|---|---|---|---|---|"]
    for form in FORMS:
        for size in SIZES:
            measurements = [item for item in every if item.kind == form and item.group == size and item.ratio is not None]
            if measurements and size == SMALL:
                above = [value for item in measurements if (value := _microseconds(item)) > MICROSECONDS]
                middle = statistics.median(map(_microseconds, measurements))
                goal = f"{len(above)} above {MICROSECONDS:.0f} µs"
                lines.append(f"| {form} | {size} | {len(measurements)} | median {middle:+.1f} µs | | {goal} |")
            elif measurements:
                ratios = [item.ratio for item in measurements if item.ratio is not None]
                mean, slow_count = statistics.geometric_mean(ratios), sum(ratio > MAX_RATIO for ratio in ratios)
                lines.append(f"| {form} | {size} | {len(measurements)} | **{mean:.2f}** | {GOAL} | {slow_count} |")
    return lines


def _microseconds(item: Measurement) -> float:
    """How much longer a call takes than ONNX Runtime's: the median over rounds."""
    assert not isinstance(item.result, str)
    pairs = zip(item.result.inlaid.rounds, item.result.peers[0].rounds, strict=True)
    return statistics.median(inlaid_ms - other for inlaid_ms, other in pairs) * 1e3


def _worst(every: Sequence[Measurement]) -> list[str]:
    """The greatest ratios."""
    compared = sorted((item for item in every if item.group != SMALL and item.ratio), key=lambda item: -(item.ratio or 0))
    lines = [f"The worst {WORST}:", "", "| case | form | Inlaid, ms | onnxruntime, ms | ratio |", "|---|---|---|---|---|"]
    for item in compared[:WORST]:
        assert not isinstance(item.result, str)
        times = (page.milliseconds(timing.median) for timing in (item.result.inlaid, item.result.peers[0]))
        lines.append(f"| {item.name} | {item.kind} | {' | '.join(times)} | {item.ratio:.2f} |")
    return lines


def _all(every: Sequence[Measurement]) -> list[str]:
    lines = [
        "| case | static, ms | onnxruntime, ms | ratio | symbolic, ms | onnxruntime, ms | ratio | date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(item.name for item in every):
        cells, date = [name], ""
        for form in FORMS:
            item = next((item for item in every if item.name == name and item.kind == form), None)
            cells += ["-"] * 3 if item is None else _cells(item)
            date = max(date, "" if item is None else item.date)
        lines.append(f"| {' | '.join((*cells, date))} |")
    return lines


def _cells(item: Measurement) -> list[str]:
    if isinstance(item.result, str):
        return [item.result.replace("|", "/"), "", ""]
    inlaid_text = page.milliseconds(item.result.inlaid.median)
    if not item.result.peers:
        return [inlaid_text, "-", item.result.missing[0].reason.replace("|", "/")]
    ratio = f"{_microseconds(item):+.1f} µs" if item.group == SMALL else f"{item.ratio:.2f}"
    return [inlaid_text, page.milliseconds(item.result.peers[0].median), ratio]


def main() -> None:
    """Measure, keep and draw."""
    arguments = parse()
    if missing := uncovered():
        raise SystemExit(f"no case is about {', '.join(missing)}: add one to sweep_cases.py, or the reason why there is none")
    if not arguments.draw:
        machine, package_versions = processor(), versions(*DISTRIBUTIONS)
        for measurement in run(arguments):
            measurement.keep(arguments.results, machine, package_versions)
            print(f"{measurement.kind} {measurement.line()}", flush=True)
    text = draw(page.latest(arguments.results))
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    elif arguments.draw:
        print(text)


if __name__ == "__main__":
    main()
