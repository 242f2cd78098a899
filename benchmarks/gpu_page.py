"""Result rows of gpu.py as JSON lines, their goals, and the Markdown page."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpu_engines import COMPILED, COPY, REUSABLE_PEERS, TORCH, TRITON
from inlaid_bench.comparison import UNFUSED, Missing, Result, Timing
from page import milliseconds, parse_result, table_row

GROUPS: Mapping[str, str] = {
    "gemm": "Matrix products",
    "attention": "Attention",
    "memory": "Memory-bound operators",
    "models": "Whole models",
    "launch": "Launches and graphs",
    "conformance": "Conformance",
}
"""Titles of the groups, in execution order."""
COMMAND = "make bench-gpu"
CUBLAS, LATENCY, BANDWIDTH = 0.80, 0.90, 0.85
GOALS = (
    f"Matrix products in float16 reach at least {CUBLAS:.0%} of the rate of cuBLAS (called by PyTorch).",
    f"Models at batch 1 take at most {LATENCY:.2f} of the time of `torch.compile` in the same precision.",
    f"Memory-bound operators reach at least {BANDWIDTH:.0%} of the bandwidth of a device-to-device copy of the same size.",
)
BATCH_1 = "batch 1"
"""Suffix of the models that have a latency goal."""
TOLERANCES: Mapping[str, float] = {"f32": 1e-3, "tf32": 1e-2, "f16": 2e-2, "bf16": 3e-2}
"""Maximum difference from a peer, relative to the maximum magnitude of the output."""
LABELS = (COPY, TORCH, COMPILED, TRITON, UNFUSED)
SUITE = "suite"
"""Prefix of the rows of the conformance suite."""
NOT_MEASURED = "Not measured yet: no GPU has run this code."


def now() -> str:
    """Current date and time."""
    return time.strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True)
class Judged:
    """Result of comparing a row with its goal. `value` is a fraction of the peer's rate or of its time."""

    value: float
    reaches_goal: bool
    text: str


@dataclass(frozen=True)
class Row:
    """One measurement on a device. `result`: times of all engines, counts by name, or a failure message. `operations`:
    multiplications and additions; `moved`: bytes read and written; 0 if not counted. `kept`: peers whose times were reused from an
    earlier row."""

    group: str
    name: str
    precision: str
    device: str
    driver: str
    result: Result | Mapping[str, float] | str
    operations: int = 0
    moved: int = 0
    kept: tuple[str, ...] = ()
    versions: str = ""
    date: str = field(default_factory=now)

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identity: a later row of the same key replaces this one."""
        return self.group, self.name, self.precision, self.device, self.driver

    def peer(self, label: str) -> Timing | None:
        """Times of an engine; None if not measured."""
        timings = self.result.timings if isinstance(self.result, Result) else ()
        return next((item for item in timings if item.label == label), None)

    def missing(self, label: str) -> Missing | None:
        """Why a peer was not measured; None if it was."""
        missing_peers = self.result.missing if isinstance(self.result, Result) else ()
        return next((item for item in missing_peers if item.label == label), None)

    def ratio(self, label: str) -> float | None:
        """Inlaid's time divided by a peer's: median of ratios within rounds, or ratio of medians if the peer's is reused."""
        other = self.peer(label)
        if other is None or not isinstance(self.result, Result):
            return None
        inlaid = self.result.inlaid
        return inlaid.median / other.median if label in self.kept else statistics.median(self.result.ratios(other))

    @property
    def difference(self) -> float | None:
        """Maximum difference from a peer's results; None without a peer."""
        compared = [self.peer(label) for label in (TORCH, COMPILED, TRITON, UNFUSED) if label not in self.kept]
        return max((item.difference for item in compared if item is not None), default=None)

    @property
    def wrong(self) -> bool:
        """Whether Inlaid failed, differs from a peer by more than the tolerance, or fails a conformance case."""
        if isinstance(self.result, str):
            return True
        if isinstance(self.result, Mapping):
            return self.name.startswith(SUITE) and self.result["failed"] > 0
        return self.difference is not None and not self.difference <= TOLERANCES[self.precision]

    @property
    def judged(self) -> Judged | None:
        """Comparison with the row's goal; None if it has no goal or the peer is missing."""
        label, limit, least = _GROUP_GOALS.get((self.group, self.precision), _GROUP_GOALS.get((self.group, ""), ("", 0.0, True)))
        ratio = self.ratio(label)
        if ratio is None or (self.group == "models" and not self.name.endswith(BATCH_1)):
            return None
        value = 1 / ratio if least else ratio
        reaches_goal = not self.wrong and (value >= limit if least else value <= limit)
        verdict = "met" if reaches_goal else "not met"
        return Judged(value, reaches_goal, f"{value:.2f} (at {'least' if least else 'most'} {limit:.2f}): {verdict}")


_GROUP_GOALS: Mapping[tuple[str, str], tuple[str, float, bool]] = {
    ("gemm", "f16"): (TORCH, CUBLAS, True),
    ("models", ""): (COMPILED, LATENCY, False),
    ("memory", ""): (COPY, BANDWIDTH, True),
}
"""Goals by group and precision ("" for all): the peer, the limit, and whether it is a minimum rate or else a maximum time."""


def keep(path: Path, row: Row) -> None:
    """Append a row to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def parse(text: str) -> Row:
    """Parse one line that `keep` wrote."""
    facts = json.loads(text)
    result = facts["result"]
    if isinstance(result, str) or "timings" in result:
        result = parse_result(result)
    return Row(**{**facts, "result": result, "kept": tuple(facts["kept"])})


def latest(path: Path) -> list[Row]:
    """The latest row of each key, in the order of first measurement."""
    rows_by_key: dict[tuple[str, ...], Row] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = parse(text)
        rows_by_key[row.key] = row
    return list(rows_by_key.values())


def reusable_timings(before: Row | None, current: Mapping[str, str]) -> tuple[Timing, ...]:
    """Times in a row that can be reused: of `REUSABLE_PEERS` whose version is unchanged. `current`: installed versions by label."""
    timings = [] if before is None else [before.peer(label) for label in REUSABLE_PEERS]
    return tuple(item for item in timings if item is not None and item.version == current.get(item.label))


def line(row: Row) -> str:
    """One line for the terminal."""
    head = f"{row.group}: {row.name} {row.precision}".rstrip()
    if isinstance(row.result, str):
        return f"{head}: {row.result}"
    if not isinstance(row.result, Result):
        return f"{head}: " + ", ".join(f"{name} {value:g}" for name, value in row.result.items())
    times = ", ".join(f"{item.label} {milliseconds(item.median)}" for item in row.result.timings)
    judged = f"; {row.judged.text}" if row.judged else ""
    return f"{head}: {times} ms{judged}{'; DIFFERS' if row.wrong else ''}"


# --- the page -------------------------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row]) -> str:
    """The page, in Markdown."""
    head = [
        "# Benchmarks on NVIDIA GPUs",
        "",
        f"The `cuda` target compared with PyTorch (cuBLAS, cuDNN, `torch.compile`) and Triton on the same device by `{COMMAND}`.",
    ]
    goals = ["## Goals", "", *(f"- {text}" for text in GOALS)]
    if not rows:
        return "\n".join([*head, "", NOT_MEASURED, "", *goals, "", *_HOW]) + "\n"
    sections = [[*head, "", *_HOW_READ], goals]
    for device, driver in dict.fromkeys((row.device, row.driver) for row in rows):
        mine = [row for row in rows if (row.device, row.driver) == (device, driver)]
        dates = sorted(row.date for row in mine)
        versions = "; ".join(dict.fromkeys(row.versions for row in mine))
        facts = f"Driver: {driver}. Measured from {dates[0]} to {dates[-1]}. Versions: {versions}."
        sections.append([f"## {device}", "", facts, "", _summary(mine)])
        for group, title in GROUPS.items():
            chosen = [row for row in mine if row.group == group]
            if chosen:
                sections.append([f"### {title}", "", *_table(chosen)])
        sections.append(_settings(mine))
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


_HOW = (
    "## How to measure",
    "",
    "On a machine with an NVIDIA GPU and its driver:",
    "",
    "```console",
    f"$ {COMMAND}                # all groups, of at most 8 minutes each",
    f"$ {COMMAND} GROUP=gemm     # {', '.join(GROUPS)}",
    "```",
    "",
    "Peers: `pip install torch torchvision onnx2torch triton`; the columns of missing peers say so. A later call resumes with the",
    "rows that were measured longest ago. Without a GPU the command prints the reason, writes nothing and exits with status 2.",
)
_HOW_READ = (
    "Times are medians over rounds in which engines alternate, measured by CUDA events with operands in device memory. Operators",
    "run as graphs of repeated calls, without launch overhead; models run call by call, each call waiting for its results. A ratio",
    "is Inlaid's time divided by the peer's within a round: below 1, Inlaid is faster. *differs* is the maximum difference from a",
    "peer's results, relative to their maximum magnitude. An asterisk marks a peer's time of an earlier run on the same device and",
    "version.",
)


def _summary(rows: Sequence[Row]) -> str:
    """Number of goals met, and failed rows."""
    parts = []
    for group in GROUPS:
        judged = [row.judged for row in rows if row.group == group and row.judged is not None]
        if judged:
            parts.append(f"{group}: {sum(item.reaches_goal for item in judged)} of {len(judged)}")
    wrong = [f"{row.name} {row.precision}".rstrip() for row in rows if row.wrong]
    return f"Goals met: {'; '.join(parts) or 'none could be judged'}. Failed or beyond the tolerance: {', '.join(wrong) or 'none'}."


def _table(rows: Sequence[Row]) -> list[str]:
    named = [row for row in rows if not isinstance(row.result, (str, Result))]
    if named:
        return _numbers(rows)
    labels = [label for label in LABELS if any(row.peer(label) or row.missing(label) for row in rows)]
    rate = _rate_unit(rows[0])
    header = ["what", "precision", "Inlaid, ms", *([rate] if rate else [])]
    header += [text for label in labels for text in (f"{label}, ms", "ratio")]
    header += ["goal", "differs", "date"]
    return [table_row(header), table_row(["---"] * len(header)), *(_cells(row, labels, rate, len(header)) for row in rows)]


def _rate_unit(row: Row) -> str:
    return "TFLOP/s" if row.operations else "GB/s" if row.moved else ""


def _cells(row: Row, labels: Sequence[str], rate: str, width: int) -> str:
    if not isinstance(row.result, Result):
        return table_row([row.name, row.precision, str(row.result), *[""] * (width - 4), row.date])
    inlaid_median = row.result.inlaid.median
    cells = [row.name, row.precision, milliseconds(inlaid_median)]
    if rate:
        cells.append(f"{row.operations / inlaid_median / 1e9:.1f}" if row.operations else f"{row.moved / inlaid_median / 1e6:.0f}")
    for label in labels:
        other, ratio = row.peer(label), row.ratio(label)
        mark = "*" if label in row.kept else ""
        absent = row.missing(label)
        cells += [absent.reason if absent else "-", "-"] if other is None else [milliseconds(other.median) + mark, f"{ratio:.2f}"]
    differs = "-" if row.difference is None else f"{row.difference:.0e}{' (too much)' if row.wrong else ''}"
    return table_row([*cells, row.judged.text if row.judged else "-", differs, row.date])


def _numbers(rows: Sequence[Row]) -> list[str]:
    """Table of rows whose results are counts."""
    names = list(dict.fromkeys(name for row in rows if isinstance(row.result, Mapping) for name in row.result))
    header = ["what", *names, "date"]
    lines = [table_row(header), table_row(["---"] * len(header))]
    for row in rows:
        if isinstance(row.result, Mapping):
            numbers = [row.result.get(name, math.nan) for name in names]
            lines.append(table_row([row.name, *("-" if math.isnan(value) else f"{value:.4g}" for value in numbers), row.date]))
        else:
            lines.append(table_row([row.name, str(row.result), *[""] * (len(names) - 1), row.date]))
    return lines


def _settings(rows: Sequence[Row]) -> list[str]:
    """Versions and settings of engines."""
    timed = [(row.group, item) for row in rows if isinstance(row.result, Result) for item in row.result.timings]
    settled = dict.fromkeys(f"- {item.label} {item.version}".rstrip() + f", {group}: {item.settings}" for group, item in timed)
    return ["### Settings", "", *settled]
