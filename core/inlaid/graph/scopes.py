"""Evaluation scopes of shared expressions.

A graph has *scopes*: the body of each function and the two branches of each `If`. A shared expression is evaluated once, in the
innermost scope that dominates all its uses, which is the deepest scope that encloses them all. `analyse` computes the scopes in
time linear in the graph; passes, the printer and the interpreter all use it. A `Let` opens no scope: its value belongs to the scope
of the `Let`, and its variable is an alias of the value.
"""

from __future__ import annotations

from collections.abc import Callable

from inlaid.graph.ir import Constant, Expr, Function, GlobalVar, If, Let, Loop, Var, children, post_order
from inlaid_runtime.records import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A scope: child number `index` of `owner` (the body of a function or a branch of an `If`), inside `parent`, at nesting depth
    `depth`.

    `order` lists the scope's expressions, each after its operands; leaves (variables, constants, global names) belong
    to no scope. `result` is the expression whose value the scope yields; it may belong to an enclosing scope.
    """

    owner: Expr | None
    index: int
    result: Expr
    parent: Scope | None
    depth: int
    order: list[Expr] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Scopes:
    """The scopes under a root expression.

    `root` is the scope of the root expression. `expr_scopes` maps the `id` of each non-leaf expression to its scope. `inner` maps
    the `id` of an expression and the index of its child to the scope that the child opens. `uses` maps the `id` of each expression
    to the number of its uses as a child. `bound` maps the `id` of each let-bound variable to its value. `loop_bodies` has the ids
    of the functions that are bodies of loops.
    """

    root: Scope
    expr_scopes: dict[int, Scope]
    inner: dict[tuple[int, int], Scope]
    uses: dict[int, int]
    bound: dict[int, Expr]
    loop_bodies: frozenset[int]

    def body(self, function: Function) -> Scope:
        """Return the scope of a function's body."""
        return self.inner[id(function), 0]

    def branches(self, choice: If) -> tuple[Scope, Scope]:
        """Return the scopes of the two branches."""
        return self.inner[id(choice), 1], self.inner[id(choice), 2]

    def resolve(self, expr: Expr) -> Expr:
        """Return the value of a let-bound variable, and any other expression unchanged."""
        while isinstance(expr, Var) and id(expr) in self.bound:
            expr = self.bound[id(expr)]
        return expr


def is_leaf(expr: Expr) -> bool:
    """Test whether an expression needs no evaluation: a variable, a constant or a global name."""
    return isinstance(expr, (Var, Constant, GlobalVar))


def opens_scope(expr: Expr, index: int) -> bool:
    """Test whether child number `index` of an expression opens a scope."""
    return isinstance(expr, Function) or (isinstance(expr, If) and index > 0)


def common_scope(a: Scope, b: Scope) -> Scope:
    """Return the deepest scope that encloses `a` and `b`."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None, "scopes of different analyses"
        a = a.parent
    return a


def analyse(root: Expr, opens: Callable[[Expr, int], bool] = opens_scope) -> Scopes:
    """Compute the scopes of all expressions under `root`. `opens(expr, index)` tests whether a child opens a scope."""
    order = list(post_order(root))
    top = Scope(None, 0, root, None, 0)
    expr_scopes: dict[int, Scope] = {id(root): top}
    inner: dict[tuple[int, int], Scope] = {}
    uses: dict[int, int] = {}
    bound: dict[int, Expr] = {}
    loop_bodies: set[int] = set()
    # In reverse post-order every use of an expression precedes the expression, so its scope is final when it is visited.
    for expr in reversed(order):
        if isinstance(expr, Let):
            bound[id(expr.var)] = expr.value
        elif isinstance(expr, Loop):
            loop_bodies.add(id(expr.body))
        parent_scope = expr_scopes.get(id(expr))
        for index, child in enumerate(children(expr)):
            assert parent_scope is not None
            uses[id(child)] = uses.get(id(child), 0) + 1
            scope = parent_scope
            if opens(expr, index):
                scope = inner[id(expr), index] = Scope(expr, index, child, parent_scope, parent_scope.depth + 1)
            if not is_leaf(child):
                earlier_scope = expr_scopes.get(id(child))
                expr_scopes[id(child)] = scope if earlier_scope is None else common_scope(earlier_scope, scope)
    for expr in order:
        if not is_leaf(expr):
            expr_scopes[id(expr)].order.append(expr)
    if is_leaf(root):
        del expr_scopes[id(root)]
    return Scopes(top, expr_scopes, inner, uses, bound, frozenset(loop_bodies))
