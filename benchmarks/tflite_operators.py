"""The operators of TensorFlow Lite that Inlaid imports, and the element types that they take, as a table.

    python benchmarks/tflite_operators.py --write docs/tflite.md

puts it between the marks of the page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from inlaid_tflite.convert import CONVERTERS
from inlaid_tflite.node import Typed

BEGIN, END = "<!-- operators -->", "<!-- end of operators -->"


def table() -> str:
    """The table, and how many operators it has."""
    lines = [f"{len(CONVERTERS)} operators.", "", "| operator | types |", "| --- | --- |"]
    for name, convert in sorted(CONVERTERS.items()):
        which = "" if not isinstance(convert, Typed) or not convert.index else f" (input {convert.index})"
        lines.append(f"| {name} | {' '.join(convert.dtypes) + which if isinstance(convert, Typed) else 'any'} |")
    return "\n".join(lines)


def renewed(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="the page to renew; without it the table is printed")
    path = parser.parse_args().write
    if path is None:
        print(table())
    else:
        path.write_text(renewed(path.read_text()))


if __name__ == "__main__":
    main()
