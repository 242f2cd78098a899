"""Limits on the work of an import. Nested calls multiply: a model of one kilobyte could expand to millions of nodes."""

from __future__ import annotations

MAX_DEPTH = 48
"""Maximum nesting depth of functions and subgraphs."""

_MAX_NODES = 500_000
_FREE_NODES = 20_000
_GROWTH = 100


class NestedTooDeep(ValueError):
    """Raised if functions and subgraphs are nested deeper than `MAX_DEPTH`, or recursive."""

    def __init__(self) -> None:
        super().__init__(f"functions and subgraphs must be nested at most {MAX_DEPTH} deep and not recursive")


def node_limit(written: int) -> int:
    """Return the maximum number of nodes to import from a model whose file has `written` nodes.

    The limit, and so the time of an import, is proportional to the size of the file, plus a constant that allows for small files
    and for functions that are called often.
    """
    return min(_FREE_NODES + _GROWTH * written, max(_MAX_NODES, written))
