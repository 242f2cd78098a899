"""Static operation counts of a kernel. Conditions on loop variables are evaluated exactly. All other conditions are assumed to
hold."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_values
from inlaid_runtime import arith

MAX_EXTENT = 1 << 12
"""Maximum number of iterations in which a condition is evaluated. With more iterations, the condition is assumed to hold."""
IN_REGISTERS = 64
"""Maximum bytes of a local buffer that compilers keep in registers."""


@dataclass(frozen=True)
class Cost:
    """Cost of an intrinsic: its semantics, and the maximum bytes per load and per store; 1 means one element per access."""

    semantics: ir.LoopProgram
    loads: int = 1
    stores: int = 1


@dataclass(frozen=True)
class Work:
    """Numbers of multiplications, of loads from memory and of stores to memory in one call. locals: bytes of local buffers."""

    multiplications: int
    loads: int
    stores: int
    locals: int


def count_work(program: ir.LoopProgram, costs: Callable[[str], Cost]) -> Work:
    """Count the work of a kernel of static sizes. costs: function that returns the cost of an intrinsic, given its name. Several
    loads of an element count once if no loop starts between them. Accesses to registers do not count. Spills, and values that
    compilers keep across iterations, are not modeled."""
    count = _Count(costs, set(program.params))
    count.add(program.body, 1)
    return Work(count.multiplications, sum(count.loads.values()), sum(count.stores.values()), count.locals)


class _Count:
    """Counts loads and stores by buffer. is_constant: every loop so far has a known extent. _inner: counts of intrinsics by
    operands."""

    def __init__(self, costs: Callable[[str], Cost], memory: set[ir.Buffer]) -> None:
        self._costs, self._memory = costs, memory
        self.multiplications = self.locals = 0
        self.loads: Counter[ir.Buffer] = Counter()
        self.stores: Counter[ir.Buffer] = Counter()
        self.is_constant = True
        self._extents: dict[arith.Expr, int] = {}
        self._conditions: list[arith.Expr] = []
        self._inner: dict[tuple[ir.Buffer, ...], _Count] = {}

    def add(self, stmt: ir.Stmt, times: int, loaded: set[object] | None = None) -> None:
        """Add a statement that runs `times` times. loaded: elements loaded earlier that are still available."""
        loaded = set() if loaded is None else loaded
        nodes = list(ir.walk_exprs(*statement_values(stmt)))
        self.multiplications += times * sum(map(_multiplies, nodes))
        for node in nodes:
            if isinstance(node, ir.Load):
                self._load(node.buffer, node.indices, times, loaded)
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
                self.stores[buffer] += times
            case ir.Intrinsic():
                self._intrinsic(stmt, times, loaded)
            case ir.For():
                extent = arith.simplify(stmt.extent)
                self.is_constant = self.is_constant and isinstance(extent, arith.Const)
                times *= extent.value if isinstance(extent, arith.Const) else 1
                self._extents[stmt.var] = extent.value if isinstance(extent, arith.Const) else MAX_EXTENT
                loaded = set()
            case ir.If(condition=ir.Index(index=condition)):
                for branch, part in ((condition, stmt.then), (arith.compare("==", condition, 0), stmt.otherwise)):
                    if part is not None:
                        share = self._share(branch, times)
                        self._conditions.append(branch)
                        self.add(part, share, loaded)
                        self._conditions.pop()
                return
        for inner in ir.substatements(stmt):
            self.add(inner, times, loaded)

    def _share(self, condition: arith.Expr, times: int) -> int:
        """Return the number of `times` iterations in which a condition holds, given that the enclosing conditions hold."""
        read = set[arith.Expr]().union(*map(arith.free_vars, (*self._conditions, condition)))
        variables = [variable for variable in read if variable in self._extents]
        extents = [self._extents[variable] for variable in variables]
        if len(variables) < len(read) or prod(extents) > MAX_EXTENT or arith.reads_data(condition):
            return times
        assignments = [dict(zip(variables, values, strict=True)) for values in itertools.product(*map(range, extents))]
        reached = [values for values in assignments if all(arith.evaluate(each, values) for each in self._conditions)]
        return times * sum(bool(arith.evaluate(condition, values)) for values in reached) // max(len(reached), 1)

    def _load(self, buffer: ir.Buffer, position: object, times: int, loaded: set[object]) -> None:
        if buffer in self._memory and (buffer, position) not in loaded:
            loaded.add((buffer, position))
            self.loads[buffer] += times

    def _intrinsic(self, stmt: ir.Intrinsic, times: int, loaded: set[object]) -> None:
        cost = self._costs(stmt.name)
        outputs = cost.semantics.outputs
        params = (*cost.semantics.inputs[: len(stmt.regions) - len(outputs)], *outputs)  # the remaining regions are arguments
        if (inner := self._inner.get(params)) is None:
            inner = self._inner[params] = _Count(self._costs, set(params))
            inner.add(cost.semantics.body, 1)
        self.multiplications += times * inner.multiplications
        for region, param in zip(stmt.regions, params, strict=True):
            element_bytes = region.buffer.dtype.bytes
            size = _bytes(tuple(extent for _, extent in region.ranges), region.buffer)
            element_counts, bytes_per_access = (inner.stores, cost.stores) if param in outputs else (inner.loads, cost.loads)
            # Not every element of a region need be read.
            size = min(size, element_counts[param] * element_bytes) if inner.is_constant else size
            accesses = times * -(-size // max(bytes_per_access, element_bytes))
            if param in outputs:
                self.stores[region.buffer] += accesses if region.buffer in self._memory else 0
            else:
                self._load(region.buffer, region.ranges, accesses, loaded)


def _multiplies(node: ir.Expr) -> bool:
    return isinstance(node, ir.Fma) or (isinstance(node, ir.Binary) and node.op == "mul")


def _bytes(extents: tuple[arith.Dim, ...], buffer: ir.Buffer) -> int:
    """Return the size in bytes of a region of a buffer; 0 if the size is not static."""
    size = arith.unwrap(arith.simplify(arith.wrap(arith.product(extents))))
    return size * buffer.dtype.bytes if isinstance(size, int) else 0
