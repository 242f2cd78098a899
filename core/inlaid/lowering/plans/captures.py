"""The outer expressions that the scopes of a function read: values that branches, loop bodies and closures get as inputs."""

from __future__ import annotations

from inlaid.graph import ir
from inlaid.graph.scopes import Scope, Scopes


class Captures:
    """The captured expressions of all scopes of a function."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._captures = self._collect()

    def outer_exprs(self, *scopes: Scope) -> tuple[ir.Expr, ...]:
        """Return the outer expressions that scopes read, in a fixed order."""
        exprs: dict[int, ir.Expr] = {}
        for scope in scopes:
            exprs.update(self._captures.get(id(scope), {}))
        return tuple(exprs.values())

    def _collect(self) -> dict[int, dict[int, ir.Expr]]:
        """Collect, by id of each scope, the outer expressions that the scope and its nested scopes read."""
        captures: dict[int, dict[int, ir.Expr]] = {}
        owners: dict[int, Scope] = {}
        for scope in self._scopes.inner.values():
            if isinstance(scope.owner, ir.Function):
                owners.update((id(param), scope) for param in scope.owner.params)

        def note(scope: Scope, outer_expr: ir.Expr) -> bool:
            """Record that a scope, and each scope between it and the expression's scope, reads the expression. True if any read is
            new."""
            owner_scope = (
                owners.get(id(outer_expr)) if isinstance(outer_expr, ir.Var) else self._scopes.expr_scopes.get(id(outer_expr))
            )
            inner_scope: Scope | None = scope if owner_scope is not None else None
            has_news = False
            while inner_scope is not None and inner_scope is not owner_scope:
                exprs = captures.setdefault(id(inner_scope), {})
                has_news |= id(outer_expr) not in exprs
                exprs[id(outer_expr)] = outer_expr
                inner_scope = inner_scope.parent
            return has_news

        outer_calls: list[tuple[Scope, Scope]] = []
        for scope in self._scopes.inner.values():
            readers = [child for expr in scope.order for child in self._direct(expr)]
            for child in map(self._scopes.resolve, [*readers, scope.result]):
                if not isinstance(child, ir.Function):
                    note(scope, child)
                elif self._scopes.expr_scopes[id(child)] is not scope:
                    outer_calls.append((scope, self._scopes.body(child)))
        # The caller of a closure from an outer scope passes it the captured values, so it reads them.
        has_news = True
        while has_news:
            has_news = False
            for scope, body in outer_calls:
                for outer_expr in list(captures.get(id(body), {}).values()):
                    has_news |= note(scope, outer_expr)
        return captures

    def _direct(self, expr: ir.Expr) -> list[ir.Expr]:
        """Return the children of an expression that are in the same scope."""
        return [child for index, child in enumerate(ir.children(expr)) if (id(expr), index) not in self._scopes.inner]
