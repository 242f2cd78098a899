"""Rename existential sizes so that their names depend only on the model.

While a model is built, each new size gets a name that is unique in the process. Compilation results must not depend on these names:
packages are reproducible, and the kernel cache is keyed by program text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from inlaid.graph.attrs import attr_items, sizes_in, substitute_attrs
from inlaid.graph.ir import Call, Expr, Function, If, Let, Loop, Tuple, TupleItem, Var, children, existential, post_order
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import substitute_constraints
from inlaid.graph.unify import numbered_size
from inlaid_runtime import arith
from inlaid_runtime.types import substitute_type


def name_sizes(target: Function) -> Function:
    """Number existential sizes in order of appearance. Returns the same object if the names are already such numbers."""
    names = _names(target)
    if all(old.name == new.name for old, new in names.items() if isinstance(old, arith.SizeVar) and isinstance(new, arith.SizeVar)):
        return target
    return substitute_sizes(target, names)


def substitute_sizes(target: Function, values: Mapping[arith.Expr, arith.Expr]) -> Function:
    """Replace symbolic sizes in all types and attributes of a function. Existential sizes that are not replaced keep
    their bounds."""
    replacements: dict[int, Expr] = {}
    for expr in post_order(target):
        replacements[id(expr)] = _renamed(expr, values, replacements)
    result = replacements[id(target)]
    assert isinstance(result, Function)
    return result


def _names(target: Function) -> dict[arith.Expr, arith.Expr]:
    """Map each existential size to the size under its new name."""
    names: dict[arith.Expr, arith.Expr] = {}

    def unnamed_bounds(node: arith.Expr) -> tuple[arith.Expr, ...]:
        if not isinstance(node, arith.SizeVar):
            return node.operands
        upper = node.upper
        return (upper,) if isinstance(upper, arith.Expr) and existential(node) and node not in names else ()

    def add(outer: arith.SizeVar) -> None:
        for size in arith.post_order(outer, below=unnamed_bounds):
            if isinstance(size, arith.SizeVar) and existential(size) and size not in names:
                upper = size.upper
                if isinstance(upper, arith.Expr):
                    upper = arith.unwrap(arith.substitute(upper, names))
                names[size] = numbered_size(size, len(names), upper)

    for expr in post_order(target):
        values = [expr.type] if not isinstance(expr, Function) else [param.type for param in expr.params]
        if isinstance(expr, Call):
            values += [value for _, value in attr_items(expr.attrs)]
        for value in values:
            for size in sizes_in(value):
                add(size)
    return names


def _renamed(expr: Expr, names: Mapping[arith.Expr, arith.Expr], replacements: dict[int, Expr]) -> Expr:
    """Rebuild one expression over its renamed children, with renamed types."""

    def renamed_child(child: Expr) -> Expr:
        return replacements[id(child)]

    def variable(bound: Var) -> Var:
        new = replacements.get(id(bound))
        if new is None:
            new = replacements[id(bound)] = _renamed(bound, names, replacements)
        assert isinstance(new, Var)
        return new

    type_ = substitute_type(expr.type, dict(names))
    match expr:
        case Call(callee=Operator(), args=args, attrs=attrs):
            return dataclasses.replace(expr, type=type_, args=tuple(map(renamed_child, args)), attrs=substitute_attrs(attrs, names))
        case Call(callee=callee, args=args):
            assert isinstance(callee, Expr)
            return dataclasses.replace(expr, type=type_, callee=renamed_child(callee), args=tuple(map(renamed_child, args)))
        case Tuple(fields=fields):
            return dataclasses.replace(expr, type=type_, fields=tuple(map(renamed_child, fields)))
        case TupleItem(tuple=value):
            return dataclasses.replace(expr, type=type_, tuple=renamed_child(value))
        case Function(params=params, body=body, constraints=old_constraints):
            constraints = _constraints(old_constraints, names)
            return dataclasses.replace(
                expr, type=type_, params=tuple(map(variable, params)), body=renamed_child(body), constraints=constraints
            )
        case If(constraints=old_constraints):
            condition, then, otherwise = map(renamed_child, children(expr))
            constrained = _constraints(old_constraints[0], names), _constraints(old_constraints[1], names)
            return dataclasses.replace(
                expr, type=type_, condition=condition, then=then, otherwise=otherwise, constraints=constrained
            )
        case Let(var=bound, value=value, body=body):
            return dataclasses.replace(expr, type=type_, var=variable(bound), value=renamed_child(value), body=renamed_child(body))
        case Loop(body=body, trip_count=trips, condition=loop_condition, state=state, scanned=scanned):
            return dataclasses.replace(
                expr,
                type=type_,
                body=renamed_child(body),
                trip_count=None if trips is None else renamed_child(trips),
                condition=None if loop_condition is None else renamed_child(loop_condition),
                state=tuple(map(renamed_child, state)),
                scanned=tuple(map(renamed_child, scanned)),
            )
    return expr if type_ == expr.type else dataclasses.replace(expr, type=type_)


def _constraints(constraints: tuple[arith.Constraint, ...], names: Mapping[arith.Expr, arith.Expr]) -> tuple[arith.Constraint, ...]:
    """Rename the sizes in constraints and in their messages. Constraints on existential sizes that nothing computes any more are
    dropped."""
    if not constraints or not names:
        return constraints
    texts = {repr(old): repr(new) for old, new in names.items()}

    def renamed(text: str) -> str:
        return re.sub(r"\?\w+", lambda match: texts.get(match[0], match[0]), text)

    live_constraints = substitute_constraints(
        tuple(item for item in constraints if names.keys() >= set(filter(existential, item.sizes))), names
    )
    return tuple(dataclasses.replace(item, what=renamed(item.what), expected=renamed(item.expected)) for item in live_constraints)
