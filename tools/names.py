"""Check that names say what their value is, and that no two public classes of core and runtime share a name.

    python tools/names.py [--root FOLDER] [--list [FOLDER]]

A name is vague if it is a bare participle, preposition or adjective, such as `found` or `of`, or has one as its first or last word:
`found_types`. Counted are assigned names, parameters, fields and attributes, functions, classes and modules, each where it is
bound. Exits with 1 if more than 0.5 % of the names of a distribution are vague, or if two public classes share a name. Prints the
shared names, and with `--list` each vague name with its places.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# fmt: off
VAGUE = {
    "found", "of", "given", "known", "wanted", "made", "own", "place", "held", "whole", "taken", "kept",
    "others", "said", "told", "done", "gone", "seen", "used", "asked", "needed", "met", "many", "most",
    "few", "some", "all", "such", "same", "like", "near", "far", "here", "there", "ready",
}
# fmt: on
"""Words that do not say what a value is. `first`, `last`, `left`, `right`, `other`, `before` and `after` do."""
SHARE = 0.005
"""Greatest share of vague names in a distribution."""
TERMS = {"all", "in_place"}
"""Names with vague words that are terms of Python or of the field."""
CLASS_FOLDERS = ("runtime/src/inlaid_runtime", "core/inlaid")
"""Folders whose public classes have distinct names."""
SHARED_CLASSES = {
    "Call": "a node of the graph and an instruction of plans",
    "Const": "a node of size expressions and of loop programs",
    "Expr": "the base of the nodes of each IR",
    "If": "a node of the graph and of loop programs",
    "Let": "a node of the graph and of loop programs",
    "Loop": "a node of the graph and an instruction of plans",
    "Select": "a node of size expressions and of loop programs",
    "Var": "a node of size expressions and of the graph",
}
"""Classes that may share a name, and what they are: nodes of IRs, which modules tell apart (`ir.If`, `graph.If`)."""


def distributions(root: Path) -> dict[str, tuple[str, ...]]:
    """Return the folders of each distribution, and of code outside distributions."""
    return {
        "inlaid-runtime": ("runtime/src",),
        "inlaid-core": ("core",),
        **{f"inlaid-{folder.name}": (f"plugins/{folder.name}",) for folder in sorted(root.glob("plugins/*")) if folder.is_dir()},
        "benchmarks": ("benchmarks",),
        "tests": ("tests",),
        "tools": ("tools", "docs", "examples"),
    }


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


def is_vague(name: str) -> bool:
    """Test whether a name, or its first or last word, is vague. Names of tests are sentences."""
    plain = name.lower().strip("_")
    words = plain.split("_")
    is_term = plain in TERMS or plain.endswith("_in_place")
    return not name.startswith("test_") and not is_term and (words[0] in VAGUE or words[-1] in VAGUE)


def names_of_folder(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield each name that the Python files of a folder bind, and each module's name, with file and line."""
    for path in sorted(folder.rglob("*.py")):
        if {"build", "_build", ".venv", "node_modules"} & set(path.relative_to(folder).parts):
            continue
        yield path.stem if path.stem != "__init__" else path.parent.name, path, 1
        for name, line in bindings(ast.parse(path.read_text())):
            yield name, path, line


def shared_classes(root: Path) -> dict[str, list[str]]:
    """Return the files of public classes of core and runtime that share a name, by name. A class may have the name of its base."""
    classes: dict[str, list[tuple[str, ast.ClassDef]]] = defaultdict(list)
    for folder in CLASS_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].append((f"{path.relative_to(root)}:{node.lineno}", node))
    result = {}
    for name, definitions in sorted(classes.items()):
        derived = [name in {ast.unparse(base).split(".")[-1] for base in node.bases} for _, node in definitions]
        if derived.count(False) > 1 and name not in SHARED_CLASSES:
            result[name] = [location for location, _ in definitions]
    return result


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", metavar="FOLDER", type=Path, default=ROOT, help="check the checkout in this folder")
    parser.add_argument("--list", metavar="FOLDER", nargs="?", const=".", help="print each vague name of a folder with its places")
    options = parser.parse_args()
    failed = False
    for distribution, folders in distributions(options.root).items():
        count = 0
        vague: dict[str, list[str]] = defaultdict(list)
        for folder in folders:
            for name, path, line in names_of_folder(options.root / folder):
                count += 1
                if is_vague(name):
                    vague[name].append(f"{path.relative_to(options.root)}:{line}")
        total = sum(map(len, vague.values()))
        failed |= total > SHARE * count
        print(f"{distribution:24} {count:6} names, {total:5} vague: {total / max(count, 1):.2%}")
        if options.list is not None:
            for name, places in sorted(vague.items(), key=lambda item: -len(item[1])):
                shown = [location for location in places if location.startswith(options.list.removeprefix("./").removeprefix("."))]
                if shown:
                    print(f"    {name} ({len(shown)}): {' '.join(shown[:8])}")
    for name, places in shared_classes(options.root).items():
        failed = True
        print(f"{len(places)} classes are named {name}, expected one: {' '.join(places)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
