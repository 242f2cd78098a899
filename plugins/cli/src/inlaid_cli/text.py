"""Escaping of text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape control characters, bidirectional marks and unprintable characters, except line ends. Names come from model files,
    which may be hostile."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in text)
