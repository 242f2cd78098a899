"""Counts the nodes that a model has after its functions are expanded, before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from inlaid.frontends.limits import MAX_DEPTH, NestedTooDeep

if TYPE_CHECKING:
    import onnx

Key = tuple[str, str, str]
"""Key of a function: (domain, name, overload)."""


def standard_domain(name: str) -> str:
    """Normalize a domain name. The domain of the standard operators has two names, "" and "ai.onnx"."""
    return "" if name == "ai.onnx" else name


class Expansion:
    """Counts nodes. `functions` are the model's functions by key.

    Each function is counted once and its count is reused for each call, so that the time is linear in the size of the file.
    """

    def __init__(self, functions: Mapping[Key, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._totals: dict[Key, int] = {}

    def expanded(self, nodes: Iterable[onnx.NodeProto], depth: int = 0) -> int:
        """Count the nodes, including nodes in subgraphs and called functions. `depth` is the nesting depth of `nodes`.

        The function bodies of ONNX's own operators are not counted. Raises `NestedTooDeep`.
        """
        if depth > MAX_DEPTH:
            raise NestedTooDeep
        total = 0
        for node in nodes:
            total += 1 + sum(self.expanded(graph.node, depth + 1) for graph in subgraphs(node))
            key = (standard_domain(node.domain), node.op_type, node.overload)
            body = self._functions.get(key)
            if body is not None:
                if key not in self._totals:
                    self._totals[key] = self.expanded(body.node, depth + 1)
                total += self._totals[key]
        return total


def written_nodes(nodes: Iterable[onnx.NodeProto]) -> int:
    """Count the nodes in the file, including subgraphs. Raises `NestedTooDeep`."""
    return Expansion({}).expanded(nodes)


def subgraphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """Yield the graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
