"""Unique names."""

from __future__ import annotations


def unique(wanted: str, taken: set[str]) -> str:
    """Return `wanted`, with a number appended if it is in `taken`. Adds the result to `taken`."""
    chosen, count = wanted, 0
    while chosen in taken:
        count += 1
        chosen = f"{wanted}_{count}"
    taken.add(chosen)
    return chosen
