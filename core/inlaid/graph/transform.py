"""The post-order sweep that graph passes are built on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlaid.graph.attrs import attr_vars, substitute_attrs
from inlaid.graph.ir import (
    Call,
    Expr,
    Function,
    If,
    Let,
    Module,
    Var,
    call,
    children,
    function,
    introduced_sizes,
    let,
    post_order,
    rebuild,
    var,
)
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import substitute_constraints
from inlaid.graph.unify import match_dims
from inlaid_runtime import arith
from inlaid_runtime.records import replace
from inlaid_runtime.types import substitute_type, type_vars


def transform(root: Expr, visit: Callable[[Expr, Expr], Expr]) -> Expr:
    """Replace every expression of a graph by `visit(old, new)`.

    `new` is the expression rebuilt with its transformed children; it is `old` itself if none of them changed. Each expression is
    visited once, after its children, and stays shared. Returns `root` itself if nothing changes.

    A replacement may give known values or new names to the existential sizes that the old expression defines. These sizes are then
    substituted in the attributes and variables that refer to them.
    """
    sweep = _Sweep()
    for expr in post_order(root):
        sweep.put(expr, visit(expr, sweep.over_new_parts(expr)))
    return _with_sizes(sweep.replacements[id(root)], sweep.sizes)


class _Sweep:
    """The replacements of expressions, by id, and the substitution of existential sizes."""

    def __init__(self) -> None:
        self.replacements: dict[int, Expr] = {}
        self.sizes: dict[arith.Expr, arith.Expr] = {}

    def put(self, old: Expr, new: Expr) -> None:
        self.replacements[id(old)] = new
        if new is not old and new.type != old.type:
            bindings: dict[arith.Expr, arith.Expr] = {}
            match_dims(old.type, new.type, bindings)
            self.sizes.update((size, bindings[size]) for size in introduced_sizes(old) if bindings.get(size, size) != size)

    def over_new_parts(self, expr: Expr) -> Expr:
        """Rebuild an expression from the replacements of its children."""
        new = tuple([self.replacements[id(child)] for child in children(expr)])
        if not self.sizes:
            return rebuild(expr, new)
        match expr:
            case Var(type=type_) if not self.sizes.keys().isdisjoint(type_vars(type_)):
                return var(expr.name, substitute_type(type_, self.sizes), span=expr.span)
            case Call(callee=Operator() as operator, attrs=attrs) if not self.sizes.keys().isdisjoint(attr_vars(attrs)):
                return call(operator, new, substitute_attrs(attrs, self.sizes), expr.span)
            case Let(var=variable) if (renamed := self._variable(variable)) is not variable:
                return let(renamed, self.replacements[id(expr.value)], self.replacements[id(expr.body)], expr.span)
            case Function(params=params) if (renames := tuple(map(self._variable, params))) != params:
                body = self.replacements[id(expr.body)]
                return function(renames, body, expr.attrs, span=expr.span, constraints=expr.constraints)
        return rebuild(expr, new)

    def _variable(self, variable: Var) -> Var:
        """Return the variable that replaces a bound variable, a parameter or the variable of a `Let`; itself if none does."""
        new = self.replacements.get(id(variable), variable)
        return new if isinstance(new, Var) else variable


def _with_sizes(root: Expr, sizes: Mapping[arith.Expr, arith.Expr]) -> Expr:
    """Substitute sizes in the constraints of functions and branches."""
    if not sizes:
        return root
    replacements: dict[int, Expr] = {}
    for expr in post_order(root):
        new = rebuild(expr, tuple([replacements[id(child)] for child in children(expr)]))
        if isinstance(new, Function) and new.constraints:
            new = replace(new, constraints=substitute_constraints(new.constraints, sizes))
        elif isinstance(new, If) and any(new.constraints):
            then, otherwise = (substitute_constraints(constraints, sizes) for constraints in new.constraints)
            new = replace(new, constraints=(then, otherwise))
        replacements[id(expr)] = new
    return replacements[id(root)]


def map_functions(module: Module, change: Callable[[Function], Function]) -> Module:
    """Apply `change` to each function of a module. Returns the same object if no function changes."""
    new = {name: change(target) for name, target in module.functions.items()}
    return module if all(new[name] is target for name, target in module.functions.items()) else Module(new)


def transform_function(target: Function, visit: Callable[[Expr, Expr], Expr]) -> Function:
    """Apply `transform` to a function. The result must be a function."""
    result = transform(target, visit)
    assert isinstance(result, Function), "a pass has replaced a function of the module by something else"
    return result


def substitute(root: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Replace free variables by expressions of fitting types."""
    by_id = {id(variable): value for variable, value in values.items()}
    return transform(root, lambda old, new: by_id.get(id(old), new)) if by_id else root
