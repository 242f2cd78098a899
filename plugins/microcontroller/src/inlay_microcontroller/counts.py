"""How much a kernel does: counted on its loops, with every condition taken to hold."""

from __future__ import annotations

from dataclasses import dataclass

from inlay import arith
from inlay.tensor import ir
from inlay.tensor.footprint import values_of


@dataclass(frozen=True)
class Work:
    """Multiplications, and elements loaded from and stored to memory, in one call; `locals` are bytes of local buffers."""

    multiplications: int
    loads: int
    stores: int
    locals: int


def work_of(program: ir.LoopProgram) -> Work:
    """The work of a kernel of static sizes. Loads of one element in one statement count once; what is in registers does not."""
    multiplications = loads = stores = room = 0
    stack: list[tuple[ir.Stmt, int]] = [(program.body, 1)]
    while stack:
        stmt, times = stack.pop()
        nodes = list(ir.walk_exprs(*values_of(stmt)))
        if isinstance(stmt, ir.Alloc):
            room += _bytes(stmt.buffer)
        found = {(node.buffer, node.indices) for node in nodes if isinstance(node, ir.Load) and node.buffer in program.params}
        loads += times * len(found)
        multiplications += times * sum(
            isinstance(node, ir.Fma) or (isinstance(node, ir.Binary) and node.op == "mul") for node in nodes
        )
        stores += times * (isinstance(stmt, ir.Store) and stmt.buffer in program.params)
        if isinstance(stmt, ir.For):
            extent = arith.simplify(stmt.extent)
            times *= extent.value if isinstance(extent, arith.Const) else 1
        stack += [(inner, times) for inner in ir.substatements(stmt)]
    return Work(multiplications, loads, stores, room)


def _bytes(buffer: ir.Buffer) -> int:
    size = arith.product(buffer.shape)
    return size * buffer.dtype.bytes if isinstance(size, int) else 0
