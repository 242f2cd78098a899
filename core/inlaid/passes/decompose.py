"""Decompose operators that no target supports into simpler ones."""

from __future__ import annotations

from collections.abc import Callable

from inlaid.graph.ir import Call, Expr, Function
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Match, wildcard
from inlaid.graph.rewrite import RewriteRule, rewrite_expr
from inlaid.passes.witness_sizes import witness_sizes
from inlaid_runtime.errors import CompileError, InlaidError


def decompose(function: Function, keep: Callable[[Call], bool]) -> Function:
    """Decompose every operator that has a decomposition and that `keep` rejects, including operators created by decompositions.

    `keep(call)` returns whether some target supports the operator whole. Returns the same object if there is nothing to do. New
    expressions have the span of the decomposed operator. Raises `VerifyError` for cyclic decompositions, `CompileError` if a
    decomposition fails.
    """

    def must_decompose(expr: Expr) -> bool:
        return isinstance(expr, Call) and isinstance(expr.callee, Operator) and bool(expr.callee.decompose) and not keep(expr)

    def build(match: Match) -> Expr:
        call = match.root
        assert isinstance(call, Call) and isinstance(call.callee, Operator) and call.callee.decompose is not None
        try:
            return call.callee.decompose(call.attrs, call.args)
        except InlaidError:
            raise
        except Exception as error:  # user-defined operators may raise anything
            raise CompileError(
                f"decompose raised {type(error).__name__}: {error}", operator=call.callee.name, node=str(call.span or "")
            ) from error

    simpler = rewrite_expr(function, [RewriteRule("decompose", wildcard().where(must_decompose), build)])
    assert isinstance(simpler, Function)
    return witness_sizes(simpler)
