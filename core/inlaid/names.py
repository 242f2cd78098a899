"""Unique names."""

from __future__ import annotations


def unique(wanted: str, taken: set[str]) -> str:
    """Append a number to `wanted` if it is in `taken`. The result is added to `taken`."""
    chosen, count = wanted, 0
    while chosen in taken:
        count += 1
        chosen = f"{wanted}_{count}"
    taken.add(chosen)
    return chosen
