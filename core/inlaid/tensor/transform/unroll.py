"""Unrolls loops that are marked as unrolled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from operator import is_not

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.printable import printable_loops, separate
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError


def unroll_loops(program: ir.LoopProgram, keep: bool = False) -> ir.LoopProgram:
    """Replace each loop marked as unrolled by one copy of its body per iteration. The program must have no blocks.

        for i in 2, unrolled: c[i] = 0    becomes    c[0] = 0; c[1] = 0

    `keep`: leave the loops of `printable_loops` to the code generator (`Capabilities.unrolls`). Raises `ScheduleError` if an extent
    is not constant.
    """
    rolled_loops = frozenset(printable_loops(program.body) if keep else ())
    body = _Unroller(_Scope(), rolled_loops).stmt(program.body)
    return program if body is program.body else replace(program, body=body)


_Cell = list[int]
"""The number of the current iteration of an unrolled loop."""


@dataclass(slots=True)
class _Index:
    """How an integer expression depends on unrolled loops. With `rest`, it is `rest + constant` plus, for each pair in `steps`, the
    number of the current iteration times the step. Without, it is rebuilt from its operands. `cache` holds its values by their
    constants, or by the iterations."""

    steps: tuple[tuple[_Cell, int], ...]
    rest: arith.Expr | None = None
    constant: int = 0
    cache: dict[int | tuple[int, ...], arith.Expr] = field(default_factory=dict)


class _Scope:
    """A set of unrolled loops around a statement. `indices` maps integer expressions to how they depend on the loops (None: they do
    not); all copies of the statement share it."""

    def __init__(self, cells: dict[arith.Expr, _Cell] | None = None) -> None:
        self.cells = cells or {}
        self.indices: dict[arith.Expr, _Index | None] = {}
        self._inner: dict[arith.Var, _Scope] = {}

    def inside(self, var: arith.Var) -> _Scope:
        """Return the scope inside an unrolled loop."""
        if var not in self._inner:
            self._inner[var] = _Scope({**self.cells, var: [0]})
        return self._inner[var]

    def read(self, index: arith.Expr) -> _Index | None:
        """Find out how an integer expression depends on the unrolled loops."""
        variables = arith.free_vars(index)
        if variables.isdisjoint(self.cells):
            return None
        parts = separate(index, self.cells)
        if parts is None:
            return _Index(tuple((cell, 1) for var, cell in self.cells.items() if var in variables))
        steps, rest, constant = parts
        return _Index(tuple((self.cells[var], step) for var, step in steps.items()), rest, constant)


class _Unroller(Rewriter):
    """Copies the bodies of unrolled loops, outer loops first, so that each copy is built once. `rolled_loops` are loops to keep."""

    def __init__(self, scope: _Scope, rolled_loops: Collection[ir.For]) -> None:
        super().__init__()
        self._scope = scope
        self._rolled_loops = rolled_loops

    def index(self, index: arith.Expr) -> arith.Expr:
        if type(index) is arith.Const:
            return index
        try:
            entry = self._scope.indices[index]
        except KeyError:
            if arith.reads_data(index):
                return self._rebuilt_index(index)
            entry = self._scope.indices[index] = self._scope.read(index)
        if entry is None:
            return index
        if entry.rest is None:
            key = tuple([cell[0] for cell, _ in entry.steps])
            if key not in entry.cache:
                entry.cache[key] = index.rebuild(tuple(map(self.index, index.operands)))
            return entry.cache[key]
        constant = entry.constant
        for cell, step in entry.steps:
            constant += cell[0] * step
        result = entry.cache.get(constant)
        if result is None:
            result = entry.cache[constant] = arith.add(entry.rest, constant)
        return result

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.For(var=var, kind=ir.ForKind.UNROLLED) if stmt not in self._rolled_loops:
                extent = arith.simplify(self.index(stmt.extent))
                if not isinstance(extent, arith.Const):
                    raise ScheduleError(f"the extent of unrolled loop {var} must be constant, got {extent!r}")
                return joined(*(self._copy(stmt, number) for number in range(extent.value)))
            case ir.Seq(stmts=stmts):
                new = tuple(map(self.stmt, stmts))
                return joined(*new) if any(map(is_not, new, stmts)) else stmt
        return super().stmt(stmt)

    def _copy(self, loop: ir.For, number: int) -> ir.Stmt:
        scope = self._scope.inside(loop.var)
        scope.cells[loop.var][0] = number
        return _Unroller(scope, self._rolled_loops).stmt(loop.body)
