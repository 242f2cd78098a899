"""The Sphinx extension of these pages: text from other files, generated sections, and links that work in a web site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx_inlaid.texts import site_text

DOCS = Path(__file__).parents[1]
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_MARKUP = re.compile(r"(?<=\S)\*|\*(?=\S)|\||_(?=\W|$)")


def setup(app: Any) -> dict[str, Any]:
    """Register the filters that pages and docstrings go through before they are parsed."""
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", escape)
    return {"parallel_read_safe": True}


def read(app: Any, name: str, source: list[str]) -> None:
    """Replace the source of a page by the text of the web site."""
    source[0] = site_text(DOCS / f"{name}.md", DOCS)


def escape(app: Any, what: str, name: str, documented: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with code in single backquotes: make that reStructuredText in which nothing else is markup."""
    lines[:] = _escaped("\n".join(lines)).split("\n")


def _escaped(text: str) -> str:
    parts = _CODE.split(text)
    return "".join(f"``{part}``\\ " if number % 2 else _MARKUP.sub(r"\\\g<0>", part) for number, part in enumerate(parts))
