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

        def note(scope: Scope, read: ir.Expr) -> bool:
            """Record that a scope, and each scope between it and the expression's scope, reads the expression. True if any read is
            new."""
            home = owners.get(id(read)) if isinstance(read, ir.Var) else self._scopes.expr_scopes.get(id(read))
            inside: Scope | None = scope if home is not None else None
            news = False
            while inside is not None and inside is not home:
                exprs = captures.setdefault(id(inside), {})
                news |= id(read) not in exprs
                exprs[id(read)] = read
                inside = inside.parent
            return news

        shared: list[tuple[Scope, Scope]] = []
        for scope in self._scopes.inner.values():
            readers = [child for expr in scope.order for child in self._direct(expr)]
            for child in map(self._scopes.resolve, [*readers, scope.result]):
                if not isinstance(child, ir.Function):
                    note(scope, child)
                elif self._scopes.expr_scopes[id(child)] is not scope:
                    shared.append((scope, self._scopes.body(child)))
        # The caller of a closure from an outer scope passes it the captured values, so it reads them.
        news = True
        while news:
            news = False
            for scope, body in shared:
                for read in list(captures.get(id(body), {}).values()):
                    news |= note(scope, read)
        return captures

    def _direct(self, expr: ir.Expr) -> list[ir.Expr]:
        """Return the children of an expression that are in the same scope."""
        return [child for index, child in enumerate(ir.children(expr)) if (id(expr), index) not in self._scopes.inner]
