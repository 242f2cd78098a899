"""The glossary has the words that several classes of core and runtime are named after."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMON = {"error", "failed", "if", "kind", "lost", "warning"}
"""Words that need no explanation."""
USES = 3
"""Number of classes from which on a word needs an entry."""


def class_words() -> Counter[str]:
    """Count the words in the names of public classes of core and runtime, apart from operators."""
    words: Counter[str] = Counter()
    for folder in ("core/inlaid", "runtime/src/inlaid_runtime"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.is_relative_to(ROOT / "core/inlaid/ops"):
                continue
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    words.update({word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", node.name)})
    return words


def test_frequent_words_of_class_names_have_entries() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
    entries = {word.lower() for row in rows for word in re.findall(r"[A-Za-z][a-z]*", re.sub(r"`\w+`", "", row))}
    entries |= {row.strip("`").lower() for text in rows for row in re.findall(r"`\w+`", text)}
    frequent = {word for word, count in class_words().items() if count >= USES} - COMMON
    assert sorted(frequent - entries) == []


def test_classes_in_the_glossary_exist() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    sources = [*(ROOT / "core/inlaid").rglob("*.py"), *(ROOT / "runtime/src/inlaid_runtime").rglob("*.py")]
    defined = {name for path in sources for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)}
    assert sorted(set(re.findall(r"`([A-Z]\w+)`", page)) - defined) == []
