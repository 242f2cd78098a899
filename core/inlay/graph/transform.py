"""The one sweep that all passes over the graph are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlay.graph.ir import Expr, Function, Module, Var, children, post_order, rebuild


def transform(root: Expr, visit: Callable[[Expr, Expr], Expr]) -> Expr:
    """The graph with every expression replaced by what `visit(old, new)` gives for it.

    `new` is the expression over its already transformed parts, and the same object as `old` where none of them changed. Each
    expression is visited once, parts first, and stays shared. Where nothing changes, the result is `root` itself.
    """
    done: dict[int, Expr] = {}
    for expr in post_order(root):
        done[id(expr)] = visit(expr, rebuild(expr, tuple(done[id(child)] for child in children(expr))))
    return done[id(root)]


def map_functions(module: Module, change: Callable[[Function], Function]) -> Module:
    """The module with each function replaced; the same object where none changes."""
    new = {name: change(target) for name, target in module.functions.items()}
    return module if all(new[name] is target for name, target in module.functions.items()) else Module(new)


def substitute(root: Expr, values: Mapping[Var, Expr]) -> Expr:
    """The expression with free variables replaced by expressions of fitting types."""
    by_id = {id(variable): value for variable, value in values.items()}
    return transform(root, lambda old, new: by_id.get(id(old), new)) if by_id else root
