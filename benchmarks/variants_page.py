"""The page of the matrix of variants, drawn from measurements."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inlaid_bench.comparison import Timing
from page import Measurement, milliseconds, table_row, threads_text
from variants import PARTS, Row

AVX512, AVX2 = "AVX-512", "AVX2"
"""Kinds of measurements: the instruction set that every engine may use."""
PEERS = ("onnxruntime", "openvino")
SIBLING, ALONE = "sibling", "activation alone"
"""Labels of what is timed besides Inlaid and its peers: the row's sibling, and the activation that follows its product."""
GOAL, PART_GOAL = 0.70, 0.80
"""Of the geometric mean of ratios over all rows, and over those of a part."""
SLOW, VERY_SLOW = 1.2, 1.5


@dataclass(frozen=True)
class Leg:
    """Measurements on one instruction set and number of threads, by name of the row."""

    instructions: str
    threads: int
    measurements: Mapping[str, Measurement]

    @property
    def title(self) -> str:
        """Name of the leg."""
        return f"{self.instructions}, {threads_text(self.threads)}"


def legs(every: Iterable[Measurement], rows: Mapping[str, Row]) -> list[Leg]:
    """Sort the measurements of rows that are still in the matrix by instruction set and threads."""
    by_leg: dict[tuple[str, int], dict[str, Measurement]] = {}
    for item in every:
        if item.name in rows:
            by_leg.setdefault((item.kind, item.limit.threads), {})[item.name] = item
    order = sorted(by_leg, key=lambda leg: (leg[0] != AVX512, leg))
    return [Leg(*leg, by_leg[leg]) for leg in order]


def sibling_ratio(item: Measurement) -> float | None:
    """Inlaid's time by that of the row's sibling, with the activation alone where it counts: the median over rounds."""
    timings = {} if isinstance(item.result, str) else {timing.label: timing for timing in item.result.timings}
    if SIBLING not in timings:
        return None
    mine, others = timings["inlaid"].rounds, timings[SIBLING].rounds
    alone = timings[ALONE].rounds if ALONE in timings else (0.0,) * len(others)
    return statistics.median(time / (other + extra) for time, other, extra in zip(mine, others, alone, strict=True))


def draw(every: Sequence[Measurement], rows: Mapping[str, Row]) -> str:
    """Render the page in Markdown."""
    lines = [
        "# Variants of ordinary models",
        "",
        f"{len(rows)} models one step beside what people write most often: another element type, form, shape or operand, or",
        "another operator after a product. Generated rows are the product of these axes, thinned by a hash of their names;",
        "listed rows were slow. A ratio is Inlaid's time by that of the better of ONNX Runtime and OpenVINO, the median over",
        "rounds: below 1 Inlaid is faster. A sibling's ratio is Inlaid's time by its own on another row, without the difference",
        "that the row is about. Types of quantized products are those of data and weights, with the weights' zero point:",
        "`u8*(s8-5)`. Before it is timed, a row has the values of ONNX Runtime without graph optimizations.",
        "`make bench-variants` measures and writes this page.",
        *([] if every else ["", "Nothing is measured yet."]),
    ]
    for machine, package_versions in dict.fromkeys((item.machine, item.versions) for item in every):
        lines += ["", f"Measured on {machine}; {package_versions}."]
    every_leg = legs(every, rows)
    for leg in every_leg:
        lines += ["", f"## {leg.title}", "", *_summary(leg, rows), *_slow(leg), *_siblings(leg, rows), *_failures(leg)]
    if every_leg:
        lines += ["", "## All rows", "", *_all(every_leg, rows)]
    return "\n".join(lines) + "\n"


def _summary(leg: Leg, rows: Mapping[str, Row]) -> list[str]:
    lines = [
        "| part | rows | compared | failed | without a peer | not measured | geometric mean | goal | above 1.2 | above 1.5 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for part in (*PARTS, None):
        names = [name for name, row in rows.items() if part in (row.part, None)]
        items = [leg.measurements[name] for name in names if name in leg.measurements]
        ratios = [item.ratio for item in items if item.ratio is not None]
        failed = sum(isinstance(item.result, str) for item in items)
        counts = (len(names), len(ratios), failed, len(items) - failed - len(ratios), len(names) - len(items))
        mean = f"**{statistics.geometric_mean(ratios):.2f}**" if ratios else "-"
        above = (sum(ratio > bound for ratio in ratios) for bound in (SLOW, VERY_SLOW))
        label = "all" if part is None else f"{part}: {PARTS[part]}"
        goal = GOAL if part is None else PART_GOAL
        lines.append(table_row([label, *map(str, counts), mean, f"{goal:.2f}", *map(str, above)]))
    return lines


def _slow(leg: Leg) -> list[str]:
    """The rows above 1.2."""
    items = [(item.ratio, item) for item in leg.measurements.values() if item.ratio is not None and item.ratio > SLOW]
    if not items:
        return []
    lines = ["", f"Above {SLOW}:", "", "| row | Inlaid, ms | peer, ms | ratio |", "|---|---|---|---|"]
    for ratio, item in sorted(items, key=lambda pair: -pair[0]):
        assert not isinstance(item.result, str) and item.result.best is not None
        lines.append(table_row([item.name, milliseconds(item.result.inlaid.median), _peer(item.result.best), f"{ratio:.2f}"]))
    return lines


def _peer(timing: Timing) -> str:
    return f"{milliseconds(timing.median)} {timing.label}"


def _siblings(leg: Leg, rows: Mapping[str, Row]) -> list[str]:
    """By what differs: how many rows keep the limit, and which do not."""
    ratios: dict[tuple[str, float | None], list[tuple[float, str]]] = {}
    for name, item in leg.measurements.items():
        sibling, ratio = rows[name].sibling, sibling_ratio(item)
        if sibling is not None and ratio is not None:
            ratios.setdefault((sibling.rule, sibling.limit), []).append((ratio, name))
    if not ratios:
        return []
    lines = ["", "Beside siblings:", "", "| differs in | rows | geometric mean | limit | above it | greatest | of |"]
    lines.append("|---|---|---|---|---|---|---|")
    for (rule, limit), pairs in ratios.items():
        above = "-" if limit is None else str(sum(ratio > limit for ratio, _ in pairs))
        greatest, name = max(pairs)
        mean = f"{statistics.geometric_mean(ratio for ratio, _ in pairs):.2f}"
        limit_text = "-" if limit is None else f"{limit:.2f}"
        lines.append(table_row([rule, str(len(pairs)), mean, limit_text, above, f"{greatest:.2f}", name]))
    return lines


def _failures(leg: Leg) -> list[str]:
    """Rows that have failed, and the reasons why peers did not take part."""
    lines = [f"- {item.name}: {item.result}" for item in leg.measurements.values() if isinstance(item.result, str)]
    absent = Counter(
        f"{missing.label}: {missing.reason}"
        for item in leg.measurements.values()
        if not isinstance(item.result, str)
        for missing in item.result.missing
    )
    lines += [f"- {count} rows without {reason}" for reason, count in absent.items()]
    return ["", "Failed, or without a peer:", "", *lines] if lines else []


def _all(every: Sequence[Leg], rows: Mapping[str, Row]) -> list[str]:
    lines = [
        "Ratios to the better peer, and in brackets to the sibling.",
        "",
        table_row(["row", "part", *(leg.title for leg in every), "sibling"]),
        table_row(["---"] * (len(every) + 3)),
    ]
    for name, row in rows.items():
        cells = [_cell(leg.measurements.get(name)) for leg in every]
        lines.append(table_row([name, str(row.part), *cells, row.sibling.row if row.sibling else "-"]))
    return lines


def _cell(item: Measurement | None) -> str:
    if item is None:
        return "-"
    if isinstance(item.result, str):
        return item.result.partition(":")[0]
    ratio, beside = item.ratio, sibling_ratio(item)
    return ("no peer" if ratio is None else f"{ratio:.2f}") + ("" if beside is None else f" ({beside:.2f})")
