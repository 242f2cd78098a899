"""Type unification: equal types, types that differ only in dimensions, and the instantiation of dimension-polymorphic functions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from inlaid.arith import Dim, Expr, SizeVar, maximum, substitute, unwrap, wrap
from inlaid.errors import TypeInferenceError
from inlaid.types import FunctionType, OptionalType, SequenceType, TensorType, TupleType, Type, substitute_type

if TYPE_CHECKING:
    from inlaid.graph.span import Span

_fresh = itertools.count()
"""The one thing that changes in this module: the numbers that make names unlike all others of the process."""


def fresh_size(hint: str = "n", upper: Dim | None = None) -> SizeVar:
    """A new existential dimension, with an inclusive upper bound where one is known. No other of the process has its name."""
    return SizeVar(f"?{size_hint(hint)}__{next(_fresh)}", 0, upper)


def numbered_size(size: SizeVar, number: int, upper: Dim | None) -> SizeVar:
    """An existential dimension under a name that depends on a number alone, and that no fresh one has."""
    return SizeVar(f"?{size_hint(size.name)}_{number}", size.lower, upper)


def size_hint(name: str) -> str:
    """What of the name of an existential dimension is for reading."""
    return re.sub(r"^\?|_+\d*$", "", name) or "n"


def fits(declared: Type, actual: Type) -> bool:
    """Whether a value of the actual type may stand where the declared type is asked for.

    Dimensions fit when they are equal or when either is symbolic and could be equal at run time; all else must be equal.
    """
    match declared, actual:
        case TensorType(), TensorType():
            return (
                declared.dtype is actual.dtype
                and declared.rank == actual.rank
                and all(map(_dims_fit, declared.shape, actual.shape))
            )
        case TupleType(), TupleType():
            return len(declared.fields) == len(actual.fields) and all(map(fits, declared.fields, actual.fields))
        case FunctionType(), FunctionType():
            return (
                len(declared.params) == len(actual.params)
                and all(map(fits, declared.params, actual.params))
                and fits(declared.result, actual.result)
            )
        case (SequenceType(element=a), SequenceType(element=b)) | (OptionalType(element=a), OptionalType(element=b)):
            return fits(a, b)
    return False


def _dims_fit(declared: Dim, actual: Dim) -> bool:
    return declared == actual or not (isinstance(declared, int) and isinstance(actual, int))


def unify(declared: Type, actual: Type, span: Span | None = None) -> None:
    """Check that `actual` fits `declared`. Raises `TypeInferenceError`."""
    if declared is not actual and not fits(declared, actual):
        raise TypeInferenceError(f"a value of type {actual!r} does not fit the declared {declared!r}", node=str(span or ""))


def match_dims(declared: Type, actual: Type, found: dict[Expr, Expr]) -> None:
    """Collect in `found` what the symbolic dimensions of the declared type stand for in the actual one."""
    match declared, actual:
        case TensorType(), TensorType():
            for a, b in zip(declared.shape, actual.shape, strict=False):
                if isinstance(a, SizeVar) and a not in found:
                    found[a] = wrap(b)
        case TupleType(), TupleType():
            for a_field, b_field in zip(declared.fields, actual.fields, strict=False):
                match_dims(a_field, b_field, found)
        case (SequenceType(element=a), SequenceType(element=b)) | (OptionalType(element=a), OptionalType(element=b)):
            match_dims(a, b, found)


def instantiate(callee: FunctionType, args: tuple[Type, ...], span: Span | None = None, own: frozenset[Expr] = frozenset()) -> Type:
    """The result type of a call: the function's, with its dimensions replaced by those of the arguments. The existential
    dimensions in `own`, which the function itself works out, are new ones at each call.

    Raises `TypeInferenceError` where the arguments do not fit, or one dimension would have two values.
    """
    if len(callee.params) != len(args):
        raise TypeInferenceError(f"the function takes {len(callee.params)} arguments, got {len(args)}", node=str(span or ""))
    found: dict[Expr, Expr] = {}
    for param, arg in zip(callee.params, args, strict=True):
        match_dims(param, arg, found)
    for param, arg in zip(callee.params, args, strict=True):
        unify(substitute_type(param, found), arg, span)
    freshen(own, found)
    return substitute_type(callee.result, found)


def freshen(sizes: Iterable[Expr], found: dict[Expr, Expr]) -> None:
    """Add to `found` a new existential dimension for each of the sizes that it does not have."""
    for size in sorted(sizes, key=repr):
        if size not in found:
            assert isinstance(size, SizeVar)
            upper = None if size.upper is None else unwrap(substitute(wrap(size.upper), found))
            found[size] = fresh_size(size.name, upper)


def join_types(a: Type, b: Type, span: Span | None = None) -> Type:
    """The least type that both fit: dimensions that differ become existential. Raises `TypeInferenceError` if there is none."""
    if a == b:
        return a
    match a, b:
        case TensorType(), TensorType() if a.dtype is b.dtype and a.rank == b.rank:
            shape = tuple(x if x == y else _join_dims(x, y) for x, y in zip(a.shape, b.shape, strict=True))
            return TensorType(shape, a.dtype)
        case TupleType(), TupleType() if len(a.fields) == len(b.fields):
            return TupleType(tuple(join_types(x, y, span) for x, y in zip(a.fields, b.fields, strict=True)))
        case SequenceType(), SequenceType():
            return SequenceType(join_types(a.element, b.element, span))
        case OptionalType(), OptionalType():
            return OptionalType(join_types(a.element, b.element, span))
        case FunctionType(), FunctionType() if a.params == b.params:
            return FunctionType(a.params, join_types(a.result, b.result, span))
    raise TypeInferenceError(f"{a!r} and {b!r} have no common type", node=str(span or ""))


def upper_bound(dim: Dim) -> Dim | None:
    """An inclusive upper bound of a dimension over non-existential ones, None where there is none."""
    if isinstance(dim, SizeVar) and dim.existential:
        return None if dim.upper is None else upper_bound(dim.upper)
    return dim


def _join_dims(a: Dim, b: Dim) -> Dim:
    bounds = (upper_bound(a), upper_bound(b))
    upper = None if bounds[0] is None or bounds[1] is None else unwrap(maximum(bounds[0], bounds[1]))
    return fresh_size("n", upper)
