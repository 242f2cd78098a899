"""Measurements as lines of JSON, and the page that is drawn from them."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from inlaid_bench.comparison import PEERS, UNFUSED, Missing, Result, Timing
from machine import Limits

PRECISIONS = ("f32", "bf16", "int8")
GOALS = {"resnet50": 0.70}
"""Time by that of the best peer in float32, where it is not `GOAL`."""
GOAL = 0.80
BOUND = 0.70
"""Where reading the weights takes this share of the best peer's time, as fast as the best peer is as good as can be."""


@dataclass(frozen=True)
class Measurement:
    """One model or operator on all engines. `result` is what became of it, or why Inlaid could not run it.

    `moved` are bytes: of a model's weights; of an operator's operands and result. `operations` are those of an operator, 0 where
    what it moves counts; `times` is how often its model has it.
    """

    kind: str
    name: str
    precision: str
    limit: Limits
    result: Result | str
    date: str
    machine: str = ""
    versions: str = ""
    group: str = ""
    times: int = 1
    operations: int = 0
    moved: int = 0

    @classmethod
    def create(
        cls,
        kind: str,
        name: str,
        precision: str,
        limit: Limits,
        result: Result | str,
        group: str = "",
        times: int = 1,
        operations: int = 0,
        moved: int = 0,
    ) -> Measurement:
        """A measurement made now."""
        date = time.strftime("%Y-%m-%d %H:%M")
        return cls(kind, name, precision, limit, result, date, group=group, times=times, operations=operations, moved=moved)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What it measures: a later one of the same key takes its place."""
        return self.kind, self.name, self.precision, self.limit.threads

    def keep(self, path: Path, machine: str, versions: str) -> None:
        """Append it to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {**asdict(self), "machine": machine, "versions": versions}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    @classmethod
    def parse(cls, text: str) -> Measurement:
        """What `keep` wrote in one line."""
        facts = json.loads(text)
        field_names = {item.name for item in fields(cls)}
        parsed = {"limit": Limits(**facts["limit"]), "result": parse_result(facts["result"])}
        return cls(**{**{name: facts[name] for name in field_names}, **parsed})

    @property
    def ratio(self) -> float | None:
        """Inlaid's time by that of the best peer: the median over rounds. None where there is no peer, or no result."""
        if isinstance(self.result, str) or self.result.best is None:
            return None
        return statistics.median(self.result.ratios(self.result.best))

    @property
    def bound(self) -> float:
        """Milliseconds that reading the weights takes."""
        return self.moved / self.limit.bandwidth * 1e3

    @property
    def bounded(self) -> bool:
        """Whether the weights' bytes leave little room below the best peer's time."""
        return not isinstance(self.result, str) and self.result.best is not None and self.bound > BOUND * self.result.best.median

    @property
    def goal(self) -> float:
        """What the ratio is to be at most."""
        return 1.0 if self.bounded else GOALS.get(self.name, GOAL)

    def line(self) -> str:
        """In short, for who watches."""
        head = f"{self.name} {self.precision} {threads_text(self.limit.threads)}: "
        if isinstance(self.result, str):
            return head + self.result
        times = ", ".join(f"{item.label} {milliseconds(item.median)}" for item in self.result.timings)
        return f"{head}{times} ms" + ("" if self.ratio is None else f"; ratio {self.ratio:.2f}, goal {self.goal:.2f}")


def parse_result(facts: Any) -> Result | str:
    """Parse a result from JSON; a failure message is returned as it is."""
    if isinstance(facts, str):
        return facts
    timings = (Timing(**{**item, "rounds": tuple(item["rounds"])}) for item in facts["timings"])
    return Result(tuple(timings), tuple(Missing(**item) for item in facts["missing"]))


def difference(actual: Sequence[Any], expected: Sequence[Any]) -> float:
    """Maximum difference, relative to the maximum magnitude of the output. Infinite if shapes differ, or if NaNs and infinities
    are at different places."""
    greatest = 0.0
    for output, other in zip(actual, expected, strict=True):
        if output.shape != other.shape:
            return float("inf")
        if output.size:
            mine, its = output.astype(np.float64), other.astype(np.float64)
            finite = np.isfinite(mine) & np.isfinite(its)
            if not np.array_equal(mine[~finite], its[~finite], equal_nan=True):
                return float("inf")
            mine, its = mine[finite], its[finite]
            greatest = max(greatest, float(np.abs(mine - its).max(initial=0)) / (float(np.abs(its).max(initial=0)) or 1.0))
    return greatest


def latest(path: Path) -> list[Measurement]:
    """The last measurement of each kind, in the order in which they were first made."""
    measurements_by_key: dict[tuple[str, str, str, int], Measurement] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        measurement = Measurement.parse(line)
        measurements_by_key[measurement.key] = measurement
    return list(measurements_by_key.values())


TITLE = "Benchmarks"


def draw(every: Sequence[Measurement], title: str = TITLE) -> str:
    """Render the page in Markdown."""
    sections = [_head(every, title)]
    for threads in sorted({item.limit.threads for item in every}):
        for precision in PRECISIONS:
            chosen = [item for item in every if item.key[0] == "model" and item.key[2:] == (precision, threads)]
            if chosen:
                sections.append(_models(chosen, precision, threads))
        chosen = [item for item in every if item.kind == "operator" and item.limit.threads == threads]
        if chosen:
            sections.append(_operators(chosen, threads))
    sections.append(_settings(every))
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _head(every: Sequence[Measurement], title: str) -> list[str]:
    def facts(values: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(values)) or "none"

    limits: dict[int, Limits] = {item.limit.threads: item.limit for item in every}
    measured = "; ".join(
        f"{threads_text(count)}: {limit.flops / 1e9:.0f} GFLOP/s in float32, {limit.bandwidth / 1e9:.0f} GB/s read from memory"
        for count, limit in sorted(limits.items())
    )
    dates = sorted(item.date for item in every)
    return [
        f"# {title}",
        "",
        f"Measured from {dates[0]} to {dates[-1]} by `python benchmarks/bench.py`." if dates else "Nothing is measured yet.",
        "",
        f"- Machine: {facts(item.machine for item in every)}.",
        f"- Measured limits, the latest: {measured}.",
        f"- Versions: {facts(item.versions for item in every)}.",
        "",
        "Times are medians of rounds in milliseconds, in brackets the least and the greatest round. A ratio is Inlaid's time by a "
        "peer's within one round: below 1, Inlaid is faster. *compile* is the wall time to compile and load in fresh processes, "
        "*peak MiB* the resident memory of the one that runs. *differs* is the greatest difference from a peer's outputs, "
        "relative to their greatest number. The goal is "
        f"{GOAL:.2f} of the best peer ({', '.join(f'{goal:.2f} for {name}' for name, goal in GOALS.items())}), and 1.00 where "
        f"reading the weights once, at the bandwidth measured, takes more than {BOUND:.0%} of the best peer's time.",
    ]


def _models(chosen: Sequence[Measurement], precision: str, threads: int) -> list[str]:
    timed = {timing.label for item in chosen if not isinstance(item.result, str) for timing in item.result.timings}
    engines = [name for name in (UNFUSED, *PEERS) if name in timed]
    header = ["model", "Inlaid, ms", *(f"{name}, ms" for name in engines), "ratio to the best peer", "goal", "met", "weights, ms"]
    header += ["differs", "compile, s", "peak MiB", "of the best peer", "date"]
    lines = [f"## Whole models in {precision}, {threads_text(threads)}", "", table_row(header), table_row(["---"] * len(header))]
    lines += [_model_row(item, engines, len(header)) for item in chosen]
    ratios = [item.ratio for item in chosen if item.ratio is not None]
    if ratios:
        goal_count = sum(item.ratio is not None and item.ratio <= item.goal for item in chosen)
        slower = [item.name for item in chosen if item.ratio is not None and item.ratio > 1]
        lines += [
            "",
            f"Geometric mean of the ratios over {len(ratios)} models: **{statistics.geometric_mean(ratios):.2f}**; "
            f"{goal_count} meet their goal; slower than the best peer: {', '.join(slower) or 'none'}.",
        ]
    return lines


def _model_row(item: Measurement, engines: Sequence[str], width: int) -> str:
    if isinstance(item.result, str):
        return table_row([item.name, item.result, *[""] * (width - 2)])
    times = {timing.label: milliseconds(timing.median) for timing in item.result.timings}
    best, inlaid = item.result.best, item.result.inlaid
    judged = ["-", "-", "-"]
    if best is not None and item.ratio is not None:
        judged = [
            f"{spread(item.result.ratios(best))} {best.label}",
            f"{item.goal:.2f}",
            "yes" if item.ratio <= item.goal else "no",
        ]
    return table_row(
        [
            item.name,
            _format_timing(inlaid),
            *(times.get(engine, "-") for engine in engines),
            *judged,
            milliseconds(item.bound),
            f"{max((peer.difference for peer in item.result.peers), default=0):.0e}",
            f"{inlaid.prepare_s:.1f}",
            f"{inlaid.peak_mib:.0f}",
            "-" if best is None else f"{best.peak_mib:.0f}",
            item.date,
        ]
    )


def _operators(chosen: Sequence[Measurement], threads: int) -> list[str]:
    header = ["group", "operator", "times", "Inlaid, ms", "GFLOP/s or GB/s", "of the peak", "onnxruntime, ms", "ratio", "date"]
    lines = [f"## Single operators in f32, {threads_text(threads)}", "", table_row(header), table_row(["---"] * len(header))]
    lines += [_operator_row(item, len(header)) for item in chosen]
    for group in dict.fromkeys(item.group for item in chosen if item.group.startswith("conv")):
        timed = [(item, item.result.inlaid) for item in chosen if item.group == group and not isinstance(item.result, str)]
        operations = sum(item.times * item.operations for item, _ in timed)
        seconds = sum(item.times * timing.median / 1e3 for item, timing in timed)
        if timed:
            share = operations / seconds / timed[-1][0].limit.flops
            lines += ["", f"{group}: {operations / seconds / 1e9:.0f} GFLOP/s weighted by time, {share:.0%} of the peak."]
    return lines


def _operator_row(item: Measurement, width: int) -> str:
    if isinstance(item.result, str):
        return table_row([item.group, item.name, str(item.times), item.result, *[""] * (width - 4)])
    rate = (item.operations or item.moved) / (item.result.inlaid.median / 1e3)
    peers = ["-", "-"]
    if item.result.peers:
        peers = [milliseconds(item.result.peers[0].median), spread(item.result.ratios(item.result.peers[0]))]
    share = f"{rate / item.limit.flops:.0%}" if item.operations else "-"  # what is only moved may well be in a cache
    inlaid = _format_timing(item.result.inlaid)
    return table_row([item.group, item.name, str(item.times), inlaid, f"{rate / 1e9:.1f}", share, *peers, item.date])


def _settings(every: Sequence[Measurement]) -> list[str]:
    """Under which settings engines ran, and which could not take part."""
    settled: dict[str, None] = {}
    absent: dict[str, list[str]] = {}
    for item in every:
        if item.kind == "model" and not isinstance(item.result, str):
            settled.update(dict.fromkeys(f"{timing.label} {timing.version}: {timing.settings}" for timing in item.result.timings))
            for missing in item.result.missing:
                absent.setdefault(f"{missing.label}, {item.precision}: {missing.reason}", []).append(item.name)
    lines = ["## Settings", "", *(f"- {text}" for text in settled)]
    if absent:
        absences = (f"- {reason} ({', '.join(dict.fromkeys(models))})" for reason, models in absent.items())
        lines += ["", "Did not take part:", "", *absences]
    return lines


def _format_timing(item: Timing) -> str:
    return f"{milliseconds(item.median)} ({milliseconds(min(item.rounds))} to {milliseconds(max(item.rounds))})"


def milliseconds(value: float) -> str:
    """Three digits that count."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if 0 < value < 100 else f"{value:.0f}"


def spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def threads_text(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def table_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
