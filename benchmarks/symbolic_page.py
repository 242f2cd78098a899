"""Rows of symbolic.py as lines of JSON, and the page that is drawn from them."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from inlaid_bench.comparison import PEERS, Result
from page import milliseconds, parse_result, table_row, threads_text

PRECISIONS = ("f32", "bf16", "int8")
SYMBOLIC, STATIC = "symbolic", "static"
"""Labels of Inlaid's two packages."""
STATIC_GOAL, PEER_GOAL, COMPILE_GOAL = 1.15, 0.9, 1.5
"""Goals: of each row's time by that of the packages for its sizes; of the geometric mean of times by those of the best peer, where
no row may be above 1; and of the time to compile by that for one size."""


@dataclass(frozen=True)
class At:
    """One size: seconds that it took to compile for it, and all engines' times, the symbolic package's first; or why there are
    none."""

    sizes: Mapping[str, int]
    compile_s: float
    result: Result | str

    @property
    def static_ratio(self) -> float | None:
        """The symbolic package's time by that of the package for this size: the median over rounds."""
        static = [] if isinstance(self.result, str) else [item for item in self.result.timings if item.label == STATIC]
        return statistics.median(self.result.ratios(static[0])) if static and not isinstance(self.result, str) else None

    @property
    def peer_ratio(self) -> float | None:
        """The symbolic package's time by that of the best peer."""
        if isinstance(self.result, str) or self.result.best is None:
            return None
        return statistics.median(self.result.ratios(self.result.best))


@dataclass(frozen=True)
class Row:
    """A model or kernel at the sizes that were drawn for it, or why Inlaid could not compile it. `compile_s`: seconds, with
    symbolic sizes."""

    kind: str
    name: str
    precision: str
    cpu: str
    threads: int
    seed: int
    compile_s: float = 0.0
    at: tuple[At, ...] = ()
    failed: str = ""
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))
    machine: str = ""
    versions: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What it measures: a later one of the same key takes its place."""
        return self.kind, self.name, self.precision, self.cpu, self.threads

    @property
    def label(self) -> str:
        """The name, and the precision where that does not say it."""
        return self.name + (" in bf16" if self.precision == "bf16" else "")

    @property
    def static_ratio(self) -> float | None:
        """Geometric mean over sizes."""
        return _mean(item.static_ratio for item in self.at)

    @property
    def peer_ratio(self) -> float | None:
        """Geometric mean over sizes."""
        return _mean(item.peer_ratio for item in self.at)

    @property
    def compile_ratio(self) -> float | None:
        """Seconds to compile by those for one size, the mean over sizes."""
        durations = [item.compile_s for item in self.at if item.compile_s]
        return self.compile_s / statistics.mean(durations) if durations else None


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.geometric_mean(numbers) if numbers else None


def keep(path: Path, row: Row) -> None:
    """Append a row to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def parse(text: str) -> Row:
    """What `keep` wrote in one line."""
    facts = json.loads(text)
    at = tuple(At(item["sizes"], item["compile_s"], parse_result(item["result"])) for item in facts["at"])
    return Row(**{**facts, "at": at})


def latest(path: Path) -> list[Row]:
    """The last row of each, in the order in which they were first measured."""
    rows_by_key: dict[tuple[str, str, str, str, int], Row] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = parse(text)
        rows_by_key[row.key] = row
    return list(rows_by_key.values())


HEADER = "name, precision: symbolic / static / peers in ms at each size; ratios to static, to the best peer, of compile time"


def line(row: Row) -> str:
    """In short, for who watches."""
    if row.failed:
        return f"{row.name} {row.precision}: {row.failed}"
    times = "; ".join(f"{_sizes(item.sizes)}: {_times(item)}" for item in row.at)
    ratios = f"{_number(row.static_ratio)} {_number(row.peer_ratio)} {_number(row.compile_ratio)}"
    return f"{row.name:<24} {row.precision:<5}{ratios}  compile {row.compile_s:.1f} s; {times}"


def summary(rows: Sequence[Row]) -> str:
    """How many goals are met, and by whom not."""
    static = [(row.static_ratio, row.label) for row in rows if row.static_ratio is not None]
    peer = [(row.peer_ratio, row.label) for row in rows if row.peer_ratio is not None]
    compiling = [(row.compile_ratio, row.label) for row in rows if row.compile_ratio is not None]
    return "; ".join(
        [
            _judged("time by that of static packages", static, STATIC_GOAL),
            _judged("by that of the best peer", peer, 1.0, PEER_GOAL),
            _judged("compile time by that of static packages", compiling, COMPILE_GOAL),
            f"not measured: {', '.join(row.label for row in rows if row.static_ratio is None) or 'none'}.",
        ]
    )


def _judged(what: str, ratios: Sequence[tuple[float, str]], bound: float, mean: float | None = None) -> str:
    if not ratios:
        return f"{what}: no figures"
    above = [name for ratio, name in sorted(ratios, reverse=True) if ratio > bound]
    goal = f" (goal {mean:.2f})" if mean is not None else ""
    mean_ratio = statistics.geometric_mean([ratio for ratio, _ in ratios])
    return f"{what}: geometric mean {mean_ratio:.2f}{goal}, above {bound:.2f}: {', '.join(above) or 'none'}"


TITLE = "Benchmarks with symbolic sizes"


def draw(rows: Sequence[Row], title: str = TITLE) -> str:
    """The page, in Markdown."""
    dates = sorted(row.date for row in rows)
    sections = [
        [
            f"# {title}",
            "",
            f"Measured from {dates[0]} to {dates[-1]} by `python benchmarks/symbolic.py`." if rows else "Nothing is measured yet.",
            "",
            f"- Machine: {'; '.join(dict.fromkeys(row.machine for row in rows)) or 'none'}.",
            f"- Versions: {'; '.join(dict.fromkeys(row.versions for row in rows)) or 'none'}.",
            "",
            "One package with symbolic sizes beside packages that are compiled for one size each, and beside peers that run the "
            "same symbolic model. Sizes are drawn when the benchmark runs. Times are medians of rounds in milliseconds, one a "
            "size; ratios are medians of those within a round, their geometric mean over sizes, in brackets the greatest. "
            "*compile* is the wall time of a fresh process. *differs* is the greatest difference from a peer's outputs, relative "
            f"to their greatest number. Goals: at most {STATIC_GOAL} of a static package; at most {PEER_GOAL} of the best peer in "
            f"the geometric mean, no row above 1; at most {COMPILE_GOAL} of the time to compile for one size. Where Inlaid "
            "compiles for another processor (`--cpu`), peers still use the instructions of this one.",
        ]
    ]
    titles = {"model": "Whole models", "kernel": "Single kernels"}
    for kind, precision, cpu, threads in sorted({(row.kind, row.precision, row.cpu, row.threads) for row in rows}, key=_order):
        chosen = [row for row in rows if (row.kind, row.precision, row.cpu, row.threads) == (kind, precision, cpu, threads)]
        title = f"## {titles[kind]} in {precision}, {threads_text(threads)}"
        sections.append([title + (f", Inlaid for {cpu}" if cpu != "native" else ""), "", *_table(chosen), "", summary(chosen)])
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _order(group: tuple[str, str, str, int]) -> tuple[bool, str, int, int]:
    kind, precision, cpu, threads = group
    return kind == "kernel", "" if cpu == "native" else cpu, threads, PRECISIONS.index(precision)


def _table(rows: Sequence[Row]) -> list[str]:
    timed = {item.label for row in rows for at in row.at if not isinstance(at.result, str) for item in at.result.timings}
    peers = [name for name in PEERS if name in timed]
    header = ["name", "sizes", "symbolic, ms", "static, ms", "ratio to static", *(f"{name}, ms" for name in peers)]
    header += ["ratio to the best peer", "compile, s", "ratio to static", "differs", "date"]
    return [table_row(header), table_row(["---"] * len(header)), *(_cells(row, peers, len(header)) for row in rows)]


def _cells(row: Row, peers: Sequence[str], width: int) -> str:
    reason = row.failed or next((item.result for item in row.at if isinstance(item.result, str)), "")
    if reason:
        return table_row([row.name, reason, *[""] * (width - 3), row.date])
    cells = [row.name, "; ".join(_sizes(item.sizes) for item in row.at)]
    cells += [_column(row, SYMBOLIC), _column(row, STATIC), _worst(row.static_ratio, [item.static_ratio for item in row.at])]
    cells += [_column(row, peer) for peer in peers]
    differs = max((item.difference for at in row.at if not isinstance(at.result, str) for item in at.result.peers), default=0.0)
    cells += [_worst(row.peer_ratio, [item.peer_ratio for item in row.at]), f"{row.compile_s:.1f}", _number(row.compile_ratio)]
    return table_row([*cells, f"{differs:.0e}", row.date])


def _column(row: Row, label: str) -> str:
    times = [
        next((milliseconds(item.median) for item in at.result.timings if item.label == label), "-")
        for at in row.at
        if not isinstance(at.result, str)
    ]
    return "; ".join(times)


def _worst(mean: float | None, each: Sequence[float | None]) -> str:
    numbers = [value for value in each if value is not None]
    return _number(mean) + (f" ({max(numbers):.2f})" if len(numbers) > 1 else "")


def _sizes(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


def _times(at: At) -> str:
    if isinstance(at.result, str):
        return at.result
    return " / ".join(milliseconds(item.median) for item in at.result.timings)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
