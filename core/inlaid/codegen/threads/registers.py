"""Scalar replacement: buffers whose indices are all constant become variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inlaid.codegen.threads.indices import flat_index
from inlaid.tensor import ir
from inlaid_runtime import arith

MAX_NAMES = 1024
"""Maximum elements of a buffer outside scope `register` that is replaced by variables."""


@dataclass(frozen=True)
class RegisterNames:
    """Variables of a buffer's elements: `width` elements per variable, in order."""

    names: tuple[str, ...]
    width: int

    def at(self, index: int) -> tuple[str, int]:
        """Return the variable that holds an element, and the element's lane in it."""
        return self.names[index // self.width], index % self.width


def choose_width(buffer: ir.Buffer, body: ir.Stmt, lanes: tuple[int, ...]) -> tuple[int, int]:
    """Return (elements per variable, elements) of a buffer allocated around `body`; (0, 0) if an index is not constant.

    Variables are vectors as wide as the vectorized loops that access the buffer, if all accesses are aligned vectors; else scalars.
    The last vector may exceed the buffer, in lanes that are never read.
    """
    widths: set[int] = set()
    end = 1
    for flat, loop in _indexed_accesses(buffer, body, None):
        if loop is not None and loop.var in arith.free_vars(flat):
            stride_and_base = arith.affine(flat, loop.var)
            if (
                stride_and_base is None
                or not isinstance(stride_and_base[1], arith.Const)
                or not isinstance(stride_and_base[0], arith.Const)
            ):
                return 0, 0
            extent = loop.extent.value if isinstance(loop.extent, arith.Const) else 0
            is_vector = stride_and_base[0].value == 1 and extent in lanes and stride_and_base[1].value % extent == 0
            widths.add(extent if is_vector else 1)
            end = max(end, stride_and_base[1].value + max(stride_and_base[0].value * (extent - 1), 0) + 1)
        elif isinstance(index := arith.simplify(flat), arith.Const):
            end = max(end, index.value + 1)
        else:
            return 0, 0
    return (widths.pop() if len(widths) == 1 else 1), end


def _indexed_accesses(buffer: ir.Buffer, stmt: ir.Stmt, loop: ir.For | None) -> Iterator[tuple[arith.Expr, ir.For | None]]:
    """Yield the flat index of each access to a buffer, with the enclosing vectorized loop."""
    if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED:
        loop = stmt
    if isinstance(stmt, ir.Store) and stmt.buffer is buffer:
        yield flat_index(buffer, stmt.indices), loop
    if isinstance(stmt, ir.Intrinsic) and any(region.buffer is buffer for region in stmt.regions):
        yield arith.Var("unknown"), None
    values, indices = ir.statement_operands(stmt)
    payloads = [value for index in indices for value in ir.payloads(arith.wrap(index))]
    for node in ir.walk_exprs(*values, *payloads):
        if isinstance(node, ir.Load) and node.buffer is buffer:
            yield flat_index(buffer, node.indices), loop
    for part in ir.substatements(stmt):
        yield from _indexed_accesses(buffer, part, loop)
