"""Attributes of operators, and the symbolic dimensions inside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from inlaid_runtime import arith
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import FunctionType, OptionalType, SequenceType, TensorType, TupleType, Type, substitute_type


@dataclass(frozen=True)
class Attrs:
    """Base class of an operator's typed attributes. A subclass is a frozen dataclass of ints, floats, strings, bools, dtypes,
    dimensions and tuples of these. Attributes compare by value, hash, print and parse."""


_A = TypeVar("_A", bound=Attrs)


def attr_items(attrs: Attrs) -> list[tuple[str, Any]]:
    """Return (name, value) pairs in order of declaration."""
    return [(item.name, getattr(attrs, item.name)) for item in dataclasses.fields(attrs)]


def sizes_in(value: Any) -> Iterator[arith.SizeVar]:
    """Yield the symbolic dimensions in a type, a dimension or an attribute value, in order of occurrence. A dimension that occurs
    several times in one expression is yielded once for it."""
    pending = [value]
    while pending:
        match pending.pop():
            case arith.SizeVar() as size:
                yield size
            case arith.Expr() as expr:
                yield from (node for node in arith.post_order(expr) if isinstance(node, arith.SizeVar))
            case TensorType(shape=items) | TupleType(fields=items):
                pending.extend(reversed(items))
            case FunctionType(params=params, result=result):
                pending.append(result)
                pending.extend(reversed(params))
            case SequenceType(element=element) | OptionalType(element=element):
                pending.append(element)
            case tuple() as items:
                pending.extend(reversed(items))


def shown_sizes(*types: Type) -> frozenset[arith.Expr]:
    """Return the symbolic sizes that are, by themselves, extents of tensors in these types: the shapes of a value tell their
    sizes."""
    sizes: set[arith.Expr] = set()
    for type_ in types:
        if isinstance(type_, TupleType):
            sizes |= shown_sizes(*type_.fields)
        elif isinstance(type_, TensorType):
            sizes.update(dim for dim in type_.shape if isinstance(dim, arith.SizeVar))
    return frozenset(sizes)


def attr_vars(attrs: Attrs) -> frozenset[arith.Expr]:
    """Return the symbolic dimensions that occur in attributes."""
    return frozenset(size for _, value in attr_items(attrs) for size in sizes_in(value))


def substitute_attrs(attrs: _A, mapping: Mapping[arith.Expr, arith.Expr]) -> _A:
    """Replace symbolic dimensions in attributes. Returns the same object if nothing changes."""
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
