"""The pattern language of rewrite rules, partitioner tables and checks.

    x, w = wildcard(), is_const().named("w")
    conv = is_op("conv")(x, w).has_attr(groups=1)
    biased = conv.optional(lambda it: is_op("add")(it, is_const().named("bias")))
    relu = is_op("relu")(biased) | is_op("clip")(biased, ...)

All occurrences of one pattern object must match the same expression. The operands of a commutative operator match in either order.
`match(pattern, expr)` returns a `Match` or None; `explain_mismatch` returns the reason of a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Tuple, TupleItem, Var, children
from inlaid.graph.operator import Operator
from inlaid.graph.unify import fits
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import TensorType, Type


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The result of a successful match.

    `root` is the matched expression. `captures` maps each name given to `named` to the expression matched under it; names
    in an optional or alternative that was not matched are missing. `calls` are the matched operator calls, the root first.
    """

    root: Expr
    captures: Mapping[str, Expr]
    calls: tuple[Call, ...]

    def __getitem__(self, name: str) -> Expr:
        return self.captures[name]

    def __contains__(self, name: object) -> bool:
        return name in self.captures

    def get(self, name: str) -> Expr | None:
        """Return the expression captured as `name`, or None if that part of the pattern was not matched."""
        return self.captures.get(name)

    def constant(self, name: str) -> np.ndarray[Any, Any]:
        """Return the value of the constant captured as `name`. Raises TypeError for any other expression."""
        capture = self.captures[name]
        if not isinstance(capture, Constant):
            raise TypeError(f"{name!r} must match a constant, but matched {capture!r}")
        return capture.data

    def call(self, name: str) -> Call:
        """Return the call captured as `name`. Raises TypeError for any other expression."""
        capture = self.captures[name]
        if not isinstance(capture, Call):
            raise TypeError(f"{name!r} must match a call, but matched {capture!r}")
        return capture

    def attrs(self, name: str) -> Any:
        """Return the attributes of the call captured as `name`."""
        return self.call(name).attrs


@dataclass(frozen=True, slots=True)
class _State:
    """The matches so far: expressions by the id of the pattern object, captured expressions by name, and the matched calls."""

    bound: Mapping[int, Expr] = field(default_factory=dict)
    captures: Mapping[str, Expr] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """One attempt to match. If `explains`, it records the reason of each failure with the number of calls matched before it."""

    explains: bool = False
    reasons: list[tuple[int, str]] = field(default_factory=list)

    def fail(self, state: _State, reason: Callable[[], str]) -> None:
        if self.explains:
            self.reasons.append((len(state.calls), reason()))


@dataclass(frozen=True, slots=True)
class Requirements:
    """A declarative form of a `where` predicate: required attributes of the operator, and the required type, dtypes, ranks and
    constant element value of the expression. `second` maps the first operand to the value that the constant second one must
    have."""

    attrs: Mapping[str, object] = field(default_factory=dict)
    type: Type | None = None
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    value: float | None = None
    second: Callable[[Expr], np.ndarray[Any, Any] | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Base class of patterns. `_match` yields every way to match an expression."""

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        raise NotImplementedError

    def parts(self) -> tuple[Pattern, ...]:
        """Return the direct subpatterns."""
        return ()

    def roots(self) -> frozenset[str] | None:
        """Return the names of the operators that the root can be a call of; None if it can be any expression."""
        return None

    def matches(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        """Yield every way to match that is consistent with an earlier match of the same pattern object."""
        before = state.bound.get(id(self))
        if before is not None:
            if before is expr:
                yield state
            else:
                attempt.fail(state, lambda: "two occurrences of one pattern matched different expressions")
            return
        for next_state in self._match(expr, state, attempt):
            yield _State({**next_state.bound, id(self): expr}, next_state.captures, next_state.calls)

    def __or__(self, other: Pattern) -> Pattern:
        return Either(self, other)

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """Match `wrap(self)` if possible, else this pattern."""
        return Either(wrap(self), self)

    def named(self, name: str) -> Pattern:
        """Capture the expression that the pattern matches as `name`."""
        return Named(self, name)

    def where(
        self, predicate: Callable[[Expr], bool], reason: str = "a predicate does not hold", requirements: Requirements | None = None
    ) -> Pattern:
        """Restrict the pattern by a predicate on the expression. `reason` explains a failure; `requirements` is the predicate's
        declarative form."""
        return Where(self, predicate, reason, requirements or Requirements())

    def has_attr(self, **attrs: object) -> Pattern:
        """Restrict the pattern to calls with these attribute values."""

        def holds(expr: Expr) -> bool:
            missing = object()
            return isinstance(expr, Call) and all(getattr(expr.attrs, key, missing) == value for key, value in attrs.items())

        words = ", ".join(f"{key}={value!r}" for key, value in attrs.items())
        return self.where(holds, f"expected {words}", Requirements(attrs=attrs))

    def has_type(self, type_: Type) -> Pattern:
        """Restrict the pattern to values of a type."""
        return self.where(lambda expr: fits(type_, expr.type), f"expected type {type_!r}", Requirements(type=type_))

    def has_dtype(self, *names: str) -> Pattern:
        """Restrict the pattern to tensors with one of these dtypes."""
        return self.where(
            lambda expr: isinstance(expr.type, TensorType) and expr.type.dtype.name in names,
            f"expected dtype {' or '.join(names)}",
            Requirements(dtypes=names),
        )

    def has_rank(self, *ranks: int) -> Pattern:
        """Restrict the pattern to tensors with one of these ranks."""
        return self.where(
            lambda expr: isinstance(expr.type, TensorType) and expr.type.rank in ranks,
            f"expected rank {' or '.join(map(str, ranks))}",
            Requirements(ranks=ranks),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    """Matches any expression."""

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        yield state


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Pattern):
    """Matches expressions of a class."""

    kind: type[Expr]

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if isinstance(expr, self.kind):
            yield state
        else:
            attempt.fail(state, lambda: f"expected a {self.kind.__name__.lower()}, found {_describe(expr)}")


@dataclass(frozen=True, slots=True, eq=False)
class OpPattern(Pattern):
    """Matches a call of one of several operators with any operands. Call the pattern to add patterns for the operands."""

    operators: tuple[str | Operator, ...]

    def __call__(self, *args: Pattern) -> Pattern:
        return CallPattern(self.operators, args)

    def roots(self) -> frozenset[str] | None:
        return _names(self.operators)

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if _calls(expr, self.operators):
            assert isinstance(expr, Call)
            yield _State(state.bound, state.captures, (*state.calls, expr))
        else:
            attempt.fail(state, lambda: f"{_describe(expr)} is not {_alternatives(self.operators)}")


@dataclass(frozen=True, slots=True, eq=False)
class CallPattern(Pattern):
    """Matches a call of one of several operators whose operands match patterns."""

    operators: tuple[str | Operator, ...]
    args: tuple[Pattern, ...]

    def parts(self) -> tuple[Pattern, ...]:
        return self.args

    def roots(self) -> frozenset[str] | None:
        return _names(self.operators)

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if not _calls(expr, self.operators):
            attempt.fail(state, lambda: f"{_describe(expr)} is not {_alternatives(self.operators)}")
            return
        assert isinstance(expr, Call) and isinstance(expr.callee, Operator)
        args, callee = expr.args, expr.callee
        if len(args) != len(self.args):
            attempt.fail(state, lambda: f"{callee.name} has {len(args)} operands, expected {len(self.args)}")
            return
        state = _State(state.bound, state.captures, (*state.calls, expr))
        yield from _match_sequence(self.args, args, state, attempt)
        if callee.commutative and len(expr.args) == 2 and expr.args[0] is not expr.args[1]:
            yield from _match_sequence(self.args, expr.args[::-1], state, attempt)


@dataclass(frozen=True, slots=True, eq=False)
class TuplePattern(Pattern):
    """Matches a tuple of `len(fields)` fields, each of which matches its pattern in `fields`."""

    fields: tuple[Pattern, ...]

    def parts(self) -> tuple[Pattern, ...]:
        return self.fields

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if isinstance(expr, Tuple) and len(expr.fields) == len(self.fields):
            yield from _match_sequence(self.fields, expr.fields, state, attempt)
        else:
            attempt.fail(state, lambda: f"expected a tuple of {len(self.fields)} fields, found {_describe(expr)}")


@dataclass(frozen=True, slots=True, eq=False)
class ItemPattern(Pattern):
    """Matches a field of a tuple; an index of None matches any field."""

    value: Pattern
    index: int | None

    def parts(self) -> tuple[Pattern, ...]:
        return (self.value,)

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        if isinstance(expr, TupleItem) and self.index in (None, expr.index):
            yield from self.value.matches(expr.tuple, state, attempt)
        else:
            attempt.fail(state, lambda: f"expected tuple item {self.index}, found {_describe(expr)}")


@dataclass(frozen=True, slots=True, eq=False)
class Either(Pattern):
    """Matches one of two patterns; the first is tried first."""

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
    """Captures the expression that a pattern matches as `name`."""

    inner: Pattern
    name: str

    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)

    def roots(self) -> frozenset[str] | None:
        return self.inner.roots()

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        for next_state in self.inner.matches(expr, state, attempt):
            yield _State(next_state.bound, {**next_state.captures, self.name: expr}, next_state.calls)


@dataclass(frozen=True, slots=True, eq=False)
class Where(Pattern):
    """Restricts a pattern by a predicate."""

    inner: Pattern
    predicate: Callable[[Expr], bool]
    reason: str
    requirements: Requirements = field(default_factory=Requirements)

    def parts(self) -> tuple[Pattern, ...]:
        return (self.inner,)

    def roots(self) -> frozenset[str] | None:
        return self.inner.roots()

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        for next_state in self.inner.matches(expr, state, attempt):
            if self.predicate(expr):
                yield next_state
            else:
                attempt.fail(next_state, lambda: f"{_describe(expr)}: {self.reason}")


@dataclass(frozen=True, slots=True, eq=False)
class Dominates(Pattern):
    """Matches an expression dominated by one `parent`: see `dominates`."""

    parent: Pattern
    path: Pattern
    child: Pattern

    def parts(self) -> tuple[Pattern, ...]:
        return self.parent, self.path, self.child

    def roots(self) -> frozenset[str] | None:
        return self.child.roots()

    def _match(self, expr: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        for next_state in self.child.matches(expr, state, attempt):
            yield from self._ascend(expr, next_state, attempt)

    def _ascend(self, child: Expr, state: _State, attempt: _Attempt) -> Iterator[_State]:
        pending, visited = list(children(child)), set[int]()
        dominator: Expr | None = None
        while pending:
            expr = pending.pop()
            if id(expr) in visited or isinstance(expr, (Constant, Var)):
                continue
            visited.add(id(expr))
            parent_state = next(self.parent.matches(expr, state, attempt), None)
            if parent_state is not None:
                if dominator is not None:
                    attempt.fail(state, lambda: "expected one dominating expression, found two")
                    return
                dominator, state = expr, parent_state
                continue
            path_state = next(self.path.matches(expr, replace(state, bound={}), attempt), None)
            if path_state is None:
                attempt.fail(state, lambda expr=expr: f"{_describe(expr)} does not match the pattern of the path")  # type: ignore[misc]
                return
            state = replace(path_state, bound=state.bound)
            pending.extend(children(expr))
        if dominator is None:
            attempt.fail(state, lambda: "expected a dominating expression, found none")
        else:
            yield state


def wildcard() -> Pattern:
    """Match any expression."""
    return Wildcard()


def is_op(*operators: str | Operator) -> OpPattern:
    """Match a call of one of the operators, given by name or as objects. Call the result with patterns for the operands."""
    return OpPattern(operators)


def is_const() -> Pattern:
    """Match a constant."""
    return Kind(Constant)


def is_scalar(value: float) -> Pattern:
    """Match a non-empty numeric constant whose elements all equal `value`. 0.0 and -0.0 are different float values."""

    def holds(expr: Expr) -> bool:
        if not isinstance(expr, Constant) or expr.data.size == 0 or expr.data.dtype == object:
            return False
        assert isinstance(expr.type, TensorType)
        elements = expr.data.astype(np.float64)
        signs_match = not expr.type.dtype.is_float or bool(np.all(np.signbit(elements) == np.signbit(value)))
        return bool(np.all(elements == value)) and signs_match

    return is_const().where(holds, f"expected the constant {value}", Requirements(value=value))


def is_var() -> Pattern:
    """Match a variable."""
    return Kind(Var)


def is_tuple(*fields: Pattern) -> Pattern:
    """Match a tuple whose fields match the given patterns."""
    return TuplePattern(fields)


def tuple_item(value: Pattern, index: int | None = None) -> Pattern:
    """Match field `index` of a tuple; None matches any field."""
    return ItemPattern(value, index)


def dominates(parent: Pattern, path: Pattern, child: Pattern) -> Pattern:
    """Match an expression dominated by one `parent`.

    The expression matches `child`. Every path from it through operands passes only expressions that match `path`. A path ends at
    the dominating expression, which matches `parent` and is the same for all paths, or at a constant or a variable. Other
    expressions may read the intermediate values: see `Match.calls`.
    """
    return Dominates(parent, path, child)


def pattern_operators(pattern: Pattern) -> tuple[str | Operator, ...]:
    """Return the operators that a pattern mentions, without duplicates, each as the name or object given to the pattern."""
    operators: dict[str | Operator, None] = {}
    visited: dict[int, Pattern] = {}
    stack = [pattern]
    while stack:
        part = stack.pop()
        if id(part) not in visited:
            visited[id(part)] = part
            stack.extend(reversed(part.parts()))
            if isinstance(part, (OpPattern, CallPattern)):
                operators.update(dict.fromkeys(part.operators))
    return tuple(operators)


def match(pattern: Pattern, expr: Expr) -> Match | None:
    """Match a pattern at an expression. Returns the first match, or None."""
    state = next(pattern.matches(expr, _State(), _Attempt()), None)
    return None if state is None else Match(expr, state.captures, state.calls)


def explain_mismatch(pattern: Pattern, expr: Expr) -> str | None:
    """Explain why a pattern does not match at an expression: the failure that got furthest. Returns None if it matches."""
    attempt = _Attempt(explains=True)
    if next(pattern.matches(expr, _State(), attempt), None) is not None:
        return None
    return max(attempt.reasons, key=lambda reason: reason[0])[1]


def _match_sequence(patterns: tuple[Pattern, ...], exprs: tuple[Expr, ...], state: _State, attempt: _Attempt) -> Iterator[_State]:
    """Yield every way to match a sequence of patterns with a sequence of expressions."""
    if not patterns:
        yield state
        return
    for next_state in patterns[0].matches(exprs[0], state, attempt):
        yield from _match_sequence(patterns[1:], exprs[1:], next_state, attempt)


def _calls(expr: Expr, operators: tuple[str | Operator, ...]) -> bool:
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator):
        return False
    callee = expr.callee
    return any(callee.name == item if isinstance(item, str) else callee is item for item in operators)


def _names(operators: tuple[str | Operator, ...]) -> frozenset[str]:
    return frozenset(item if isinstance(item, str) else item.name for item in operators)


def _alternatives(operators: tuple[str | Operator, ...]) -> str:
    return " or ".join(sorted(_names(operators)))


def _describe(expr: Expr) -> str:
    if isinstance(expr, Call) and isinstance(expr.callee, Operator):
        return expr.callee.name
    return {"Call": "a call of a function"}.get(type(expr).__name__, f"a {type(expr).__name__.lower()}")
