"""Ranks of the elements of sequences whose types do not declare them, which exporters often write. A rank follows from the nodes
that use the sequence, and from the declared shapes of the tensors that these nodes insert or return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_RANK_PRESERVING = ("Identity", "SequenceErase", "SequenceInsert")
"""Operators whose result is a sequence of elements of the same rank as those of input 0."""


def element_ranks(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the ranks of the elements of sequences, by name, where uses of the sequence in the graph or its subgraphs show them.
    The first use in the order of the nodes decides. Takes time linear in the size of the graph."""
    graphs = [*_graphs(graph)]
    tensors = {name: rank for each in graphs for name, rank in _tensor_ranks(each)}
    # A damaged node may lack operands and results: its import refuses it.
    nodes = [node for each in graphs for node in each.node if node.input]
    sources: dict[str, list[str]] = {}
    for node in nodes:
        if node.op_type in _RANK_PRESERVING and node.output:
            sources.setdefault(node.output[0], []).append(node.input[0])
    ranks: dict[str, int] = {}
    for node in nodes:
        rank = _shown_rank(node, tensors)
        if rank is None:
            continue
        pending = [node.input[0]]
        while pending:
            name = pending.pop()
            if name not in ranks:  # otherwise its sources have ranks, too
                ranks[name] = rank
                pending += sources.get(name, ())
    return ranks


def _shown_rank(node: onnx.NodeProto, tensors: Mapping[str, int]) -> int | None:
    """Return the rank of the elements of the sequence that is input 0, from the ranks of tensors; None if the node shows none."""
    element_ranks, result_ranks = (
        [tensors[name] for name in names if name in tensors] for names in (node.input[1:2], node.output[:1])
    )
    if node.op_type == "SequenceInsert" and element_ranks:
        return element_ranks[0]
    if node.op_type == "SequenceAt" and result_ranks:
        return result_ranks[0]
    if node.op_type == "ConcatFromSequence" and result_ranks:
        has_new_axis = any(attribute.name == "new_axis" and attribute.i for attribute in node.attribute)
        return max(result_ranks[0] - has_new_axis, 0)
    return None


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs in attributes of its nodes, at any depth."""
    pending = [graph]
    while pending:
        each = pending.pop()
        yield each
        pending += (attribute.g for node in each.node for attribute in node.attribute if attribute.HasField("g"))


def _tensor_ranks(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """Yield the names and ranks of tensors whose shape a graph declares."""
    for item in (*graph.input, *graph.value_info, *graph.output):
        if item.type.tensor_type.HasField("shape"):
            yield item.name, len(item.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name, len(tensor.dims)
