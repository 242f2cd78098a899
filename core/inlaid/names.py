"""Names that are each given once."""

from __future__ import annotations


def unique(wanted: str, taken: set[str]) -> str:
    """The name, with a number where it is among those `taken`, to which it is added."""
    chosen, count = wanted, 0
    while chosen in taken:
        count += 1
        chosen = f"{wanted}_{count}"
    taken.add(chosen)
    return chosen
