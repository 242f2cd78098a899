"""Topological sorting of the nodes of a graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def sorted_nodes(nodes: Sequence[onnx.NodeProto]) -> Sequence[onnx.NodeProto]:
    """Sort the nodes topologically. ONNX requires this order, but some exporters violate it.

    Raises ValueError, naming nodes, if they form a cycle.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    reads = [[producer[name] for name in _names_read(node) if name in producer] for node in nodes]
    if all(source < index for index, sources in enumerate(reads) for source in sources):
        return nodes
    pending_counts = [len(sources) for sources in reads]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(reads):
        for source in sources:
            readers[source].append(index)
    worklist = deque(index for index, count in enumerate(pending_counts) if not count)
    order = []
    while worklist:
        index = worklist.popleft()
        order.append(index)
        for reader in readers[index]:
            pending_counts[reader] -= 1
            if not pending_counts[reader]:
                worklist.append(reader)
    if len(order) < len(nodes):
        stuck = [
            node.name or next(filter(None, node.output), node.op_type)
            for node, count in zip(nodes, pending_counts, strict=True)
            if count
        ]
        raise ValueError(
            f"the graph must be acyclic, but has a cycle of the nodes {', '.join(map(repr, stuck[:5]))}{'...' * (len(stuck) > 5)}"
        )
    return [nodes[index] for index in order]


def _names_read(node: onnx.NodeProto) -> Iterable[str]:
    """Yield the names that a node reads, including names that its subgraphs read from enclosing scopes."""
    from onnx import AttributeProto

    yield from node.input
    # The protobuf parser limits the depth of subgraphs.
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            defined_names = {item.name for item in graph.input} | {item.name for item in graph.initializer}
            defined_names.update(name for inner in graph.node for name in inner.output)
            yield from (name for inner in graph.node for name in _names_read(inner) if name not in defined_names)
            yield from (item.name for item in graph.output if item.name not in defined_names)
