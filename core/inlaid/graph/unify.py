"""Type unification up to dimensions, and instantiation of dimension-polymorphic functions.

Dimensions that are not equal at compile time must be equal at run time: `unify` states that by `require`, like the type relation of
an operator. `inlaid.graph.scope_conditions` collects these conditions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from inlaid.graph.attrs import shown_sizes
from inlaid.graph.conditions import require
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, Expr, SizeVar, maximum, substitute, unwrap, wrap
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.types import FunctionType, OptionalType, SequenceType, TensorType, TupleType, Type, substitute_type

if TYPE_CHECKING:
    from inlaid.graph.span import Span

_fresh = itertools.count()
"""Process-wide counter that makes names of existential dimensions unique. The only mutable state of this module."""


def fresh_size(hint: str = "n", upper: Dim | None = None) -> SizeVar:
    """Make an existential dimension with a name unique in this process, and an inclusive upper bound if one is known."""
    return SizeVar(f"?{size_hint(hint)}__{next(_fresh)}", 0, upper)


def numbered_size(size: SizeVar, number: int, upper: Dim | None) -> SizeVar:
    """Make an existential dimension whose name depends only on `number`. `fresh_size` never returns such a name."""
    return SizeVar(f"?{size_hint(size.name)}_{number}", size.lower, upper)


def size_hint(name: str) -> str:
    """Return the readable part of an existential dimension's name, without the number."""
    return re.sub(r"^\?|_+\d*$", "", name) or "n"


def fits(declared: Type, actual: Type) -> bool:
    """Test whether a value of the actual type can be used where the declared type is expected.

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


def unify(declared: Type, actual: Type, span: Span | None = None, what: str = "the value") -> None:
    """Require a value of the actual type to have the declared type. Dimensions that are not equal are required to be equal at run
    time; `what` names the value in these conditions. Raises `TypeInferenceError` if the types do not fit."""
    if declared is actual:
        return
    if not fits(declared, actual):
        raise TypeInferenceError(f"expected a value of type {declared!r}, got {actual!r}", node=str(span or ""))
    _require_equal(declared, actual, what)


def _require_equal(declared: Type, actual: Type, what: str) -> None:
    """Require the dimensions of two types that fit to be equal, except inside of function types, which bind their dimensions."""
    match declared, actual:
        case TensorType(), TensorType():
            for axis, (declared_dim, dim) in enumerate(zip(declared.shape, actual.shape, strict=True)):
                if declared_dim != dim:
                    require(arith.equals(dim, declared_dim, f"dimension {axis} of {what}"))
        case TupleType(), TupleType():
            for index, (declared_field, field) in enumerate(zip(declared.fields, actual.fields, strict=True)):
                _require_equal(declared_field, field, f"field {index} of {what}")
        case (SequenceType(element=a), SequenceType(element=b)) | (OptionalType(element=a), OptionalType(element=b)):
            _require_equal(a, b, f"an element of {what}")


def match_dims(declared: Type, actual: Type, bindings: dict[Expr, Expr]) -> None:
    """Record in `bindings`, for each symbolic dimension of the declared type, the corresponding dimension of the actual type."""
    match declared, actual:
        case TensorType(), TensorType():
            for a, b in zip(declared.shape, actual.shape, strict=False):
                if isinstance(a, SizeVar) and a not in bindings:
                    bindings[a] = wrap(b)
        case TupleType(), TupleType():
            for a_field, b_field in zip(declared.fields, actual.fields, strict=False):
                match_dims(a_field, b_field, bindings)
        case (SequenceType(element=a), SequenceType(element=b)) | (OptionalType(element=a), OptionalType(element=b)):
            match_dims(a, b, bindings)


def instantiate(
    callee: FunctionType,
    args: tuple[Type, ...],
    span: Span | None = None,
    defined_sizes: frozenset[Expr] = frozenset(),
    name: str = "the function",
    captured: frozenset[Expr] = frozenset(),
) -> Type:
    """Return the result type of a call: the function's result type with its dimensions replaced by those of the arguments.

    The existential dimensions in `defined_sizes`, which the function defines, are fresh at each call. For `captured`, and for the
    conditions that this states, see `bind_dims`; `name` is the function's name in them. Raises `TypeInferenceError` if the
    arguments do not fit, or if a dimension has two values.
    """
    if len(callee.params) != len(args):
        raise TypeInferenceError(f"expected {len(callee.params)} arguments, got {len(args)}", node=str(span or ""))
    labels = [f"argument {number} of {name}" for number in range(len(args))]
    sizes = bind_dims(callee.params, args, labels, name, span, captured)
    freshen(defined_sizes, sizes)
    return with_shown_sizes(substitute_type(callee.result, sizes), [sizes[size] for size in defined_sizes])


def bind_dims(
    declared: Sequence[Type],
    actual: Sequence[Type],
    labels: Sequence[str],
    owner: str,
    span: Span | None = None,
    captured: frozenset[Expr] = frozenset(),
) -> dict[Expr, Expr]:
    """Bind the symbolic dimensions of declared types to the dimensions of the actual types, and return their values.

    Dimensions in `captured` are bound already and keep their names. Requires each dimension to have one value, which is within its
    bounds; `labels` name the values, `owner` names the function in these conditions. Raises `TypeInferenceError` if the types do
    not fit.
    """
    sizes = {size: size for size in captured}
    for declared_type, actual_type in zip(declared, actual, strict=True):
        match_dims(declared_type, actual_type, sizes)
    for declared_type, actual_type, what in zip(declared, actual, labels, strict=True):
        unify(substitute_type(declared_type, sizes), actual_type, span, what)
    try:
        require_bounds({size: value for size, value in sizes.items() if size not in captured}, owner)
    except ValueError as error:
        raise TypeInferenceError(str(error), node=str(span or "")) from error
    return sizes


def require_bounds(sizes: Mapping[Expr, Expr], owner: str) -> None:
    """Require the values of dimensions to be within the dimensions' bounds. `owner` names the function that declares them. Raises
    ValueError."""
    for size, value in sizes.items():
        assert isinstance(size, SizeVar)
        what = f"dimension {size.name} of {owner}"
        if size.lower > 0:
            require(arith.at_least(value, size.lower, what))
        if size.upper is not None:
            require(arith.does_not_exceed(value, unwrap(substitute(wrap(size.upper), sizes)), what))


def freshen(sizes: Iterable[Expr], bindings: dict[Expr, Expr]) -> None:
    """Add a fresh existential dimension to `bindings` for each size that `bindings` lacks."""
    for size in sorted(sizes, key=repr):
        if size not in bindings:
            assert isinstance(size, SizeVar)
            upper = None if size.upper is None else unwrap(substitute(wrap(size.upper), bindings))
            bindings[size] = fresh_size(size.name, upper)


def with_shown_sizes(type_: Type, sizes: Collection[Expr]) -> Type:
    """Replace extents that contain one of the existential dimensions `sizes` which is no extent itself by existential dimensions of
    their own, since the shapes of a value tell its extents alone."""
    hidden = frozenset(sizes) - shown_sizes(type_)
    if not hidden:
        return type_
    extents: dict[Dim, Dim] = {}

    def extent(dim: Dim) -> Dim:
        if isinstance(dim, int) or hidden.isdisjoint(arith.free_vars(dim)):
            return dim
        if dim not in extents:
            extents[dim] = fresh_size("n", arith.bounds(dim)[1])
        return extents[dim]

    def replaced(part: Type) -> Type:
        if isinstance(part, TupleType):
            return TupleType(tuple(map(replaced, part.fields)))
        return TensorType(tuple(map(extent, part.shape)), part.dtype) if isinstance(part, TensorType) else part

    return replaced(type_)


def join_types(a: Type, b: Type, span: Span | None = None) -> Type:
    """Return the least common type: dimensions that differ become existential. Raises `TypeInferenceError` if there is none."""
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
    """Return an inclusive upper bound of a dimension in terms of non-existential dimensions, or None."""
    bound: Dim | None = dim
    while isinstance(bound, SizeVar) and bound.existential:
        bound = bound.upper
    return bound


def _join_dims(a: Dim, b: Dim) -> Dim:
    bounds = (upper_bound(a), upper_bound(b))
    upper = None if bounds[0] is None or bounds[1] is None else unwrap(maximum(bounds[0], bounds[1]))
    return fresh_size("n", upper)
