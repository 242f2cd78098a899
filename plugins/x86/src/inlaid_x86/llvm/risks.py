"""Loads and bounds checks in expressions, which may be evaluated only if they are chosen."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.llvm.positions import Positions
from inlaid_x86.llvm.state import PrinterState

MAX_RISKS = 16
"""Maximum number of loads and checked indices that are memoized per expression."""


class Risks:
    """The loads and bounds checks in the expressions of a kernel, memoized."""

    def __init__(self, state: PrinterState, positions: Positions) -> None:
        self._state = state
        self._positions = positions
        self._risks: dict[ir.Expr, tuple[ir.Expr, ...] | None] = {}

    def collect(self, expr: ir.Expr) -> tuple[ir.Expr, ...] | None:
        """Return the loads and bounds checks in an expression; None if there are more than `MAX_RISKS`."""
        stack = [expr]
        while stack:
            node = stack[-1]
            operands = ir.operands(node)
            waiting = [arg for arg in operands if arg not in self._risks]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if isinstance(node, ir.Load) or (isinstance(node, ir.Index) and arith.reads_data(node.index)):
                self._risks[node] = (node,)
                continue
            risks: dict[ir.Expr, None] | None = {}
            for arg in operands:
                operand_risks = self._risks[arg]
                risks = None if operand_risks is None or risks is None else {**risks, **dict.fromkeys(operand_risks)}
            self._risks[node] = None if risks is None or len(risks) > MAX_RISKS else tuple(risks)
        return self._risks[expr]

    def is_inside(self, risk: ir.Expr) -> bool:
        """Test whether an expression is a load that is always inside its buffer."""
        if not isinstance(risk, ir.Load) or any(map(arith.reads_data, risk.indices)):
            return False
        size = arith.product(risk.buffer.shape)
        low, high = self._state.index.analyzer.bounds(arith.add(*self._positions.flat(risk.buffer, risk.indices)))
        return isinstance(size, int) and low is not None and high is not None and low >= 0 and high < size
