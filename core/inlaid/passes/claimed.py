"""What a rewrite after partitioning may make: operators that the target claims."""

from __future__ import annotations

from collections.abc import Callable

from inlaid.graph.ir import Call, Expr, children
from inlaid.graph.operator import Operator

Takes = Callable[[Call], bool]
"""Whether a target claims the call of an operator, with its attributes and the types of its operands and result."""


def everything(call: Call) -> bool:
    """The claims of a target that takes all operators."""
    return True


def is_claimed(made: Expr, takes: Takes, *given: Expr) -> bool:
    """Whether a target claims all operators by which an expression is computed from the expressions `given`."""
    stack, seen = [made], {id(expr) for expr in given}
    while stack:
        expr = stack.pop()
        if id(expr) not in seen:
            seen.add(id(expr))
            if isinstance(expr, Call) and isinstance(expr.callee, Operator) and not takes(expr):
                return False
            stack += children(expr)
    return True
