"""Find the comparisons of sizes that a type relation makes by itself.

A type relation that tests `isinstance(n, int) and n != m` checks static sizes and lets symbolic ones pass: kernels then access
memory by sizes that nothing has checked. No analysis of the source tells sizes from attributes, so the relation is executed, on
integers that know the symbolic size that they stand for. A comparison is reported if its outcome depends on symbolic sizes, unless
it is made by `inlaid.graph.conditions`, which states a precondition, or by arithmetic that is also defined on symbolic sizes.

The tests trace the built-in operators. Operators of users and vendors are traced at each call with symbolic sizes.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from inlaid.graph.attrs import Attrs, attr_items, attr_vars
from inlaid.graph.conditions import not_negative, recording
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, TupleType, Type, substitute_type, type_vars

_PASSIVE = (
    "inlaid_runtime.arith.",
    "inlaid_runtime.types.",
    "inlaid_runtime.records",
    "inlaid.graph.conditions",
    "inlaid.graph.unify",
)
"""Modules whose own comparisons are defined for symbolic sizes, too, and so are not reported. Their methods in `_ON_BEHALF` compare
whole values for a caller, whose comparison is reported."""
_ON_BEHALF = ("__eq__", "__hash__", "__bool__")
_REPAIRS, _LARGEST = 8, 1024
"""Bounds of the search for sizes that satisfy preconditions: the maximum number of changes, and the maximum size to try."""


@dataclass(frozen=True)
class Comparison:
    """A comparison that a type relation makes: its text and its place in the source."""

    text: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.text} ({self.file}:{self.line})"


@dataclass(frozen=True)
class RelationTrace:
    """The run of a type relation on integers. `result` is the type that it returns, None if it raises an exception. `violations`
    are preconditions that the integers do not satisfy."""

    result: Type | None
    comparisons: tuple[Comparison, ...]
    violations: tuple[Constraint, ...]


class TracedSize(int):
    """An integer that stands for a symbolic size. Sums, products, quotients and remainders are traced, too."""

    expr: arith.Expr
    comparisons: list[Comparison]

    def __float__(self) -> float:
        self._report(f"float({self.expr!r})")
        return int.__float__(self)

    def __truediv__(self, other: Any) -> Any:
        self._report(f"{self.expr!r} / {other!r}")
        return int.__truediv__(self, other)

    def __int__(self) -> int:
        self._report(f"int({self.expr!r})")
        return self.__index__()

    def __hash__(self) -> int:
        self._report(f"hash({self.expr!r})")
        return int.__hash__(self)

    def __bool__(self) -> bool:
        self._compared("!=", 0)
        return int.__bool__(self)

    def _compared(self, operator: str, other: int) -> None:
        condition = arith.compare(operator, self.expr, _expr(other))
        if not arith.prove(condition) and not arith.prove(arith.logical_not(condition)):
            self._report(repr(condition))

    def _report(self, text: str) -> None:
        location = _comparison_location()
        if location is not None:
            self.comparisons.append(Comparison(text, *location))


def _traced(value: int, expr: arith.Expr, comparisons: list[Comparison]) -> TracedSize:
    size = TracedSize(value)
    size.expr, size.comparisons = expr, comparisons
    return size


def _expr(value: int) -> arith.Expr:
    return value.expr if isinstance(value, TracedSize) else arith.wrap(value)


def _arithmetic(name: str) -> Callable[..., Any]:
    """Return the method `name` of traced sizes, which applies it to integers and to the sizes that they stand for."""
    on_integers, on_sizes = getattr(int, name), getattr(arith.Expr, name)

    def method(self: TracedSize, *operands: Any) -> Any:
        value = on_integers(self, *operands)
        return value if value is NotImplemented else _traced(value, on_sizes(self.expr, *map(_expr, operands)), self.comparisons)

    return method


def _comparison(name: str, operator: str) -> Callable[..., Any]:
    """Return the comparison `name` of traced sizes."""
    on_integers = getattr(int, name)

    def method(self: TracedSize, other: Any) -> Any:
        outcome = on_integers(self, other)
        if outcome is not NotImplemented:
            self._compared(operator, other)
        return outcome

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod", "neg"):
    setattr(TracedSize, f"__{_name}__", _arithmetic(f"__{_name}__"))
for _name, _operator in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    setattr(TracedSize, f"__{_name}__", _comparison(f"__{_name}__", _operator))
TracedSize.__pos__ = lambda self: self  # type: ignore[method-assign]


def _comparison_location() -> tuple[str, int] | None:
    """Return file and line of the comparison that is being made; None if a module in `_PASSIVE` makes it by itself."""
    frame: Any = sys._getframe(1)
    while frame.f_globals["__name__"] == __name__:
        frame = frame.f_back
    entry_name = None
    while frame.f_globals.get("__name__", "").startswith(_PASSIVE):
        entry_name, frame = frame.f_code.co_name, frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if entry_name is None or entry_name in _ON_BEHALF else None


def trace(infer: Callable[..., Type], attrs: Attrs, types: tuple[Type, ...], sizes: Mapping[arith.Expr, int]) -> RelationTrace:
    """Run a type relation with a traced integer in place of each symbolic size. `sizes` maps symbolic sizes to these integers."""
    comparisons: list[Comparison] = []

    def traced(value: Any) -> Any:
        match value:
            case arith.Expr():
                return _traced(arith.evaluate(value, sizes), value, comparisons)
            case tuple():
                return tuple(map(traced, value))
            case TensorType(shape=shape, dtype=dtype):
                return TensorType(traced(shape), dtype)
            case TupleType(fields=fields):
                return TupleType(traced(fields))
            case SequenceType(element=element):
                return SequenceType(traced(element))
            case OptionalType(element=element):
                return OptionalType(traced(element))
        return value

    with recording(lenient=True) as recorded:
        try:
            traced_attrs = dataclasses.replace(attrs, **{name: traced(value) for name, value in attr_items(attrs)})
            result = infer(traced_attrs, *map(traced, types))
        except Exception:  # the type relation has accepted the symbolic sizes: it may be undefined for these integers
            result = None
    return RelationTrace(result, tuple(dict.fromkeys(comparisons)), tuple(recorded.violations))


def check_rule(infer: Callable[..., Type], attrs: Attrs, types: tuple[Type, ...], result: Type) -> None:
    """Check that a type relation, which returns the type `result` for symbolic sizes, states what it requires of them. Raises
    `TypeInferenceError` if it compares sizes by itself, or has another result for integers."""
    variables = attr_vars(attrs).union(*map(type_vars, types))
    if not variables:
        return
    with recording() as recorded:
        infer(attrs, *types)
    constraints = (*recorded.symbolic, *itertools.chain(*map(not_negative, (*types, result))))
    sizes = _suitable_sizes(constraints, variables)
    outcome = trace(infer, attrs, types, sizes)
    remedy = "compare sizes by inlaid.conditions: require_equal, require_at_most, broadcast_shapes, require_static, ..."
    if outcome.comparisons:
        raise TypeInferenceError(
            f"a type relation must state what it requires of symbolic sizes, but compares {outcome.comparisons[0]}", remedy=remedy
        )
    if outcome.result is None or outcome.violations:
        return
    substitution = {size: arith.wrap(value) for size, value in sizes.items()}
    if not agree(substitute_type(result, substitution), outcome.result):
        values = ", ".join(f"{size!r} is {value}" for size, value in sorted(sizes.items(), key=repr))
        raise TypeInferenceError(
            f"a type relation must have the same result for symbolic sizes as for integers, got {result!r} and "
            f"{outcome.result!r} where {values}",
            remedy="compute extents by arithmetic on sizes, or by the functions of inlaid_runtime.arith",
        )


def _suitable_sizes(constraints: tuple[Constraint, ...], variables: frozenset[arith.Expr]) -> dict[arith.Expr, int]:
    """Return a size for each variable. Starting from hints, single sizes are changed to satisfy the constraints, at most `_REPAIRS`
    times, so the constraints may remain violated."""
    sizes = {size: arith.size_hint(size) for size in variables}
    for _ in range(_REPAIRS):
        change = arith.suggested_size(constraints, sizes, _LARGEST)
        if change is None or sizes[change[0]] == change[1]:
            break
        sizes[change[0]] = change[1]
    return sizes


def agree(symbolic: Type, integers: Type) -> bool:
    """Test whether two types are equal, except for dimensions that only a kernel computes."""
    match symbolic, integers:
        case TensorType(), TensorType():
            ranks_match = symbolic.dtype is integers.dtype and symbolic.rank == integers.rank
            return ranks_match and all(map(_dims_agree, symbolic.shape, integers.shape))
        case TupleType(), TupleType():
            return len(symbolic.fields) == len(integers.fields) and all(map(agree, symbolic.fields, integers.fields))
        case (SequenceType(element=a), SequenceType(element=b)) | (OptionalType(element=a), OptionalType(element=b)):
            return agree(a, b)
    return type(symbolic) is type(integers)


def _dims_agree(symbolic: Dim, integer: Dim) -> bool:
    return not isinstance(symbolic, int) or not isinstance(integer, int) or symbolic.__index__() == integer.__index__()
