"""The pattern language: one for rewrite rules, partitioner tables and checks.

    x, w = wildcard(), is_const().named("w")
    conv = is_op("conv")(x, w).has_attr(groups=1)
    biased = conv.optional(lambda it: is_op("add")(it, is_const().named("bias")))
    relu = is_op("relu")(biased) | is_op("clip")(biased, ...)

A pattern object that occurs twice stands for one and the same expression. The arguments of a commutative operator match in either
order. `match(pattern, expr)` gives a `Match`, or None; `explain_mismatch` says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Tuple, TupleItem, Var, children
from inlaid.graph.operator import Operator
from inlaid.graph.unify import fits
from inlaid.types import TensorType, Type


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """What a pattern stands for in a graph.

    `root` is the matched expression, `captures` what the `named` parts matched (parts of an optional or alternative that did not
    take part are missing), `calls` the matched operator calls, the root's side first.
    """

    root: Expr
    captures: Mapping[str, Expr]
    calls: tuple[Call, ...]

    def __getitem__(self, name: str) -> Expr:
        return self.captures[name]

    def __contains__(self, name: object) -> bool:
        return name in self.captures

    def get(self, name: str) -> Expr | None:
        """What a named part matched; None when it took no part."""
        return self.captures.get(name)

    def constant(self, name: str) -> np.ndarray[Any, Any]:
        """The value of a named part that matched a constant. Raises TypeError when it is not one."""
        found = self.captures[name]
        if not isinstance(found, Constant):
            raise TypeError(f"{name!r} matched {found!r}, which is no constant")
        return found.data

    def call(self, name: str) -> Call:
        """The named part, which must have matched a call. Raises TypeError when it is not one."""
        found = self.captures[name]
        if not isinstance(found, Call):
            raise TypeError(f"{name!r} matched {found!r}, which is no call")
        return found

    def attrs(self, name: str) -> Any:
        """The attributes of the operator that a named part matched."""
        return self.call(name).attrs


@dataclass(frozen=True, slots=True)
class _State:
    """What is bound so far: pattern objects by id, names, and the calls met."""

    bound: Mapping[int, Expr] = field(default_factory=dict)
    captures: Mapping[str, Expr] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """One attempt to match; keeps the reason of the failure that got furthest."""

    reasons: list[tuple[int, str]] = field(default_factory=list)

    def fail(self, state: _State, reason: str) -> None:
        self.reasons.append((len(state.calls), reason))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a predicate of `where` asks of an expression, as far as it is known: attributes of its operator, and of its value the
    type, one of some element types and ranks, and the number that all elements are."""

    attrs: Mapping[str, object] = field(default_factory=dict)
    type: Type | None = None
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    value: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Base of patterns. `_match` yields every way to match an expression."""

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        raise NotImplementedError

    def parts(self) -> tuple[Pattern, ...]:
        """The patterns that this one is made of."""
        return ()

    def roots(self) -> frozenset[str] | None:
        """Names of the operators that a matched call can have; None when it need not be a call of a certain operator."""
        return None

    def matches(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        """Every way to match, an earlier match of the same pattern object considered."""
        before = state.bound.get(id(self))
        if before is not None:
            if before is expr:
                yield state
            else:
                attempt.fail(state, "two occurrences of one pattern met different expressions")
            return
        for found in self._match(expr, state, attempt):
            yield replace(found, bound={**found.bound, id(self): expr})

    def __or__(self, other: Pattern) -> Pattern:
        return Either(self, other)

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """This pattern, or what `wrap` makes around it; the larger is tried first."""
        return Either(wrap(self), self)

    def named(self, name: str) -> Pattern:
        """The same, with what it matches given as `name`."""
        return Named(self, name)

    def where(
        self, predicate: Callable[[Expr], bool], reason: str = "a predicate does not hold", wanted: Wanted | None = None
    ) -> Pattern:
        """The same, where the predicate holds for the expression; `reason` explains a failure, `wanted` says what the predicate
        asks for."""
        return Where(self, predicate, reason, wanted or Wanted())

    def has_attr(self, **attrs: object) -> Pattern:
        """The same, for a call whose operator has attributes of these values."""

        def holds(expr: Expr) -> bool:
            missing = object()
            return isinstance(expr, Call) and all(getattr(expr.attrs, key, missing) == value for key, value in attrs.items())

        words = ", ".join(f"{key}={value!r}" for key, value in attrs.items())
        return self.where(holds, f"not with {words}", Wanted(attrs=attrs))

    def has_type(self, type_: Type) -> Pattern:
        """The same, for a value that fits a type."""
        return self.where(lambda expr: fits(type_, expr.type), f"not of type {type_!r}", Wanted(type=type_))

    def has_dtype(self, *names: str) -> Pattern:
        """The same, for a tensor with one of these element types."""
        return self.where(
            lambda expr: isinstance(expr.type, TensorType) and expr.type.dtype.name in names,
            f"the element type is not {' or '.join(names)}",
            Wanted(dtypes=names),
        )

    def has_rank(self, *ranks: int) -> Pattern:
        """The same, for a tensor of one of these ranks."""
        return self.where(
            lambda expr: isinstance(expr.type, TensorType) and expr.type.rank in ranks,
            f"the rank is not {' or '.join(map(str, ranks))}",
            Wanted(ranks=ranks),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    """Any expression."""

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        yield state


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Pattern):
    """An expression of a class."""

    kind: type[Expr]

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if isinstance(expr, self.kind):
            yield state
        else:
            attempt.fail(state, f"{_describe(expr)} is no {self.kind.__name__.lower()}")


@dataclass(frozen=True, slots=True, eq=False)
class OpPattern(Pattern):
    """A call of one of several operators, with any arguments. Calling it gives the pattern with the arguments' patterns."""

    operators: tuple[str | Operator, ...]

    def __call__(self, *args: Pattern) -> Pattern:
        return CallPattern(self.operators, args)

    def roots(self) -> frozenset[str] | None:
        return _names(self.operators)

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if _calls(expr, self.operators):
            assert isinstance(expr, Call)
            yield replace(state, calls=(*state.calls, expr))
        else:
            attempt.fail(state, f"{_describe(expr)} is not {_wanted(self.operators)}")


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(Pattern):
    """A call of one of several operators with arguments of these patterns."""

    operators: tuple[str | Operator, ...]
    args: tuple[Pattern, ...]

    def parts(self) -> tuple[Pattern, ...]:
        return self.args

    def roots(self) -> frozenset[str] | None:
        return _names(self.operators)

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if not _calls(expr, self.operators):
            attempt.fail(state, f"{_describe(expr)} is not {_wanted(self.operators)}")
            return
        assert isinstance(expr, Call) and isinstance(expr.callee, Operator)
        if len(expr.args) != len(self.args):
            attempt.fail(state, f"{expr.callee.name} has {len(expr.args)} arguments, not {len(self.args)}")
            return
        state = replace(state, calls=(*state.calls, expr))
        yield from _all(self.args, expr.args, state, attempt)
        if expr.callee.commutative and len(expr.args) == 2 and expr.args[0] is not expr.args[1]:
            yield from _all(self.args, expr.args[::-1], state, attempt)


@dataclass(frozen=True, slots=True, eq=False)
class TuplePattern(Pattern):
    """A tuple of so many fields."""

    fields: tuple[Pattern, ...]

    def parts(self) -> tuple[Pattern, ...]:
        return self.fields

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if isinstance(expr, Tuple) and len(expr.fields) == len(self.fields):
            yield from _all(self.fields, expr.fields, state, attempt)
        else:
            attempt.fail(state, f"{_describe(expr)} is no tuple of {len(self.fields)}")


@dataclass(frozen=True, slots=True, eq=False)
class ItemPattern(Pattern):
    """A field of a tuple; None for any."""

    value: Pattern
    index: int | None

    def parts(self) -> tuple[Pattern, ...]:
        return (self.value,)

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if isinstance(expr, TupleItem) and self.index in (None, expr.index):
            yield from self.value.matches(expr.tuple, state, attempt)
        else:
            attempt.fail(state, f"{_describe(expr)} is not the wanted item of a tuple")


@dataclass(frozen=True, slots=True, eq=False)
class Either(Pattern):
    """One of two patterns; the first is tried first."""

    first: Pattern
    second: Pattern

    def parts(self) -> tuple[Pattern, ...]:
        return self.first, self.second

    def roots(self) -> frozenset[str] | None:
        first, second = self.first.roots(), self.second.roots()
        return None if first is None or second is None else first | second

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        yield from self.first.matches(expr, state, attempt)
        yield from self.second.matches(expr, state, attempt)


@dataclass(frozen=True, slots=True, eq=False)
class Named(Pattern):
    """A pattern whose match is given as `name`."""

    inner: Pattern
    name: str

    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)

    def roots(self) -> frozenset[str] | None:
        return self.inner.roots()

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        for found in self.inner.matches(expr, state, attempt):
            yield replace(found, captures={**found.captures, self.name: expr})


@dataclass(frozen=True, slots=True, eq=False)
class Where(Pattern):
    """A pattern where a predicate holds as well."""

    inner: Pattern
    predicate: Callable[[Expr], bool]
    reason: str
    wanted: Wanted = field(default_factory=Wanted)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)

    def roots(self) -> frozenset[str] | None:
        return self.inner.roots()

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        for found in self.inner.matches(expr, state, attempt):
            if self.predicate(expr):
                yield found
            else:
                attempt.fail(found, f"{_describe(expr)}: {self.reason}")


@dataclass(frozen=True, slots=True, eq=False)
class Dominates(Pattern):
    """See `dominates`."""

    parent: Pattern
    path: Pattern
    child: Pattern

    def parts(self) -> tuple[Pattern, ...]:
        return self.parent, self.path, self.child

    def roots(self) -> frozenset[str] | None:
        return self.child.roots()

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        for found in self.child.matches(expr, state, attempt):
            yield from self._ascend(expr, found, attempt)

    def _ascend(self, child: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        pending, seen = list(children(child)), set[int]()
        top: Expr | None = None
        while pending:
            expr = pending.pop()
            if id(expr) in seen or isinstance(expr, (Constant, Var)):
                continue
            seen.add(id(expr))
            matched = next(self.parent.matches(expr, state, attempt), None)
            if matched is not None:
                if top is not None:
                    attempt.fail(state, "two expressions match where one must dominate")
                    return
                top, state = expr, matched
                continue
            through = next(self.path.matches(expr, replace(state, bound={}), attempt), None)
            if through is None:
                attempt.fail(state, f"{_describe(expr)} does not belong on the path")
                return
            state = replace(through, bound=state.bound)
            pending.extend(children(expr))
        if top is None:
            attempt.fail(state, "nothing matches where an expression must dominate")
        else:
            yield state


def wildcard() -> Pattern:
    """Any expression."""
    return Wildcard()


def is_op(*operators: str | Operator) -> OpPattern:
    """A call of an operator, or of one of several, by name or by the operator itself. Call it with patterns for the arguments."""
    return OpPattern(operators)


def is_const() -> Pattern:
    """A constant."""
    return Kind(Constant)


def is_scalar(value: float) -> Pattern:
    """A numeric constant whose elements, at least one, all have this value; 0.0 and -0.0 are two values of a float."""

    def holds(expr: Expr) -> bool:
        if not isinstance(expr, Constant) or expr.data.size == 0 or expr.data.dtype == object:
            return False
        assert isinstance(expr.type, TensorType)
        wide = expr.data.astype(np.float64)
        same_sign = not expr.type.dtype.is_float or bool(np.all(np.signbit(wide) == np.signbit(value)))
        return bool(np.all(wide == value)) and same_sign

    return is_const().where(holds, f"not the constant {value}", Wanted(value=value))


def is_var() -> Pattern:
    """A variable."""
    return Kind(Var)


def is_tuple(*fields: Pattern) -> Pattern:
    """A tuple of so many fields."""
    return TuplePattern(fields)


def tuple_item(value: Pattern, index: int | None = None) -> Pattern:
    """A field of a tuple; None for any."""
    return ItemPattern(value, index)


def dominates(parent: Pattern, path: Pattern, child: Pattern) -> Pattern:
    """An expression that matches `child` and depends, through any number of expressions that match `path`, on exactly one that
    matches `parent` and on nothing else but constants and variables.

    Whether something outside reads an expression in between is for the caller to judge, by `Match.calls`.
    """
    return Dominates(parent, path, child)


def operators_of(pattern: Pattern) -> tuple[str | Operator, ...]:
    """The operators that a pattern mentions, each once, by name or by themselves as it has them."""
    found: dict[str | Operator, None] = {}
    seen: dict[int, Pattern] = {}
    stack = [pattern]
    while stack:
        part = stack.pop()
        if id(part) not in seen:
            seen[id(part)] = part
            stack.extend(reversed(part.parts()))
            if isinstance(part, (OpPattern, CallPattern)):
                found.update(dict.fromkeys(part.operators))
    return tuple(found)


def match(pattern: Pattern, expr: Expr) -> Match | None:
    """The first way to match the pattern at this expression; None when there is none."""
    found = next(pattern.matches(expr, _State(), _Attempt()), None)
    return None if found is None else Match(expr, found.captures, found.calls)


def explain_mismatch(pattern: Pattern, expr: Expr) -> str | None:
    """Why a pattern does not match at an expression: the reason of the attempt that got furthest. None when it matches."""
    attempt = _Attempt()
    if next(pattern.matches(expr, _State(), attempt), None) is not None:
        return None
    return max(attempt.reasons, key=lambda reason: reason[0])[1]


def _all(patterns: tuple[Pattern, ...], exprs: tuple[Expr, ...], state: _State, attempt: _Attempt) -> Iterator[_State]:
    """Every way to match patterns with expressions, one by one."""
    if not patterns:
        yield state
        return
    for found in patterns[0].matches(exprs[0], state, attempt):
        yield from _all(patterns[1:], exprs[1:], found, attempt)


def _calls(expr: Expr, operators: tuple[str | Operator, ...]) -> bool:
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator):
        return False
    callee = expr.callee
    return any(callee.name == item if isinstance(item, str) else callee is item for item in operators)


def _names(operators: tuple[str | Operator, ...]) -> frozenset[str]:
    return frozenset(item if isinstance(item, str) else item.name for item in operators)


def _wanted(operators: tuple[str | Operator, ...]) -> str:
    return " or ".join(sorted(_names(operators)))


def _describe(expr: Expr) -> str:
    if isinstance(expr, Call) and isinstance(expr.callee, Operator):
        return expr.callee.name
    return {"Call": "a call of a function"}.get(type(expr).__name__, f"a {type(expr).__name__.lower()}")
