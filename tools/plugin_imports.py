"""Check what targets and formats import of Inlaid against the table "What a plugin may import" of docs/contract.md.

    python tools/plugin_imports.py [FOLDER ...]

A folder has a plugin's sources; the default is those of all targets and formats of this repository. Prints each import that the
table does not allow, and then exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "contract.md"
HEADING = "## What a plugin may import"
TOOLS = ("bench", "cli", "conformance", "quantization")
"""Plugins that are on top of the compiler, and import what they need of it."""
PACKAGES = ("inlaid", "inlaid_runtime")


def allowed(page: str) -> set[str]:
    """Read the modules of the table. A cell has lists, separated by semicolons: of modules, or, after "of `PACKAGE`:", of modules
    in a package."""
    modules = set()
    for row in re.findall(r"^\| (?!modules)[^|]*\| (.*) \|$", page.partition(HEADING)[2].partition("\n## ")[0], re.MULTILINE):
        for part in row.split(";"):
            package, names = re.fullmatch(r"\s*(?:of `([\w.]+)`:)?(.*)", part).groups()  # type: ignore[union-attr]
            modules |= {f"{package}.{name}" if package else name for name in re.findall(r"`([\w.]+)`", names)}
    return modules


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of what a file imports of Inlaid: for `from a import b`, the name `a.b`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.partition(".")[0] in PACKAGES)


def violations(folder: Path, modules: set[str]) -> Iterator[str]:
    """Yield the imports of a folder's files that import neither one of `modules` nor anything in one."""
    for file in sorted(folder.rglob("*.py")):
        for line, name in imports(file):
            parts = name.split(".")
            is_public = any(".".join(parts[:count]) in modules for count in range(2, len(parts) + 1))
            is_exported = parts[0] in modules and (len(parts) == 1 or not _is_module(parts[:2]))
            if not is_public and not is_exported:
                yield f"{file}:{line}: {name} is not in the table of {PAGE.name}"


def _is_module(parts: Sequence[str]) -> bool:
    """Test whether a name is that of a module of the core, not of an object that `inlaid` exports."""
    path = ROOT.joinpath("core", *parts)
    return path.is_dir() or path.with_suffix(".py").exists()


def main(folders: Sequence[str]) -> int:
    """Run the command."""
    sources = [Path(folder) for folder in folders] or [
        folder for folder in sorted(ROOT.glob("plugins/*/src")) if folder.parent.name not in TOOLS
    ]
    modules = allowed(PAGE.read_text(encoding="utf-8"))
    wrong = [text for folder in sources for text in violations(folder, modules)]
    print("\n".join(wrong) or f"{len(sources)} plugins import {len(modules)} modules or fewer of Inlaid: those of docs/contract.md")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
