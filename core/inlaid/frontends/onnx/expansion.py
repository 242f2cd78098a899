"""How many nodes a model has once its functions are expanded, worked out before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from inlaid.frontends.limits import MAX_DEPTH, NestedTooDeep

if TYPE_CHECKING:
    import onnx

Key = tuple[str, str, str]
"""What a call of a function names: domain, name, overload."""


def standard_domain(name: str) -> str:
    """The name of a domain. That of the standard operators has two."""
    return "" if name == "ai.onnx" else name


class Expansion:
    """Counts nodes. `functions` are the model's own by key.

    Each function is counted once and the calls are added up by arithmetic, so that the cost is linear in the file.
    """

    def __init__(self, functions: Mapping[Key, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._totals: dict[Key, int] = {}

    def expanded(self, nodes: Iterable[onnx.NodeProto], depth: int = 0) -> int:
        """The number of nodes, those in subgraphs and called functions included; `depth` is that of the nodes themselves.

        The bodies by which ONNX defines operators are not counted. Raises `NestedTooDeep`.
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
    """The number of nodes as they stand in the file, those of subgraphs included. Raises `NestedTooDeep`."""
    return Expansion({}).expanded(nodes)


def subgraphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
