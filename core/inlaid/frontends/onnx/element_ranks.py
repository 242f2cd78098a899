"""Ranks of the elements of sequences whose types declare none: exporters often write such inputs. The uses of a sequence, and the
shapes that the graph declares for what these read and write, show the rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_KEEPING = ("Identity", "SequenceErase", "SequenceInsert")
"""Operators whose result has the elements of input 0, or elements of their rank."""


def element_rank(graph: onnx.GraphProto, sequence: str) -> int | None:
    """Return the rank of the elements of a sequence that is an input of the graph; None if its uses do not show it."""
    graphs = [*_graphs(graph)]
    ranks = {name: rank for each in graphs for name, rank in _declared(each)}
    nodes = [node for each in graphs for node in each.node]
    names = _aliases(nodes, sequence)
    for node in nodes:
        if not node.input or node.input[0] not in names:
            continue
        # A damaged node may lack operands and results: its import refuses it.
        inserted, result = ([ranks[name] for name in items if name in ranks] for items in (node.input[1:2], node.output[:1]))
        if node.op_type == "SequenceInsert" and inserted:
            return inserted[0]
        if node.op_type == "SequenceAt" and result:
            return result[0]
        if node.op_type == "ConcatFromSequence" and result:
            stacked = any(attribute.name == "new_axis" and attribute.i for attribute in node.attribute)
            return max(result[0] - stacked, 0)
    return None


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs in attributes of its nodes, at any depth."""
    pending = [graph]
    while pending:
        each = pending.pop()
        yield each
        pending += (attribute.g for node in each.node for attribute in node.attribute if attribute.HasField("g"))


def _declared(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """Yield the names and ranks of tensors whose shape a graph declares."""
    for item in (*graph.input, *graph.value_info, *graph.output):
        if item.type.tensor_type.HasField("shape"):
            yield item.name, len(item.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name, len(tensor.dims)


def _aliases(nodes: Iterable[onnx.NodeProto], sequence: str) -> set[str]:
    """Return the names of sequences whose elements have the rank of those of `sequence`."""
    following: dict[str, list[str]] = {}
    for node in nodes:
        if node.op_type in _KEEPING and node.input and node.output:
            following.setdefault(node.input[0], []).append(node.output[0])
    found, pending = {sequence}, [sequence]
    while pending:
        new = [name for name in following.get(pending.pop(), ()) if name not in found]
        found.update(new)
        pending += new
    return found
