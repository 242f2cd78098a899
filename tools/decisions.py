"""Write docs/decisions.md, the index of the decision records in docs/adr by area and status.

    python tools/decisions.py [--check] [--root FOLDER]

A record's first paragraph after the title has its area and status, and what it supersedes or extends:

    Area: x86. Status: in force, superseded in part by [31](0031-code-is-linked-when-it-is-made.md). Extends: [8](0008-name.md).

Exits with 1 if a record has no area or status, a relation is stated on one side only, or a number is missing or used twice. With
`--check`, exits with 1 also if the page differs, and writes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
AREAS = {
    "core IR": "Nodes of the graph and of loop programs.",
    "operators": "Definitions and facts of operators.",
    "sizes": "Symbolic sizes, and conditions on them.",
    "partitioning": "Placement, regions, and conversions at their borders.",
    "passes and lowering": "From graphs to kernels and plans.",
    "schedules": "Loops, tiles and layouts of kernels, for all targets with vectors.",
    "driver": "The order of the stages, processes, caches, faults.",
    "plugin contract": "What targets declare and may rely on.",
    "x86": "x86-64 CPUs.",
    "devices with threads": "What `opencl` and `cuda` share.",
    "opencl": "OpenCL devices.",
    "cuda": "NVIDIA GPUs.",
    "vta_fpga": "The VTA accelerator.",
    "microcontroller": "C and firmware for microcontrollers.",
    "runtime and packages": "Packages, plans, and what runs them.",
    "formats": "Importers of model formats.",
    "quantization": "int8 and bfloat16 arithmetic.",
    "conformance and tests": "The conformance suite, and random models.",
    "tools": "Command line, profiles, benchmarks.",
    "docs": "Pages and references.",
    "repository": "Distributions, packages of the source, line counts.",
}
"""What a record may be about, in the order of the page."""
TARGETS = {"x86", "opencl", "cuda", "vta_fpga", "microcontroller"}
UNUSED_NUMBERS = {43, 47, 50, 55}
"""Numbers that no record ever had."""
INTRODUCTION = """# Decisions

Architecture decision records: context, decision, consequences, one page each. They are history: a decision that changes gets a new
record that supersedes the old one, in whole or in part. [Contributing](contributing.md) says how to write one.

`python tools/decisions.py` writes this page from the records.
"""
TOCTREE = """
```{toctree}
:hidden:
:glob:

adr/*
```
"""
LINK = r"\[(\d+)\]\(([\w.-]+\.md)\)"
LINKS = rf"{LINK}(?:, {LINK})*"
HEADER = re.compile(
    r"Area: (?P<area>[^.]+)\. Status: "
    rf"(?:(?P<force>in force)(?:, superseded in part by (?P<part_by>{LINKS}))?|superseded by (?P<by>{LINKS}))\."
    rf"(?: Supersedes: (?P<full>{LINKS})\.)?(?: Supersedes in part: (?P<part>{LINKS})\.)?(?: Extends: (?P<extends>{LINKS})\.)?"
)


@dataclass(frozen=True)
class Record:
    """A decision record. The relations are numbers of other records."""

    number: int
    file: str
    title: str
    area: str
    superseded_by: tuple[int, ...]
    superseded_in_part_by: tuple[int, ...]
    supersedes: tuple[int, ...]
    supersedes_in_part: tuple[int, ...]

    @property
    def link(self) -> str:
        """The record's number as a link from the page."""
        return f"[{self.number}](adr/{self.file})"


def parse_record(path: Path, names: set[str]) -> tuple[Record | None, list[str]]:
    """Parse title and header of a record, and return it with its problems. `names` are the files that links may refer to."""
    problems = []
    title_line, _, rest = path.read_text(encoding="utf-8").partition("\n\n")
    title = re.fullmatch(r"# (\d+)\. (.+)", title_line)
    header = HEADER.fullmatch(rest.partition("\n\n")[0].strip().replace("\n", " "))
    if title is None or int(title[1]) != int(path.name[:4]):
        return None, [f"{path.name}: expected the title '# {int(path.name[:4])}. ...', found {title_line!r}"]
    if header is None:
        return None, [
            f"{path.name}: expected 'Area: AREA. Status: STATUS.' in the paragraph after the title; see tools/decisions.py"
        ]
    if header["area"] not in AREAS:
        problems.append(f"{path.name}: unknown area {header['area']!r}, expected one of {', '.join(AREAS)}")
    numbers: dict[str, tuple[int, ...]] = {}
    for group in ("by", "part_by", "full", "part", "extends"):
        links = re.findall(LINK, header[group] or "")
        numbers[group] = tuple(int(number) for number, _ in links)
        problems += [
            f"{path.name}: [{number}]({name}) is not a link to record {number}"
            for number, name in links
            if name not in names or int(name[:4]) != int(number)
        ]
    record = Record(
        int(title[1]), path.name, title[2], header["area"], *(numbers[key] for key in ("by", "part_by", "full", "part"))
    )
    return record, problems


def number_problems(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the numbers that are missing, used twice, or declared unused and used."""
    counts = Counter(int(path.name[:4]) for path in paths)
    for number in range(1, max(counts, default=0) + 1):
        if counts[number] > 1:
            yield f"number {number}: expected one record, found {counts[number]}"
        elif (number in UNUSED_NUMBERS) == (counts[number] == 1):
            yield f"number {number}: {'declared unused, but used' if counts[number] else 'missing'}"


def relation_problems(records: Sequence[Record]) -> Iterator[str]:
    """Yield the relations that only one of two records states."""
    for newer, older, words in (
        ("supersedes", "superseded_by", ("Supersedes", "superseded by")),
        ("supersedes_in_part", "superseded_in_part_by", ("Supersedes in part", "superseded in part by")),
    ):
        stated = {(record.number, number) for record in records for number in getattr(record, newer)}
        confirmed = {(number, record.number) for record in records for number in getattr(record, older)}
        for new, old in sorted(stated - confirmed):
            yield f"record {old}: expected the status '{words[1]} {new}', since record {new} says '{words[0]}: {old}'"
        for new, old in sorted(confirmed - stated):
            yield f"record {new}: expected '{words[0]}: {old}', since record {old} has the status '{words[1]} {new}'"


def render(records: Sequence[Record]) -> str:
    """Return the text of the page."""
    by_number = {record.number: record for record in records}

    def links(numbers: Sequence[int]) -> str:
        return " and ".join(by_number[number].link for number in numbers if number in by_number)

    parts = [INTRODUCTION]
    for area, description in AREAS.items():
        lines = [
            f"* {record.link} {record.title}"
            + (f" (superseded in part by {links(record.superseded_in_part_by)})" if record.superseded_in_part_by else "")
            for record in records
            if record.area == area and not record.superseded_by
        ]
        if lines:
            heading = area if area in TARGETS else f"{area[0].upper()}{area[1:]}"
            parts.append("\n".join([f"## {heading}", "", description, "", *lines, ""]))
    retired = [
        f"* {record.link} {record.title}: superseded by {links(record.superseded_by)}" for record in records if record.superseded_by
    ]
    if retired:
        parts.append("\n".join(["## Superseded", "", *retired, ""]))
    return "\n".join(parts) + TOCTREE


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if the page differs, and write nothing")
    parser.add_argument("--root", metavar="FOLDER", type=Path, default=ROOT, help="the checkout to read and write")
    options = parser.parse_args()
    paths = sorted((options.root / "docs/adr").glob("[0-9][0-9][0-9][0-9]-*.md"))
    parsed = [parse_record(path, {path.name for path in paths}) for path in paths]
    records = [record for record, _ in parsed if record is not None]
    problems = [*number_problems(paths), *(text for _, texts in parsed for text in texts), *relation_problems(records)]
    page = options.root / "docs/decisions.md"
    text = render(records)
    if not options.check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        problems.append("docs/decisions.md differs from the records: run python tools/decisions.py")
    print("\n".join(problems) or f"{len(records)} decision records have area and status, and agree on what supersedes what")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
