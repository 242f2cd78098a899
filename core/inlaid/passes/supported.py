"""Check that a rewrite after partitioning only creates operators that the target supports."""

from __future__ import annotations

from collections.abc import Callable

from inlaid.graph.ir import Call, Expr, children
from inlaid.graph.operator import Operator

Supports = Callable[[Call], bool]
"""Predicate: whether a target supports an operator call, decided by the call's attributes and the types of operands and result."""


def supports_everything(call: Call) -> bool:
    """Accept every call: the predicate of a target that supports all operators."""
    return True


def is_supported(root: Expr, supports: Supports, *operands: Expr) -> bool:
    """Test whether a target supports all operators of an expression, except those of its operands `operands`."""
    stack, visited = [root], {id(expr) for expr in operands}
    while stack:
        expr = stack.pop()
        if id(expr) not in visited:
            visited.add(id(expr))
            if isinstance(expr, Call) and isinstance(expr.callee, Operator) and not supports(expr):
                return False
            stack += children(expr)
    return True
