"""Rename existential sizes so that their names depend only on the model.

While a model is built, each new size gets a name that is unique in the process. Compilation results must not depend on these names:
packages are reproducible, and the kernel cache is keyed by program text.
"""

from __future__ import annotations

import dataclasses

from inlaid import arith
from inlaid.graph.attrs import attr_items, sizes_in, substitute_attrs
from inlaid.graph.ir import Call, Expr, Function, If, Let, Loop, Tuple, TupleItem, Var, children, existential, post_order
from inlaid.graph.operator import Operator
from inlaid.graph.unify import numbered_size
from inlaid.types import substitute_type


def name_sizes(target: Function) -> Function:
    """Number existential sizes in order of appearance. Returns the same object if the names are already such numbers."""
    names = _names(target)
    if all(old.name == new.name for old, new in names.items() if isinstance(old, arith.SizeVar) and isinstance(new, arith.SizeVar)):
        return target
    done: dict[int, Expr] = {}
    for expr in post_order(target):
        done[id(expr)] = _renamed(expr, names, done)
    found = done[id(target)]
    assert isinstance(found, Function)
    return found


def _names(target: Function) -> dict[arith.Expr, arith.Expr]:
    """Map each existential size to the size under its new name."""
    found: dict[arith.Expr, arith.Expr] = {}

    def add(size: arith.SizeVar) -> None:
        if existential(size) and size not in found:
            upper = size.upper
            if isinstance(upper, arith.Expr):
                for inner in sizes_in(upper):
                    add(inner)
                upper = arith.unwrap(arith.substitute(upper, found))
            found[size] = numbered_size(size, len(found), upper)

    for expr in post_order(target):
        values = [expr.type] if not isinstance(expr, Function) else [param.type for param in expr.params]
        if isinstance(expr, Call):
            values += [value for _, value in attr_items(expr.attrs)]
        for value in values:
            for size in sizes_in(value):
                add(size)
    return found


def _renamed(expr: Expr, names: dict[arith.Expr, arith.Expr], done: dict[int, Expr]) -> Expr:
    """Rebuild one expression over its renamed children, with renamed types."""

    def part(child: Expr) -> Expr:
        return done[id(child)]

    def variable(bound: Var) -> Var:
        new = done.get(id(bound))
        if new is None:
            new = done[id(bound)] = _renamed(bound, names, done)
        assert isinstance(new, Var)
        return new

    type_ = substitute_type(expr.type, names)
    match expr:
        case Call(callee=Operator(), args=args, attrs=attrs):
            return dataclasses.replace(expr, type=type_, args=tuple(map(part, args)), attrs=substitute_attrs(attrs, names))
        case Call(callee=callee, args=args):
            assert isinstance(callee, Expr)
            return dataclasses.replace(expr, type=type_, callee=part(callee), args=tuple(map(part, args)))
        case Tuple(fields=fields):
            return dataclasses.replace(expr, type=type_, fields=tuple(map(part, fields)))
        case TupleItem(tuple=value):
            return dataclasses.replace(expr, type=type_, tuple=part(value))
        case Function(params=params, body=body):
            return dataclasses.replace(expr, type=type_, params=tuple(map(variable, params)), body=part(body))
        case If():
            condition, then, otherwise = map(part, children(expr))
            return dataclasses.replace(expr, type=type_, condition=condition, then=then, otherwise=otherwise)
        case Let(var=bound, value=value, body=body):
            return dataclasses.replace(expr, type=type_, var=variable(bound), value=part(value), body=part(body))
        case Loop(body=body, trip_count=trips, condition=going, state=state, scanned=scanned):
            return dataclasses.replace(
                expr,
                type=type_,
                body=part(body),
                trip_count=None if trips is None else part(trips),
                condition=None if going is None else part(going),
                state=tuple(map(part, state)),
                scanned=tuple(map(part, scanned)),
            )
    return expr if type_ == expr.type else dataclasses.replace(expr, type=type_)
