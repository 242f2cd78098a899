"""HTML fragments for notebook representations (`_repr_html_`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LINES = 200
"""Greatest number of lines that are shown of a text."""


def preformatted(text: str) -> str:
    """Format a text in a monospaced font, truncated to `LINES` lines."""
    lines = text.rstrip("\n").splitlines()
    more = f"\n... and {len(lines) - LINES} more lines" if len(lines) > LINES else ""
    return f"<pre>{escape(chr(10).join(lines[:LINES]) + more)}</pre>"


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], bar: int | None = None) -> str:
    """Format a table with a title. Column `bar` has values from 0 to 1, drawn as bars."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(_cell(value, column == bar) for column, value in enumerate(row)) + "</tr>" for row in rows)
    return f"<p><b>{escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object, bar: bool) -> str:
    content = escape(str(value))
    if bar and isinstance(value, float):
        width = round(100 * min(max(value, 0.0), 1.0))
        content = f'<div style="background:#2f7ed8;width:{width}px;height:1em" title="{value:.1%}"></div>'
    return f'<td style="text-align:left">{content}</td>'


def frame(page: str, height: int = 640) -> str:
    """Embed a whole HTML page in another one."""
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0"></iframe>'
