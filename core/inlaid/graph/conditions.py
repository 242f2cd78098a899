"""Relations between sizes: the one way in which type relations compare sizes.

A type relation states a precondition by `require`, or by a function of this module that calls it: `require_equal`,
`require_at_most`, `broadcast_shapes`, ... If static sizes violate it, inference fails at once. A precondition on symbolic sizes is
recorded (see `graph.scope_conditions`), so that compile time and run time report a violation with the same message. A type relation
that compares sizes by itself checks only sizes that are integers, and kernels then access memory by sizes that nothing checked.
`inlaid.graph.traced` finds such comparisons.

In all functions, `what` names the size in the error "`what` must be <expected>, got <size>".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint as Constraint
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import TensorType, TupleType, Type


@dataclass(frozen=True)
class Recorded:
    """Preconditions that a type relation states while it is recorded (see `recording`). `violations` are those that are false for
    all sizes; they are recorded only if `lenient`, otherwise `require` raises ValueError for them."""

    lenient: bool = False
    symbolic: list[Constraint] = field(default_factory=list)
    violations: list[Constraint] = field(default_factory=list)


_recorded: ContextVar[Recorded | None] = ContextVar("recorded", default=None)
"""The record to which `require` adds; None outside of `recording`. Each thread has its own."""


@contextmanager
def recording(lenient: bool = False) -> Iterator[Recorded]:
    """Record the preconditions that type relations state inside the `with` block."""
    recorded = Recorded(lenient)
    token = _recorded.set(recorded)
    try:
        yield recorded
    finally:
        _recorded.reset(token)


def require(constraint: Constraint) -> None:
    """State a precondition of the expression whose type is being inferred. Raises ValueError if `constraint` is false for all
    sizes."""
    recorded = _recorded.get()
    if not isinstance(constraint.condition, int):
        if recorded is not None:
            recorded.symbolic.append(constraint)
    elif not constraint.condition:
        if recorded is None or not recorded.lenient:
            raise ValueError(constraint.message({}))
        recorded.violations.append(constraint)


# Each function accepts sizes that satisfy the relation before it builds a constraint: almost all sizes are integers, and types are
# inferred often. An operation on integers takes a fraction of the time that it takes to build an expression.


def require_equal(size: Dim, expected: Dim, what: str) -> Dim:
    """Require two sizes to be equal. Returns the size, as an integer if either is one. Raises ValueError."""
    if size == expected:
        return size
    require(arith.equals(size, expected, what))
    return expected if isinstance(expected, int) else size


def require_at_least(size: Dim, least: Dim, what: str) -> None:
    """Require `size >= least`. Raises ValueError."""
    if not (isinstance(size, int) and isinstance(least, int) and size >= least):
        require(arith.at_least(size, least, what))


def require_at_most(size: Dim, greatest: Dim, what: str) -> None:
    """Require `size <= greatest`. Raises ValueError."""
    if not (isinstance(size, int) and isinstance(greatest, int) and size <= greatest):
        require(arith.does_not_exceed(size, greatest, what))


def require_within(size: Dim, least: Dim, greatest: Dim, what: str) -> None:
    """Require `least <= size <= greatest`. Raises ValueError."""
    if not (isinstance(size, int) and isinstance(least, int) and isinstance(greatest, int) and least <= size <= greatest):
        require(arith.within(size, least, greatest, what))


def require_multiple(size: Dim, divisor: Dim, what: str) -> Dim:
    """Require a size to be a multiple of a divisor that is at least 1. Returns the quotient. Raises ValueError."""
    if not (isinstance(size, int) and isinstance(divisor, int) and divisor >= 1 and size % divisor == 0):
        require(arith.divisible_by(size, divisor, what))
        if isinstance(divisor, int) and divisor < 1:
            return size  # while violations are recorded
    return arith.unwrap(size // divisor) if divisor != 1 else size


def require_range(begin: Dim, end: Dim, extent: Dim, what: str) -> None:
    """Require `0 <= begin <= end <= extent`: the elements from `begin` to `end` are within an axis. Raises ValueError."""
    if isinstance(begin, int) and isinstance(end, int) and isinstance(extent, int) and 0 <= begin <= end <= extent:
        return
    ordered = arith.logical_and(arith.compare("<=", begin, end), arith.compare("<=", end, extent))
    inside = arith.unwrap(arith.logical_and(arith.compare("<=", 0, begin), ordered))
    require(Constraint(inside, what, f"within an axis of {extent!r} elements", arith.unwrap(arith.add(end, -arith.wrap(begin)))))


def require_static(size: Dim, what: str) -> int:
    """Require a size to be known at compile time. Returns it as an integer that may be compared. Raises ValueError."""
    if not isinstance(size, int):
        raise ValueError(f"{what} must be static, got {size!r}")
    return size.__index__()


def provably_equal(a: Dim, b: Dim) -> bool:
    """Test whether two sizes are equal for all values of symbolic sizes. For case distinctions in type relations: False means that
    the sizes may differ, so what the relation does then must also be right for equal sizes."""
    return a == b


def require_shape(shape: Sequence[Dim], expected: Sequence[Dim], what: str) -> None:
    """Require a tensor to have a shape. `what` names the tensor. Raises ValueError."""
    if len(shape) != len(expected):
        raise ValueError(f"{what} must have rank {len(expected)} (shape {_shape(expected)}), got shape {_shape(shape)}")
    for axis, (size, extent) in enumerate(zip(shape, expected, strict=True)):
        if size != extent:
            require(arith.equals(size, extent, f"dimension {axis} of {what}"))


def require_broadcast_to(shape: Sequence[Dim], extents: Sequence[Dim], what: str) -> None:
    """Require a tensor to broadcast to the shape `extents`, as in numpy. `what` names the tensor. Raises ValueError."""
    first = len(extents) - len(shape)
    if first < 0:
        raise ValueError(f"{what} must broadcast to {_shape(extents)}, got shape {_shape(shape)}")
    for axis, (size, extent) in enumerate(zip(shape, extents[first:], strict=True)):
        if size not in (1, extent):
            require(arith.broadcasts_to(size, extent, f"dimension {axis} of {what}"))


def broadcast_shapes(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Require tensors to broadcast together, and return their common shape, as in numpy. Raises ValueError.

    If one of two dimensions is provably never 1, such as a static 3 or an even size, it is the result. The run checks that the
    other one equals it or is 1. The result of n and min(n, 512) is n.
    """
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for offset, dim in enumerate(shape, rank - len(shape)):
            result[offset] = _broadcast(result[offset], dim)
    return tuple(result)


def _broadcast(a: Dim, b: Dim) -> Dim:
    if a == b or (isinstance(b, int) and b == 1):
        return a
    if isinstance(a, int):
        if a == 1:
            return b
        require(arith.broadcasts_with(b, a, "an operand's dimension"))
        return a
    require(arith.broadcasts_with(a, b, "an operand's dimension"))
    if isinstance(b, int):
        return b
    # Either expression of the result is correct if the dimensions broadcast; prefer one without a condition.
    forms = [arith.simplify(arith.select(arith.compare("==", x, 1), y, x)) for x, y in ((a, b), (b, a))]
    unconditional_forms = [dim for dim in forms if dim in (arith.simplify(a), arith.simplify(b))]
    return arith.unwrap(min(unconditional_forms or forms[:1], key=lambda dim: sum(1 for _ in arith.walk(dim))))


def _shape(dims: Sequence[Dim]) -> str:
    return f"({', '.join(map(repr, dims))}{',' if len(dims) == 1 else ''})"


def not_negative(type_: Type) -> Iterator[Constraint]:
    """Yield the constraints that the dimensions of a type are >= 0."""
    if isinstance(type_, TupleType):
        for item in type_.fields:
            yield from not_negative(item)
    elif isinstance(type_, TensorType):
        for axis, dim in enumerate(type_.shape):
            if not isinstance(dim, (int, arith.SizeVar)):
                yield arith.at_least(dim, 0, f"dimension {axis} of the output")
