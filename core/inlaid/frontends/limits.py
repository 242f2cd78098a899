"""How much a model may ask an import to do: what calls other graphs multiplies, and a kilobyte can stand for millions of nodes."""

from __future__ import annotations

MAX_DEPTH = 48
"""Greatest depth of functions and subgraphs within one another."""

_MAX_NODES = 500_000
_FREE_NODES = 20_000
_GROWTH = 100


class NestedTooDeep(ValueError):
    """Functions and subgraphs lie deeper within one another than `MAX_DEPTH`, or call themselves."""

    def __init__(self) -> None:
        super().__init__(f"functions and subgraphs are nested more than {MAX_DEPTH} deep, or without end")


def node_limit(written: int) -> int:
    """Greatest number of nodes to import from a model in which `written` nodes stand.

    Functions that call functions multiply: a kilobyte can stand for millions of nodes. The limit is in proportion to what the
    file holds, so that the time of an import is too, with room for a small file and for a function that is called often.
    """
    return min(_FREE_NODES + _GROWTH * written, max(_MAX_NODES, written))
