"""Lists names that do not say what their value is, and public classes of core and runtime that share a name.

A name is vague if it is a bare participle, preposition or adjective, such as `found` or `of`, or has one as its first or last word:
`found_types`. Counted are assigned names, parameters, fields and attributes, functions, classes and modules, each where it is
bound. `python tools/names.py` fails if more than 0.5 % of the names of a distribution are vague, or if two public classes share a
name; `--list FOLDER` prints each vague name with its places.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
VAGUE = {
    *(
        "found",
        "of",
        "given",
        "known",
        "wanted",
        "made",
        "own",
        "place",
        "held",
        "whole",
        "taken",
        "kept",
        "others",
        "said",
        "told",
    ),
    *(
        "done",
        "gone",
        "seen",
        "used",
        "asked",
        "needed",
        "met",
        "many",
        "most",
        "few",
        "some",
        "all",
        "such",
        "same",
        "like",
        "near",
    ),
    *("far", "here", "there", "ready"),
}
"""Words that do not say what a value is. `first`, `last`, `left`, `right`, `other`, `before` and `after` do."""
SHARE = 0.005
"""Greatest share of vague names in a distribution."""
DISTRIBUTIONS = {
    "inlaid-runtime": ("runtime/src",),
    "inlaid-core": ("core",),
    **{f"inlaid-{folder.name}": (f"plugins/{folder.name}",) for folder in sorted((ROOT / "plugins").iterdir()) if folder.is_dir()},
    "benchmarks": ("benchmarks",),
    "tests": ("tests",),
    "tools": ("tools", "docs", "examples"),
}
"""Folders of each distribution, and of what is none."""


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each name that a module binds, with its line: by assignment, as a parameter, field, attribute, function or class."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


TERMS = {"all", "in_place"}
"""Names that Python or the field gives."""


def is_vague(name: str) -> bool:
    """Test whether a name, or its first or last word, is vague. Names of tests are sentences."""
    words = name.lower().strip("_").split("_")
    return not name.startswith("test_") and name.strip("_") not in TERMS and (words[0] in VAGUE or words[-1] in VAGUE)


def names_of_folder(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield each name that the Python files of a folder bind, and each module's name, with file and line."""
    for path in sorted(folder.rglob("*.py")):
        if {"build", "_build", ".venv", "node_modules"} & set(path.relative_to(folder).parts):
            continue
        yield path.stem if path.stem != "__init__" else path.parent.name, path, 1
        for name, line in bindings(ast.parse(path.read_text())):
            yield name, path, line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", metavar="FOLDER", nargs="?", const=".", help="print each vague name of a folder with its places")
    options = parser.parse_args()
    failed = False
    for distribution, folders in DISTRIBUTIONS.items():
        count = 0
        vague: dict[str, list[str]] = defaultdict(list)
        for folder in folders:
            for name, path, line in names_of_folder(ROOT / folder):
                count += 1
                if is_vague(name):
                    vague[name].append(f"{path.relative_to(ROOT)}:{line}")
        total = sum(map(len, vague.values()))
        failed |= total > SHARE * count
        print(f"{distribution:24} {count:6} names, {total:5} vague: {total / max(count, 1):.2%}")
        if options.list is not None:
            for name, places in sorted(vague.items(), key=lambda item: -len(item[1])):
                shown = [location for location in places if location.startswith(options.list.removeprefix("./").removeprefix("."))]
                if shown:
                    print(f"    {name} ({len(shown)}): {' '.join(shown[:8])}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
