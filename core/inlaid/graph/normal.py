"""Conversion between graph form and A-normal form.

In graph form, a shared expression is evaluated once. In A-normal form a `Let` expresses sharing: every operand is a variable, a
constant or a global name, and every scope is a chain of `Let`s. The two forms are equivalent.
"""

from __future__ import annotations

from inlaid.graph.ir import Expr, Function, Let, Var, children, let, post_order, rebuild, var
from inlaid.graph.scopes import Scope, Scopes, analyse, common_scope, is_leaf, opens_scope
from inlaid.graph.transform import transform_function


def to_a_normal_form(unit: Function) -> Function:
    """Bind every expression by a `Let` in the scope that evaluates it. Returns the same object if it is in A-normal form
    already."""
    if is_a_normal_form(unit):
        return unit
    builder = _Normalizer(analyse(unit))
    result = rebuild(unit, (builder.scope(builder.scopes.body(unit)),))
    assert isinstance(result, Function)
    return result


def is_a_normal_form(unit: Function) -> bool:
    """Test whether every operand is a leaf and every scope is a chain of `Let`s that ends in a leaf."""
    for expr in post_order(unit):
        for index, child in enumerate(children(expr)):
            if opens_scope(expr, index) or (isinstance(expr, Let) and index == 1):
                is_normal = is_leaf(child) or isinstance(child, Let)
            elif isinstance(expr, Let):
                is_normal = not isinstance(child, Let)
            else:
                is_normal = is_leaf(child)
            if not is_normal:
                return False
    return True


class _Normalizer:
    """Rebuilds a function scope by scope. `_atoms` maps the id of each expression to the leaf that refers to its value."""

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self._atoms: dict[int, Expr] = {}
        self._names = {id(scopes.resolve(value)): key for key, value in scopes.bound.items()}
        self._variables = {id(expr): expr for expr in post_order(scopes.root.result) if isinstance(expr, Var)}

    def scope(self, scope: Scope) -> Expr:
        """Rebuild a scope as a chain of `Let`s."""
        bindings: list[tuple[Var, Expr]] = []
        for expr in scope.order:
            if isinstance(expr, Let):
                self._atoms[id(expr)] = self._atom(expr.body)
                continue
            parts = tuple(
                self.scope(self.scopes.inner[id(expr), index]) if opens_scope(expr, index) else self._atom(child)
                for index, child in enumerate(children(expr))
            )
            value = rebuild(expr, parts)
            let_variable = self._variables.get(self._names.get(id(expr), 0))
            variable = var(let_variable.name if let_variable is not None else "v", value.type, span=expr.span)
            bindings.append((variable, value))
            self._atoms[id(expr)] = variable
        body = self._atom(scope.result)
        for variable, value in reversed(bindings):
            body = let(variable, value, body, value.span)
        return body

    def _atom(self, expr: Expr) -> Expr:
        expr = self.scopes.resolve(expr)
        return self._atoms.get(id(expr), expr)


def to_graph_form(unit: Function) -> Function:
    """Remove `Let`s by replacing each variable by its value.

    A `Let` is kept if all uses of its variable are inside one function in its scope: inlining would recompute the value at each
    call of that function, such as each iteration of a loop.
    """
    scopes = analyse(unit)
    if not scopes.bound:
        return unit
    kept_var_ids = _kept_vars(unit, scopes)
    replacements: dict[int, Expr] = {}

    def visit(old: Expr, new: Expr) -> Expr:
        if isinstance(old, Let) and id(old.var) not in kept_var_ids:
            assert isinstance(new, Let)
            new = new.body
        elif id(old) in scopes.bound and id(old) not in kept_var_ids:
            new = replacements[id(scopes.bound[id(old)])]
        replacements[id(old)] = new
        return new

    return transform_function(unit, visit)


def _kept_vars(unit: Function, scopes: Scopes) -> set[int]:
    """Return the ids of the variables whose `Let`s are kept: all their uses are inside one function in the scope of the `Let`."""
    use_scopes: dict[int, Scope] = {}
    let_scopes: dict[int, Scope] = {}
    for expr in post_order(unit):
        if isinstance(expr, Let):
            let_scopes[id(expr.var)] = scopes.expr_scopes[id(expr)]
        for index, child in enumerate(children(expr)):
            if id(child) in scopes.bound:
                use_scope = scopes.inner[id(expr), index] if opens_scope(expr, index) else scopes.expr_scopes[id(expr)]
                use_scopes[id(child)] = common_scope(use_scopes[id(child)], use_scope) if id(child) in use_scopes else use_scope
    kept_var_ids = set()
    for key, scope in use_scopes.items():
        while scope is not let_scopes[key]:
            if isinstance(scope.owner, Function):
                kept_var_ids.add(key)
                break
            assert scope.parent is not None
            scope = scope.parent
    return kept_var_ids
