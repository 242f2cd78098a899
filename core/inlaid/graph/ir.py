"""Graph expressions.

A functional language in the manner of Relay: expressions are immutable, compare by identity, and have a type from the moment
they are built, so an ill-typed graph cannot exist. Build them with the functions of this module (`call`, `tuple_`, ...), not with
the classes, whose `type` argument they work out. All operators are pure.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from inlaid import arith
from inlaid.errors import TypeInferenceError
from inlaid.graph.attrs import Attrs, attr_vars
from inlaid.graph.operator import NO_TRAITS, Operator, Traits
from inlaid.graph.span import Span as Span
from inlaid.graph.unify import instantiate, join_types, unify
from inlaid.types import FunctionType, TensorType, TupleType, Type, from_numpy, type_vars

if TYPE_CHECKING:
    from inlaid.arith import Dim


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """Base of graph expressions. `type` is the type of its value, `span` its origin in the source model."""

    type: Type
    span: Span | None

    __array_ufunc__ = None  # an array on the left of an operator leaves the operation to the expression

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type!r}>"

    def __add__(self, other: Operand) -> Call:
        return _apply("add", self, other)

    def __radd__(self, other: Operand) -> Call:
        return _apply("add", other, self)

    def __sub__(self, other: Operand) -> Call:
        return _apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Call:
        return _apply("sub", other, self)

    def __mul__(self, other: Operand) -> Call:
        return _apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Call:
        return _apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Call:
        return _apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Call:
        return _apply("div", other, self)

    def __mod__(self, other: Operand) -> Call:
        return _apply("mod", self, other)

    def __rmod__(self, other: Operand) -> Call:
        return _apply("mod", other, self)

    def __pow__(self, other: Operand) -> Call:
        return _apply("pow", self, other)

    def __rpow__(self, other: Operand) -> Call:
        return _apply("pow", other, self)

    def __matmul__(self, other: Operand) -> Call:
        return _apply("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Call:
        return _apply("matmul", other, self)

    def __neg__(self) -> Call:
        return _apply("neg", self)

    def __abs__(self) -> Call:
        return _apply("abs", self)

    def __lt__(self, other: Any) -> Call:
        return _apply("less", self, other)

    def __gt__(self, other: Any) -> Call:
        return _apply("less", other, self)

    def __le__(self, other: Any) -> Call:
        return _apply("less_equal", self, other)

    def __ge__(self, other: Any) -> Call:
        return _apply("less_equal", other, self)

    def __getitem__(self, key: Any) -> Expr:
        """Elements of a tensor by integers, slices, `None` for a new axis, `...`, or one integer tensor, as in numpy; or a field
        of a tuple. Raises `TypeInferenceError`."""
        item: Expr = _operators().subscript(self, key)
        return item

    def __iter__(self) -> Iterator[Expr]:
        """The fields of a tuple, such as the values and indices of `topk`. Raises TypeError for a tensor."""
        if not isinstance(self.type, TupleType):
            raise TypeError(f"expected a tuple to iterate over, got a value of type {self.type!r}: cut it with inlaid.ops.split")
        return iter([tuple_item(self, index) for index in range(len(self.type.fields))])


Operand = Union["Expr", int, float, list[Any], np.ndarray[Any, Any]]
"""An expression, or a number or an array that stands for a constant."""


def _operators() -> Any:
    # Operators are a layer above expressions. They are imported when the first expression is written with one.
    return importlib.import_module("inlaid.ops")


def _apply(name: str, *operands: Operand) -> Call:
    made: Call = _operators().TABLE[name](*operands)
    return made


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A parameter of a function, a let-bound value, or a value carried by a loop."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type!r}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor known at compile time. `data` is read-only; `digest()` is the SHA-256 of dtype, shape and bytes."""

    data: np.ndarray[Any, Any]
    _digest: list[str] = field(default_factory=list)

    def digest(self) -> str:
        """Content hash in hexadecimal, computed once."""
        if not self._digest:
            assert isinstance(self.type, TensorType)
            digest = hashlib.sha256(f"{self.type!r}".encode())
            if self.data.dtype == object:
                for item in self.data.flat:
                    encoded = item if isinstance(item, bytes) else str(item).encode()
                    digest.update(len(encoded).to_bytes(8, "little") + encoded)
            else:
                digest.update(np.ascontiguousarray(self.data).reshape(-1).view(np.uint8).data)
            self._digest.append(digest.hexdigest())
        return self._digest[0]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """An operator or a function applied to arguments. `attrs` is empty (`Attrs()`) when the callee is a function."""

    callee: Operator | Expr
    args: tuple[Expr, ...]
    attrs: Any

    def __repr__(self) -> str:
        name = self.callee.name if isinstance(self.callee, Operator) else repr(self.callee)
        return f"<Call {name} {self.type!r}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleItem(Expr):
    """One field of a tuple, or one result of an operator that has several."""

    tuple: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(Expr):
    """A function; a closure when its body reads variables of the enclosing scope.

    `attrs` are facts about the whole function that passes leave for one another, such as `("primitive", "fused")` for a fused
    kernel and `("target", "x86")` for a partitioned region.
    """

    params: tuple[Var, ...]
    body: Expr
    attrs: tuple[tuple[str, str], ...] = ()

    def attr(self, key: str) -> str | None:
        """The value of a function attribute, or None."""
        return dict(self.attrs).get(key)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Expr):
    """`then` when the condition, a 0-d bool tensor, holds, else `otherwise`; only the chosen branch is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Expr):
    """`value` computed first and once, then `body`, in which `var` stands for it."""

    var: Var
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Loop(Expr):
    """A loop with carried state, scanned inputs and stacked outputs.

    Its type is the tuple (final state..., stacked outputs...). `body` is a function

        (iteration: Tensor[(), int64], state..., scanned slices...) -> (keep going: Tensor[(), bool], state..., outputs...)

    run for iteration 0, 1, ... while fewer than `trip_count` (0-d int64; None: no bound) iterations have run and the last one
    said to keep going (`condition`, 0-d bool; None: true at first). Each of `scanned` is cut along its first axis, one slice an
    iteration; each of the outputs is stacked along a new first axis, whose extent is the type's (existential where only a run
    knows it).
    """

    body: Expr
    trip_count: Expr | None
    condition: Expr | None
    state: tuple[Expr, ...]
    scanned: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(Expr):
    """A function of the module, by name; its type is declared."""

    name: str

    def __repr__(self) -> str:
        return f"@{self.name}: {self.type!r}"


@dataclass(frozen=True)
class Module:
    """Functions by global name. `main` is the entry of a model."""

    functions: Mapping[str, Function]

    def __getitem__(self, name: str) -> Function:
        return self.functions[name]

    def with_function(self, name: str, function: Function) -> Module:
        """The module with one function added or replaced; the same object when it is there already."""
        if self.functions.get(name) is function:
            return self
        return Module({**self.functions, name: function})

    @property
    def main(self) -> Function:
        """The entry. Raises KeyError when the module has none."""
        return self.functions["main"]


def var(name: str, type_: Type | Sequence[Dim | str], span: Span | None = None, dtype: str = "float32") -> Var:
    """A fresh variable, of a type; or of a tensor type with a shape and a `dtype`, where a string is a symbolic dimension. Raises
    `TypeInferenceError` for other objects."""
    if not isinstance(type_, (Type, tuple, list)):
        raise TypeInferenceError(f"expected a type or a shape for %{name}, got {type_!r}", remedy=f'inlaid.var("{name}", (2, 3))')
    return Var(type_ if isinstance(type_, Type) else TensorType(type_, dtype), span, name)


def constant(value: Any, dtype: str | None = None, span: Span | None = None) -> Constant:
    """A constant from an array or a scalar. The array is not copied and becomes read-only in the constant's view of it."""
    data = np.asarray(value)
    if dtype is not None:
        from inlaid.types import dtype as dtype_of

        data = data.astype(dtype_of(dtype).numpy, copy=False)
    element = from_numpy(data.dtype)
    if element.kind == "string" and data.dtype != object:
        data = data.astype(object)
    data = data.view()
    data.flags.writeable = False
    return Constant(TensorType(data.shape, element), span, data)


def call(callee: Operator | Expr, args: Iterable[Expr], attrs: Attrs | None = None, span: Span | None = None) -> Call:
    """An application. Raises `TypeInferenceError` where the arguments do not fit."""
    args = tuple(args)
    _check_expressions(args, "argument")
    attrs = attrs if attrs is not None else callee.attrs() if isinstance(callee, Operator) else Attrs()
    types = tuple(arg.type for arg in args)
    if isinstance(callee, Operator):
        return Call(callee.infer_type(attrs, types, span), span, callee, args, attrs)
    if not isinstance(callee.type, FunctionType):
        raise TypeInferenceError(f"only a function can be called, not a value of type {callee.type!r}", node=str(span or ""))
    return Call(instantiate(callee.type, types, span, own_sizes(callee)), span, callee, args, attrs)


def _check_expressions(values: tuple[Any, ...], what: str) -> None:
    for place, value in enumerate(values):
        if not isinstance(value, Expr):
            raise TypeInferenceError(
                f"{what} {place} must be an expression, got {type(value).__name__}", remedy="make constants with inlaid.constant"
            )


def own_sizes(callee: Expr) -> frozenset[arith.Expr]:
    """The existential dimensions of a function's result that the function works out itself.

    Those of a function written out may also come from around it: they are its own only when something in its body has them first.
    """
    assert isinstance(callee.type, FunctionType)
    sizes = frozenset(filter(existential, type_vars(callee.type.result)))
    if not sizes or not isinstance(callee, Function):
        return sizes
    return sizes & frozenset().union(*map(introduced_sizes, post_order(callee.body)))


def introduced_sizes(expr: Expr) -> frozenset[arith.Expr]:
    """The existential dimensions that an expression's value defines: in its type, but in none of its parts' or its attributes."""
    sizes = frozenset(filter(existential, type_vars(expr.type)))
    if not sizes or isinstance(expr, (Var, GlobalVar, Function)):
        return frozenset()
    known = [type_vars(child.type) for child in children(expr)]
    if isinstance(expr, Call):
        known.append(attr_vars(expr.attrs))
    return sizes.difference(*known)


def existential(size: arith.Expr) -> bool:
    """Whether a symbolic dimension is one that only a run knows."""
    return isinstance(size, arith.SizeVar) and size.existential


def tuple_(fields: Iterable[Expr], span: Span | None = None) -> Tuple:
    """Several values as one. Raises `TypeInferenceError` for fields that are no expressions."""
    fields = tuple(fields)
    _check_expressions(fields, "field")
    return Tuple(TupleType(tuple(item.type for item in fields)), span, fields)


def tuple_item(value: Expr, index: int, span: Span | None = None) -> Expr:
    """One field of a tuple value; of a `Tuple` expression, the field itself. Raises `TypeInferenceError` for a value that is no
    tuple, or an index out of range."""
    if not isinstance(value.type, TupleType):
        raise _wrong_field(value, span, f"expected a tuple to take field {index} of, got a value of type {value.type!r}")
    if not 0 <= index < len(value.type.fields):
        raise _wrong_field(
            value, span, f"expected a field of {value.type!r}, which has {len(value.type.fields)}, got field {index}"
        )
    if isinstance(value, Tuple):
        return value.fields[index]
    return TupleItem(value.type.fields[index], span or value.span, value, index)


def _wrong_field(value: Expr, span: Span | None, problem: str) -> TypeInferenceError:
    operator = value.callee.name if isinstance(value, Call) and isinstance(value.callee, Operator) else None
    return TypeInferenceError(problem, operator=operator, node=str(span or value.span or ""), remedy="count fields from 0")


def function(
    params: Iterable[Var] | Var,
    body: Expr,
    attrs: tuple[tuple[str, str], ...] = (),
    result: Type | None = None,
    span: Span | None = None,
) -> Function:
    """A function of parameters, or of one. `result` declares the result type, which the body's must fit (recursive functions need
    it). Raises `TypeInferenceError`."""
    params = (params,) if isinstance(params, Var) else tuple(params)
    _check_expressions((body,), "body")
    wrong = [param for param in params if not isinstance(param, Var)]
    if wrong:
        raise TypeInferenceError(f"parameters must be variables, got {wrong[0]!r}", remedy="make them with inlaid.var")
    if result is not None:
        unify(result, body.type, span)
    type_ = FunctionType(tuple(param.type for param in params), body.type if result is None else result)
    return Function(type_, span, params, body, attrs)


def if_(condition: Expr, then: Expr, otherwise: Expr, span: Span | None = None) -> If:
    """A choice. The branches may differ in dimensions: those become existential."""
    if not (isinstance(condition.type, TensorType) and condition.type.dtype.name == "bool" and condition.type.rank == 0):
        raise TypeInferenceError(f"a condition is a 0-d bool tensor, not {condition.type!r}", node=str(span or ""))
    return If(join_types(then.type, otherwise.type, span), span, condition, then, otherwise)


def let(variable: Var, value: Expr, body: Expr, span: Span | None = None) -> Let:
    """A binding."""
    unify(variable.type, value.type, span)
    return Let(body.type, span, variable, value, body)


def loop(
    body: Expr,
    *,
    state: Iterable[Expr] = (),
    scanned: Iterable[Expr] = (),
    trip_count: Expr | None = None,
    condition: Expr | None = None,
    stacked_extent: Dim | None = None,
    span: Span | None = None,
) -> Loop:
    """A loop (see `Loop`). `stacked_extent` is the extent of the stacked outputs' first axis; None works it out: the extent of
    the scanned inputs, a constant trip count without an early exit, or else an existential dimension."""
    from inlaid.graph.loops import infer_loop

    state, scanned = tuple(state), tuple(scanned)
    type_ = infer_loop(body, state, scanned, trip_count, condition, stacked_extent, span)
    return Loop(type_, span, body, trip_count, condition, state, scanned)


def global_var(name: str, type_: FunctionType, span: Span | None = None) -> GlobalVar:
    """A reference to a function of the module, by name and declared type."""
    return GlobalVar(type_, span, name)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions, in evaluation order. Those of a function are its body: parameters are binders."""
    match expr:
        case Call(callee=callee, args=args):
            return args if isinstance(callee, Operator) else (callee, *args)
        case Tuple(fields=fields):
            return fields
        case TupleItem(tuple=value):
            return (value,)
        case Function(body=body):
            return (body,)
        case If(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case Let(value=value, body=body):
            return (value, body)
        case Loop(body=body, trip_count=trips, condition=condition, state=state, scanned=scanned):
            return tuple(item for item in (body, trips, condition, *state, *scanned) if item is not None)
    return ()


def rebuild(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same expression over other children (in the order of `children`).

    The same object when nothing changed; the type is reused when the children's types did not change, and inferred again when
    they did.
    """
    old = children(expr)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return expr
    same_types = all(a.type == b.type for a, b in zip(old, new, strict=True))
    span = expr.span
    match expr:
        case Call(callee=callee, attrs=attrs):
            operator, args = (callee, new) if isinstance(callee, Operator) else (new[0], new[1:])
            return Call(expr.type, span, operator, args, attrs) if same_types else call(operator, args, attrs, span)
        case Tuple():
            return tuple_(new, span)
        case TupleItem(index=index):
            return tuple_item(new[0], index, span)
        case Function(params=params, attrs=attrs):
            return Function(expr.type, span, params, new[0], attrs) if same_types else function(params, new[0], attrs, span=span)
        case If():
            return If(expr.type, span, *new) if same_types else if_(new[0], new[1], new[2], span)
        case Let(var=variable):
            return Let(new[1].type, span, variable, *new) if same_types else let(variable, new[0], new[1], span)
        case Loop():
            return _rebuild_loop(expr, new, same_types)
    raise AssertionError(f"{expr!r} has no children")


def _rebuild_loop(expr: Loop, new: tuple[Expr, ...], same_types: bool) -> Expr:
    rest = iter(new)
    body = next(rest)
    trips = next(rest) if expr.trip_count is not None else None
    condition = next(rest) if expr.condition is not None else None
    state = tuple(next(rest) for _ in expr.state)
    scanned = tuple(rest)
    if same_types:
        return Loop(expr.type, expr.span, body, trips, condition, state, scanned)
    assert isinstance(expr.type, TupleType)
    extents = [output.shape[0] for output in expr.type.fields[len(state) :] if isinstance(output, TensorType)]
    extent = extents[0] if extents else None
    return loop(body, state=state, scanned=scanned, trip_count=trips, condition=condition, stacked_extent=extent, span=expr.span)


def traits_of(expr: Expr) -> Traits:
    """The facts of the operator that an expression calls; none where it is something else."""
    return expr.callee.traits if isinstance(expr, Call) and isinstance(expr.callee, Operator) else NO_TRAITS


def post_order(*roots: Expr) -> Iterator[Expr]:
    """Every expression reachable from the roots, once each, children before parents; iterative, so depth is no limit."""
    seen: set[int] = set()
    for root in roots:
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, expanded = stack.pop()
            if expanded:
                yield expr
            elif id(expr) not in seen:
                seen.add(id(expr))
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(children(expr)) if id(child) not in seen)


def in_order(body: Expr) -> list[Expr]:
    """The expressions outside of called functions, operands first."""
    order: dict[int, Expr] = {}
    stack: list[tuple[Expr, bool]] = [(body, False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order[id(expr)] = expr
        elif id(expr) not in order:
            stack.append((expr, True))
            below = expr.args if isinstance(expr, Call) else children(expr)
            stack.extend((child, False) for child in reversed(below) if id(child) not in order)
    return list(order.values())
