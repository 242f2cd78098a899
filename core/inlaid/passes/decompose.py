"""Decomposition: operators that no target takes whole, in simpler ones."""

from __future__ import annotations

from collections.abc import Callable

from inlaid.errors import CompileError, InlaidError
from inlaid.graph.ir import Call, Expr, Function
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Match, wildcard
from inlaid.graph.rewrite import Rule, rewrite_expr


def decompose(function: Function, keep: Callable[[Call], bool]) -> Function:
    """The function without those operators that have a decomposition and that `keep` does not want, those that decompositions
    bring in included.

    `keep(call)` says whether some target takes the operator whole. The same object comes back when there is nothing to do. Spans
    are those of the operator that was decomposed. Raises `VerifyError` where decompositions lead back to one another,
    `CompileError` where one fails.
    """

    def unwanted(expr: Expr) -> bool:
        return isinstance(expr, Call) and isinstance(expr.callee, Operator) and bool(expr.callee.decompose) and not keep(expr)

    def build(found: Match) -> Expr:
        call = found.root
        assert isinstance(call, Call) and isinstance(call.callee, Operator) and call.callee.decompose is not None
        try:
            return call.callee.decompose(call.attrs, call.args)
        except InlaidError:
            raise
        except Exception as error:  # the operator may be a user's
            raise CompileError(
                f"its decompose raised {type(error).__name__}: {error}", operator=call.callee.name, node=str(call.span or "")
            ) from error

    simpler = rewrite_expr(function, [Rule("decompose", wildcard().where(unwanted), build)])
    assert isinstance(simpler, Function)
    return simpler
