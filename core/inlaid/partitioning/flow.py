"""Data flow between the operators of a function: producers and consumers of each value."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid.graph import ir
from inlaid.graph.scopes import Scopes, analyse
from inlaid.partitioning.annotate import targeted
from inlaid.partitioning.cost import byte_size
from inlaid_runtime.records import dataclass


@dataclass(frozen=True, eq=False)
class TransferredValue:
    """A value that may have to be transferred. `source` is the call that computes it (None: an input from the host), `size` is in
    bytes, `readers` are the calls that read it, `host` tells whether the host reads it."""

    source: ir.Call | None
    size: int
    readers: tuple[ir.Call, ...]
    host: bool = False


def collect_values(function: ir.Function) -> list[TransferredValue]:
    """Return all computed values and inputs, each with its readers."""
    scopes = analyse(function)
    values: dict[int, tuple[ir.Call | None, int, dict[int, ir.Call]]] = {}
    host_read_ids: set[int] = set()
    for expr in ir.post_order(function):
        if isinstance(expr, (ir.Tuple, ir.TupleItem, ir.Let)):
            continue
        reader = expr if isinstance(expr, ir.Call) and targeted(expr) else None
        for child in ir.children(expr):
            for part, source in _sources(child, scopes):
                _, _, readers = values.setdefault(id(part), (source, byte_size(part.type), {}))
                if reader is None:
                    host_read_ids.add(id(part))
                else:
                    readers[id(reader)] = reader
    return [
        TransferredValue(source, size, tuple(readers.values()), key in host_read_ids)
        for key, (source, size, readers) in values.items()
    ]


def _sources(expr: ir.Expr, scopes: Scopes) -> Iterator[tuple[ir.Expr, ir.Call | None]]:
    """Yield the values that an expression reads, also through tuples, with the operator call that computes each; no constants."""
    stack = [expr]
    while stack:
        part = scopes.resolve(stack.pop())
        match part:
            case ir.Constant() | ir.GlobalVar() | ir.Function():
                continue
            case ir.Tuple(fields=fields):
                stack.extend(fields)
            case ir.Let(body=body):
                stack.append(body)
            case ir.TupleItem(tuple=ir.Call() as call) if targeted(call):
                yield part, call
            case ir.TupleItem(tuple=ir.Tuple(fields=fields), index=index):
                stack.append(fields[index])
            case ir.Call() if targeted(part):
                yield part, part
            case _:
                yield part, None
