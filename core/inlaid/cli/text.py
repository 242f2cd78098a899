"""Text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with all escaped that a terminal would act on or cannot show, such as control characters and marks that turn the
    direction of writing: names come from models, and models from anywhere. Ends of lines stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in text)
