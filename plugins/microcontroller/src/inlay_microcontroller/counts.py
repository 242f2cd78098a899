"""How much a kernel does: counted on its loops, with every condition taken to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inlay import arith
from inlay.tensor import ir
from inlay.tensor.footprint import values_of

IN_REGISTERS = 64
"""Bytes of the largest local buffer that compilers hold in registers."""


@dataclass(frozen=True)
class Cost:
    """What an intrinsic does, and how many bytes its loads and stores move at once, at most; 1: each moves an element."""

    semantics: ir.LoopProgram
    loads: int = 1
    stores: int = 1


@dataclass(frozen=True)
class Work:
    """Multiplications, and loads from and stores to memory, in one call; `locals` are bytes of local buffers."""

    multiplications: int
    loads: int
    stores: int
    locals: int


def work_of(program: ir.LoopProgram, costs: Mapping[str, Cost]) -> Work:
    """The work of a kernel of static sizes, with intrinsics by name. What is loaded several times between two loops counts once,
    and what lies in registers not at all. Spilled registers, and what compilers keep from one iteration to the next, are not in
    the loops, and not counted."""
    count = _Count(costs, set(program.params))
    count.add(program.body, 1)
    return Work(count.multiplications, count.loads, count.stores, count.locals)


class _Count:
    def __init__(self, costs: Mapping[str, Cost], memory: set[ir.Buffer]) -> None:
        self._costs, self._memory = costs, memory
        self.multiplications = self.loads = self.stores = self.locals = 0

    def add(self, stmt: ir.Stmt, times: int, loaded: set[object] | None = None) -> None:
        """Add a statement that runs so often. `loaded` is what was loaded before it and is at hand still."""
        loaded = set() if loaded is None else loaded
        nodes = list(ir.walk_exprs(*values_of(stmt)))
        self.multiplications += times * sum(map(_multiplies, nodes))
        for node in nodes:
            if isinstance(node, ir.Load) and node.buffer in self._memory:
                self._load((node.buffer, node.indices), times, loaded)
        match stmt:
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    self.add(item, times, loaded)
                return
            case ir.Alloc(buffer=buffer):
                self.locals += (size := _bytes(buffer.shape, buffer))
                if size > IN_REGISTERS:
                    self._memory.add(buffer)
            case ir.Store(buffer=buffer) if buffer in self._memory:
                self.stores += times
            case ir.Intrinsic():
                self._intrinsic(stmt, times, loaded)
            case ir.For():
                extent = arith.simplify(stmt.extent)
                times *= extent.value if isinstance(extent, arith.Const) else 1
                loaded = set()
        for inner in ir.substatements(stmt):
            self.add(inner, times, loaded)

    def _load(self, what: object, times: int, loaded: set[object], accesses: int = 1) -> None:
        if what not in loaded:
            loaded.add(what)
            self.loads += times * accesses

    def _intrinsic(self, stmt: ir.Intrinsic, times: int, loaded: set[object]) -> None:
        cost = self._costs[stmt.name]
        self.multiplications += times * work_of(cost.semantics, {}).multiplications
        for region in stmt.regions:
            if region.buffer in self._memory:
                size = _bytes(tuple(extent for _, extent in region.ranges), region.buffer)
                each = region.buffer.dtype.bytes
                if region is stmt.regions[-1]:
                    self.stores += times * -(-size // max(cost.stores, each))
                else:
                    self._load((region.buffer, region.ranges), times, loaded, -(-size // max(cost.loads, each)))


def _multiplies(node: ir.Expr) -> bool:
    return isinstance(node, ir.Fma) or (isinstance(node, ir.Binary) and node.op == "mul")


def _bytes(extents: tuple[arith.Dim, ...], buffer: ir.Buffer) -> int:
    """Bytes of a box of a buffer; 0 where they are not known."""
    size = arith.unwrap(arith.simplify(arith.wrap(arith.product(extents))))
    return size * buffer.dtype.bytes if isinstance(size, int) else 0
