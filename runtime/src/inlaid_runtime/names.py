"""Unique names."""

from __future__ import annotations


def unique(base: str, names: set[str]) -> str:
    """Return `base`, with a number appended if it is in `names`. Adds the result to `names`."""
    name, count = base, 0
    while name in names:
        count += 1
        name = f"{base}_{count}"
    names.add(name)
    return name
