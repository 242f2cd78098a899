"""Symbolic dimensions inside the attributes of operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from inlay import arith
from inlay.graph.operator import Attrs
from inlay.types import Type, substitute_type, type_vars

_A = TypeVar("_A", bound=Attrs)


def attr_items(attrs: Attrs) -> list[tuple[str, Any]]:
    """The names and values of attributes, in order of declaration."""
    return [(item.name, getattr(attrs, item.name)) for item in dataclasses.fields(attrs)]


def attr_vars(attrs: Attrs) -> frozenset[arith.Expr]:
    """The symbolic dimensions that occur in attributes."""
    found: set[arith.Expr] = set()
    pending: list[Any] = [value for _, value in attr_items(attrs)]
    while pending:
        value = pending.pop()
        if isinstance(value, tuple):
            pending.extend(value)
        elif isinstance(value, arith.Expr):
            found |= arith.free_vars(value)
        elif isinstance(value, Type):
            found |= type_vars(value)
    return frozenset(found)


def substitute_attrs(attrs: _A, mapping: Mapping[arith.Expr, arith.Expr]) -> _A:
    """Attributes with symbolic dimensions replaced; the same object where nothing changes."""
    if not mapping:
        return attrs

    def replaced(value: Any) -> Any:
        if isinstance(value, tuple):
            new = tuple(map(replaced, value))
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        if isinstance(value, arith.Expr):
            return arith.unwrap(arith.substitute(value, mapping))
        return substitute_type(value, dict(mapping)) if isinstance(value, Type) else value

    changed: dict[str, Any] = {}
    for name, value in attr_items(attrs):
        new = replaced(value)
        if new is not value:
            changed[name] = new
    return dataclasses.replace(attrs, **changed) if changed else attrs
