"""Pages as the web site has them.

A page that begins with `<!-- text of: PATH -->` shows another file of the checkout, such as the README of a plugin. A line
`<!-- generated: NAME -->` is replaced by a section that a generator writes. A link to a file that a page shows leads to that
page; one to another file outside of docs/ becomes plain text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from sphinx_inlaid import commands, operators

GENERATORS: Mapping[str, Callable[[], str]] = {
    "commands": commands.render,
    "dtypes": operators.render_dtypes,
    "operators": operators.render,
}
_SHOWN = re.compile(r"\A<!-- text of: (\S+) -->\n")
_GENERATED = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)
_FENCED = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)[ \t]*$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")


def full_text(page: Path) -> str:
    """The text of a page with its generated sections; of the file that it shows, if it shows one."""
    text = shown_file(page).read_text(encoding="utf-8")
    return _GENERATED.sub(lambda match: GENERATORS[match[1]](), text)


def shown_file(page: Path) -> Path:
    """The file whose text a page shows: mostly itself."""
    match = _SHOWN.match(page.read_text(encoding="utf-8"))
    return page if match is None else (page.parent / match[1]).resolve()


def site_text(page: Path, docs: Path) -> str:
    """The text of a page, with links for a web site of the pages in the folder `docs`."""
    origin, pages = shown_file(page), pages_by_file(docs)

    def link(match: re.Match[str]) -> str:
        if not match["path"] or "://" in match["path"]:
            return match[0]
        file = (origin.parent / match["path"]).resolve()
        if file in pages or file.is_relative_to(docs):
            target = os.path.relpath(pages.get(file, file), page.parent)
            return f"{match['image']}[{match['text']}]({target}{match['anchor'] or ''})"
        return match["text"]

    return "".join(part if fenced else LINK.sub(link, part) for part, fenced in split_fences(full_text(page)))


def split_fences(text: str) -> Iterator[tuple[str, bool]]:
    """A text in parts: outside of fenced code, and fenced code."""
    for number, part in enumerate(_FENCED.split(text)):
        yield part, number % 2 == 1


@cache
def pages_by_file(docs: Path) -> Mapping[Path, Path]:
    """The page that shows a file, by file; the README's is the home page."""
    pages = {shown_file(page): page for page in docs.rglob("*.md")}
    return {**pages, docs.parent / "README.md": docs / "index.md"}
