"""Check that no string in the sources of core and runtime is the import name of a target, format or tool.

    python tools/import_names.py [FOLDER ...]

Import contracts see `import` statements alone; this sees what could reach `importlib`. Docstrings may name anything. Prints each
string, and exits with 1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("core/inlaid", "runtime/src/inlaid_runtime")
HOOK = "inlaid_conformance"
"""A hook of the contract, which is called by its name. The name is also that of a package."""


def plugin_names() -> list[str]:
    """Return the import names of all packages but those of core and runtime."""
    folders = [*ROOT.glob("plugins/*/src/*/__init__.py"), *ROOT.glob("runtime/src/inlaid_*_runtime/__init__.py")]
    return sorted(file.parent.name for file in folders)


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the string constants of a module, without docstrings and the strings that document a value."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node


def violations(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield the strings in a folder's files that contain a name."""
    pattern = re.compile(rf"\b(?:{'|'.join(names)})\b")
    for file in sorted(folder.rglob("*.py")):
        for node in strings(ast.parse(file.read_text(encoding="utf-8"))):
            if node.value != HOOK and pattern.search(node.value):
                yield f"{file}:{node.lineno}: {node.value!r} names a package that core and runtime do not know"


def main(folders: Sequence[str]) -> int:
    """Run the command."""
    names = plugin_names()
    wrong = [text for folder in folders or SOURCES for text in violations(ROOT / folder, names)]
    print("\n".join(wrong) or f"no string of core and runtime is one of {len(names)} import names")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
