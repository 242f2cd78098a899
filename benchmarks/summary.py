"""Summarize the benchmark pages: one table with a row per model and a column per instruction set and precision.

    python benchmarks/summary.py [--check]

Reads the tables of whole models that `benchmarks/bench.py` wrote to docs/ and writes the summary between the two marks of
docs/benchmarks-overview.md. With `--check`, writes nothing and exits with 1 if the summary differs from the pages.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from page import PRECISIONS, table_row, threads_text

DOCS = Path(__file__).parent.parent / "docs"
OVERVIEW = DOCS / "benchmarks-overview.md"
BEGIN, END = "<!-- summary -->\n", "<!-- end of summary -->\n"
RATIO = "ratio to the best peer"
"""Header of the column whose first number is the median ratio."""


@dataclass(frozen=True)
class Source:
    """A page of whole models, measured on one processor. `column`: instruction set and processor, as the table's header shows
    them. `detail`: instruction sets that the processor has."""

    column: str
    detail: str
    page: str


SOURCES = (
    Source("AVX2, Zen 4", "AMD EPYC with every engine held to AVX2 and FMA", "benchmarks-avx2.md"),
    Source("AVX-512, Zen 4", "AMD EPYC with AVX-512, VNNI and BF16", "benchmarks-zen4.md"),
    Source("AVX-512, Zen 5", "AMD EPYC with AVX-512, VNNI and BF16", "benchmarks.md"),
)


def ratios(text: str, precision: str, threads: int) -> dict[str, float]:
    """Parse the median ratio of each model from a page; empty if the page has no table for the precision and threads."""
    heading = f"## Whole models in {precision}, {threads_text(threads)}\n"
    section = text.partition(heading)[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    if not rows or RATIO not in rows[0]:
        return {}
    column = rows[0].index(RATIO)
    cells = ((row[0], re.match(r"\d+\.\d+", row[column])) for row in rows[2:] if len(row) > column)
    return {name: float(number[0]) for name, number in cells if number}


def summary(docs: Path = DOCS, threads: int = 1) -> str:
    """Render the table: models in rows, and below them the geometric means and the numbers of models slower than the best peer."""
    pages = {source: (docs / source.page).read_text(encoding="utf-8") for source in SOURCES if (docs / source.page).exists()}
    header, columns = ["model"], []
    for source, text in pages.items():
        for precision in PRECISIONS:
            model_ratios = {name.removesuffix("_int8"): ratio for name, ratio in ratios(text, precision, threads).items()}
            if model_ratios:
                header.append(f"{source.column}: {precision}")
                columns.append(model_ratios)
    lines = [table_row(header), table_row(["---"] * len(header))]
    for name in dict.fromkeys(name for model_ratios in columns for name in model_ratios):
        lines.append(table_row([name, *(f"{model_ratios[name]:.2f}" if name in model_ratios else "" for model_ratios in columns)]))
    lines.append(
        table_row(["geometric mean", *(f"**{statistics.geometric_mean(model_ratios.values()):.2f}**" for model_ratios in columns)])
    )
    lines.append(
        table_row(["slower models", *(str(sum(ratio > 1 for ratio in model_ratios.values())) for model_ratios in columns)])
    )
    machines = [f"- {source.column}: {source.detail}; [times]({source.page})." for source in pages]
    return "\n".join([*lines, "", *machines]) + "\n"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the summary differs")
    arguments = parser.parse_args()
    before = OVERVIEW.read_text(encoding="utf-8")
    head, _, rest = before.partition(BEGIN)
    after = f"{head}{BEGIN}{summary()}{END}{rest.partition(END)[2]}"
    if not arguments.check:
        OVERVIEW.write_text(after, encoding="utf-8")
    return int(arguments.check and after != before)


if __name__ == "__main__":
    sys.exit(main())
