"""Unique names."""

from __future__ import annotations


def unique(base: str, names: set[str]) -> str:
    """Return `base`, with a number appended if it is in `names`. Adds the result to `names`."""
    chosen, count = base, 0
    while chosen in names:
        count += 1
        chosen = f"{base}_{count}"
    names.add(chosen)
    return chosen
