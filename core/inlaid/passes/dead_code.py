"""Remove dead code. In graph form, only unused `Let` bindings and unreachable global functions are dead code."""

from __future__ import annotations

from inlaid.graph.ir import Expr, Function, GlobalVar, Let, Module, children, post_order
from inlaid.graph.transform import map_functions, transform_function


def remove_dead_code(module: Module, entry: str = "main") -> Module:
    """Remove `Let`s whose variable is unused, and functions that are unreachable from the entry.

    If the module has no function `entry`, all functions are kept.
    """
    module = map_functions(module, _remove_lets)
    if entry not in module.functions:
        return module
    reached: dict[str, None] = {entry: None}
    pending = [entry]
    while pending:
        for expr in post_order(module[pending.pop()]):
            if isinstance(expr, GlobalVar) and expr.name not in reached and expr.name in module.functions:
                reached[expr.name] = None
                pending.append(expr.name)
    if len(reached) == len(module.functions):
        return module
    return Module({name: target for name, target in module.functions.items() if name in reached})


def _remove_lets(target: Function) -> Function:
    let_values = {id(expr.var): expr.value for expr in post_order(target) if isinstance(expr, Let)}
    if not let_values:
        return target
    reachable_ids: set[int] = set()
    pending: list[Expr] = [target.body]
    while pending:
        expr = pending.pop()
        if id(expr) not in reachable_ids:
            reachable_ids.add(id(expr))
            pending.extend((expr.body,) if isinstance(expr, Let) else children(expr))
            if id(expr) in let_values:
                pending.append(let_values[id(expr)])
    if let_values.keys() <= reachable_ids:
        return target
    return transform_function(
        target,
        lambda old, new: new.body if isinstance(old, Let) and isinstance(new, Let) and id(old.var) not in reachable_ids else new,
    )
