"""Graph expressions.

A functional language in the manner of Relay. Expressions are immutable and compare by identity. A type is inferred when an
expression is built, so an ill-typed graph cannot exist. Build expressions with the functions of this module (`call`, `tuple_`,
...), not with the classes: the functions infer the `type` field. All operators are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Union

import numpy as np

from inlaid.graph.attrs import Attrs, attr_vars
from inlaid.graph.operator import NO_TRAITS, Operator, Traits
from inlaid.graph.span import Span as Span
from inlaid.graph.unify import instantiate, join_types, unify
from inlaid_runtime import arith
from inlaid_runtime.errors import InputError, TypeInferenceError
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, from_numpy, type_vars

if TYPE_CHECKING:
    from inlaid_runtime.arith import Constraint, Dim


def _infix(name: str) -> tuple[Callable[[Expr, Operand], Call], Callable[[Expr, Operand], Call]]:
    """Return the methods of a Python operator that calls the operator `name`: one for `self op other`, one for `other op self`."""

    return lambda self, other: _apply(name, self, other), lambda self, other: _apply(name, other, self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """Base class of graph expressions. `type` is the type of the value, `span` the source model's node for the expression.

    Expressions compare and hash by identity: `x == y` tests whether they are the same node, `inlaid.ops.equal` compares values.
    """

    type: Type
    span: Span | None

    __array_ufunc__ = None  # numpy defers `array + expression` to the expression

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type!r}>"

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"an expression cannot be pickled: {self!r} refers to others by identity",
            remedy="pickle a Module of a function with it",
        )

    def __bool__(self) -> NoReturn:
        raise TypeInferenceError(
            f"expected a truth value known in Python, got {self!r}, which is computed at run time",
            remedy="branch with inlaid.if_, select elements with inlaid.ops.where, compare values with inlaid.ops.equal",
        )

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of a tensor. Raises `TypeInferenceError` for a value of another type."""
        if not isinstance(self.type, TensorType):
            raise TypeInferenceError(f"expected a tensor to take the shape of, got a value of type {self.type!r}")
        return self.type.shape

    __add__, __radd__ = _infix("add")
    __sub__, __rsub__ = _infix("sub")
    __mul__, __rmul__ = _infix("mul")
    __truediv__, __rtruediv__ = _infix("div")
    __mod__, __rmod__ = _infix("mod")
    __pow__, __rpow__ = _infix("pow")
    __matmul__, __rmatmul__ = _infix("matmul")
    __lt__, __gt__ = _infix("less")
    __le__, __ge__ = _infix("less_equal")

    def __neg__(self) -> Call:
        return _apply("neg", self)

    def __abs__(self) -> Call:
        return _apply("abs", self)

    def __getitem__(self, key: Any) -> Expr:
        """Index a tensor as in numpy, or return a field of a tuple. A tensor is indexed by integers, slices, `None` (a new axis)
        and `...`, or by one integer tensor. Raises `TypeInferenceError`."""
        item: Expr = _operators().subscript(self, key)
        return item

    def __iter__(self) -> Iterator[Expr]:
        """Iterate over the fields of a tuple, such as the values and indices of `topk`. Raises TypeError for a tensor."""
        if not isinstance(self.type, TupleType):
            raise TypeError(f"expected a tuple to iterate over, got a value of type {self.type!r}: split it with inlaid.ops.split")
        return iter([tuple_item(self, index) for index in range(len(self.type.fields))])


Operand = Union["Expr", int, float, list[Any], np.ndarray[Any, Any]]
"""An expression, or a number or array that becomes a constant."""


def _operators() -> Any:
    # Operators are a layer above expressions: the only import that points up, and the only exception of the import contracts.
    from inlaid import ops

    return ops


def _apply(name: str, *operands: Operand) -> Call:
    result: Call = _operators().TABLE[name](*operands)
    return result


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A variable: a parameter of a function, or a variable bound by a `Let`."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type!r}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expr):
    """A tensor known at compile time. `data` is read-only; `digest()` is the SHA-256 of its dtype, shape and bytes."""

    data: np.ndarray[Any, Any]
    _digest: list[str] = field(default_factory=list)

    def digest(self) -> str:
        """Return the content hash in hexadecimal. It is computed once."""
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
    """A call of an operator or a function. `attrs` is empty (`Attrs()`) if the callee is a function."""

    callee: Operator | Expr
    args: tuple[Expr, ...]
    attrs: Any

    def __repr__(self) -> str:
        name = self.callee.name if isinstance(self.callee, Operator) else repr(self.callee)
        return f"<Call {name} {self.type!r}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(Expr):
    """A tuple of values."""

    fields: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleItem(Expr):
    """A field of a tuple, or one result of an operator with several results."""

    tuple: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(Expr):
    """A function. It is a closure if its body reads variables of an enclosing scope.

    `attrs` are annotations of the whole function by which passes communicate: `("primitive", "fused")` marks a fused kernel,
    `("target", "x86")` a partitioned region. `constraints` must hold whenever the function is called, even if no expression of the
    body states them any more (see `graph.scope_conditions`).
    """

    params: tuple[Var, ...]
    body: Expr
    attrs: tuple[tuple[str, str], ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def __str__(self) -> str:
        from inlaid.graph.text import show

        return show(self)

    def attr(self, key: str) -> str | None:
        """Return the value of a function attribute, or None."""
        return dict(self.attrs).get(key)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Expr):
    """A conditional: `then` if the 0-d bool tensor `condition` is true, else `otherwise`. Only the selected branch is evaluated.
    `constraints` has, for each of the two branches, the conditions on sizes that must hold if it is selected, as in `Function`."""

    condition: Expr
    then: Expr
    otherwise: Expr
    constraints: tuple[tuple[Constraint, ...], tuple[Constraint, ...]] = ((), ())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Expr):
    """A binding: `value` is evaluated once, before `body`. In `body`, `var` refers to the result."""

    var: Var
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Loop(Expr):
    """A loop with carried state, scanned inputs and stacked outputs.

    Its type is the tuple (final state..., stacked outputs...). `body` is a function

        (iteration: Tensor[(), int64], state..., scanned slices...) -> (keep going: Tensor[(), bool], state..., outputs...)

    that runs for iterations 0, 1, ... while fewer than `trip_count` (0-d int64; None: unbounded) iterations have run. Iteration 0
    runs only if `condition` (0-d bool; None: true) is true. A later iteration runs only if the previous one returned true as `keep
    going`. Each scanned input is sliced along its first axis, one slice per iteration. Each output is stacked along a new first
    axis, whose extent is part of the type (existential if only a run determines it).
    """

    body: Expr
    trip_count: Expr | None
    condition: Expr | None
    state: tuple[Expr, ...]
    scanned: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(Expr):
    """A reference to a function of the module, by name, with its declared type."""

    name: str

    def __repr__(self) -> str:
        return f"@{self.name}: {self.type!r}"


@dataclass(frozen=True, repr=False)
class Module:
    """Functions by global name. `main` is the entry point of a model."""

    functions: Mapping[str, Function]

    def __repr__(self) -> str:
        from inlaid.graph.text import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from inlaid.graph.text import show
        from inlaid_runtime.markup import preformatted

        return preformatted(f"{self!r}\n\n{show(self)}")

    def __copy__(self) -> Module:
        return Module(self.functions)

    def __deepcopy__(self, memo: object) -> Module:
        return Module(dict(self.functions))

    def __reduce__(self) -> tuple[Callable[[str, Mapping[str, Any]], Module], tuple[str, dict[str, Any]]]:
        """Pickle the module as text and arrays. Raises `InputError` for a call of an operator that is not in `inlaid.ops`."""
        from inlaid.graph.text import print_module

        for name, function in self.functions.items():
            for expr in post_order(function):
                callee = expr.callee if isinstance(expr, Call) else None
                if isinstance(callee, Operator) and _operators().TABLE.get(callee.name) is not callee:
                    raise InputError(
                        f"cannot pickle function {name!r}: its operator {callee.name!r} is not one of inlaid.ops",
                        remedy="compile the module and pickle the executable",
                    )
        return _parse_module, print_module(self)

    def __getitem__(self, name: str) -> Function:
        return self.functions[name]

    def with_function(self, name: str, function: Function) -> Module:
        """Return the module with one function added or replaced. Returns `self` if `name` already refers to `function`."""
        if self.functions.get(name) is function:
            return self
        return Module({**self.functions, name: function})

    @property
    def main(self) -> Function:
        """The entry point. Raises KeyError if the module has none."""
        return self.functions["main"]


def _parse_module(text: str, constants: Mapping[str, np.ndarray[Any, Any]]) -> Module:
    """Rebuild a pickled module from its text and arrays."""
    from inlaid.graph.parse import parse

    return parse(text, _operators().TABLE, constants)


def var(name: str, type_: Type | Sequence[Dim | str], dtype: str = "float32", *, span: Span | None = None) -> Var:
    """Make a new variable of a type, or of the tensor type with a shape and `dtype`. A string in the shape is a symbolic dimension.
    Raises `TypeInferenceError` for other objects."""
    if not isinstance(type_, (Type, tuple, list)):
        raise TypeInferenceError(f"expected a type or a shape for %{name}, got {type_!r}", remedy=f'inlaid.var("{name}", (2, 3))')
    return Var(type_ if isinstance(type_, Type) else TensorType(type_, dtype), span, name)


def constant(value: Any, dtype: str | None = None, span: Span | None = None) -> Constant:
    """Make a constant from an array or a scalar. The array is not copied; the constant holds a read-only view of it."""
    data = np.asarray(value)
    if dtype is not None:
        from inlaid_runtime.types import dtype as dtype_of

        data = data.astype(dtype_of(dtype).numpy, copy=False)
    element = from_numpy(data.dtype)
    if element.kind == "string" and data.dtype != object:
        data = data.astype(object)
    data = data.view()
    data.flags.writeable = False
    return Constant(TensorType(data.shape, element), span, data)


def call(callee: Operator | Expr, args: Iterable[Expr], attrs: Attrs | None = None, span: Span | None = None) -> Call:
    """Build a call of an operator or a function. Raises `TypeInferenceError` if the arguments do not fit."""
    args = _expressions(args, "argument", "inlaid.call(f, [x, y])")
    attrs = attrs if attrs is not None else callee.attrs() if isinstance(callee, Operator) else Attrs()
    types = tuple(arg.type for arg in args)
    if isinstance(callee, Operator):
        return Call(callee.infer_type(attrs, types, span), span, callee, args, attrs)
    if not isinstance(callee.type, FunctionType):
        raise TypeInferenceError(f"the callee must be an operator or a function, got {callee.type!r}", node=str(span or ""))
    return Call(instantiate(callee.type, types, span, defined_sizes(callee), callee_name(callee)), span, callee, args, attrs)


def callee_name(callee: Expr) -> str:
    """Return the name of a function in error messages."""
    return f"@{callee.name}" if isinstance(callee, GlobalVar) else "the function"


def _expressions(values: Iterable[Any], what: str, usage: str) -> tuple[Expr, ...]:
    """Return a list of expressions as a tuple. Raises `TypeInferenceError` for an element that is not an expression, and for an
    expression in place of the list."""
    if isinstance(values, Expr):
        raise TypeInferenceError(f"expected a list of {what}s, got {values!r}", remedy=f"call it as {usage}")
    values = tuple(values)
    for position, value in enumerate(values):
        if not isinstance(value, Expr):
            raise TypeInferenceError(
                f"{what} {position} must be an expression, got {type(value).__name__}", remedy="make constants with inlaid.constant"
            )
    return values


def defined_sizes(callee: Expr) -> frozenset[arith.Expr]:
    """Return the existential dimensions of a function's result that the function defines.

    For a `Function` expression, only dimensions that an expression in its body introduces are returned. Its result may also have
    existential dimensions of an enclosing scope.
    """
    assert isinstance(callee.type, FunctionType)
    sizes = frozenset(filter(existential, type_vars(callee.type.result)))
    if not sizes or not isinstance(callee, Function):
        return sizes
    return sizes & frozenset().union(*map(introduced_sizes, post_order(callee.body)))


def introduced_sizes(expr: Expr) -> frozenset[arith.Expr]:
    """Return the existential dimensions in an expression's type that do not occur in its children's types or its attributes."""
    sizes = frozenset(filter(existential, type_vars(expr.type)))
    if not sizes or isinstance(expr, (Var, GlobalVar, Function)):
        return frozenset()
    operand_sizes = [type_vars(child.type) for child in children(expr)]
    if isinstance(expr, Call):
        operand_sizes.append(attr_vars(expr.attrs))
    return sizes.difference(*operand_sizes)


def existential(size: arith.Expr) -> bool:
    """Test whether a symbolic dimension is existential: the run computes its size instead of binding it to an input shape."""
    return isinstance(size, arith.SizeVar) and size.existential


def tuple_(fields: Iterable[Expr], span: Span | None = None) -> Tuple:
    """Build a tuple from a list of fields. Raises `TypeInferenceError` for a field that is not an expression."""
    fields = _expressions(fields, "field", "inlaid.tuple_([x, y])")
    return Tuple(TupleType(tuple(item.type for item in fields)), span, fields)


def tuple_item(value: Expr, index: int, span: Span | None = None) -> Expr:
    """Build the access to a field of a tuple. Returns the field itself if `value` is a `Tuple` expression. Raises
    `TypeInferenceError` if `value` is not a tuple or `index` is out of range."""
    if not isinstance(value.type, TupleType):
        raise _wrong_field(value, span, f"expected a tuple to take field {index} of, got a value of type {value.type!r}")
    if not 0 <= index < len(value.type.fields):
        raise _wrong_field(
            value, span, f"expected a field of {value.type!r}, of length {len(value.type.fields)}, got field {index}"
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
    constraints: tuple[Constraint, ...] = (),
) -> Function:
    """Build a function of one or several parameters. `result` declares the result type, which the body's type must fit; a
    recursive function must declare it. `constraints` are conditions on sizes that each call must satisfy, besides those that the
    body states. Raises `TypeInferenceError`."""
    if not isinstance(attrs, tuple):
        raise TypeInferenceError("expected a list of parameters and a body, got more", remedy="call inlaid.function([x, y], body)")
    if not isinstance(body, Expr):
        raise TypeInferenceError(
            f"the body must be an expression, got {type(body).__name__}", remedy="return several values with inlaid.tuple_([x, y])"
        )
    params = (params,) if isinstance(params, Expr) else tuple(params)
    non_variables = [param for param in params if not isinstance(param, Var)]
    if non_variables:
        raise TypeInferenceError(f"parameters must be variables, got {non_variables[0]!r}", remedy="make them with inlaid.var")
    if result is not None:
        unify(result, body.type, span)
    type_ = FunctionType(tuple(param.type for param in params), body.type if result is None else result)
    return Function(type_, span, params, body, attrs, constraints)


def if_(
    condition: Expr,
    then: Expr,
    otherwise: Expr,
    span: Span | None = None,
    constraints: tuple[tuple[Constraint, ...], tuple[Constraint, ...]] = ((), ()),
) -> If:
    """Build a conditional. Dimensions in which the branches differ become existential. `constraints` has, for each branch, the
    conditions on sizes that must hold if it is selected, besides those that it states. Raises `TypeInferenceError`."""
    if not (isinstance(condition.type, TensorType) and condition.type.dtype.name == "bool" and condition.type.rank == 0):
        raise TypeInferenceError(f"the condition must be a 0-d bool tensor, got {condition.type!r}", node=str(span or ""))
    return If(join_types(then.type, otherwise.type, span), span, condition, then, otherwise, constraints)


def let(variable: Var, value: Expr, body: Expr, span: Span | None = None) -> Let:
    """Build a `Let`, which binds `variable` to `value` in `body`."""
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
    """Build a loop (see `Loop`). `stacked_extent` is the extent of the stacked outputs' first axis. If it is None, it is
    inferred: the extent of the scanned inputs, a constant trip count without early exit, or else an existential dimension."""
    from inlaid.graph.loops import infer_loop

    state, scanned = tuple(state), tuple(scanned)
    type_ = infer_loop(body, state, scanned, trip_count, condition, stacked_extent, span)
    return Loop(type_, span, body, trip_count, condition, state, scanned)


def global_var(name: str, type_: FunctionType, span: Span | None = None) -> GlobalVar:
    """Build a reference to a function of the module, by name and declared type."""
    return GlobalVar(type_, span, name)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions in evaluation order. The only child of a function is its body; parameters are binders."""
    if type(expr) is Call:  # the most frequent kinds first
        return expr.args if isinstance(expr.callee, Operator) else (expr.callee, *expr.args)
    if isinstance(expr, (Constant, Var)):
        return ()
    match expr:
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
    """Rebuild an expression with new children, in the order of `children`.

    Returns the same object if nothing changed. The type is reused if the types of the children are unchanged, else inferred again.
    """
    old = children(expr)
    if old == new:  # expressions are equal if they are identical
        return expr
    types_unchanged = all(a.type == b.type for a, b in zip(old, new, strict=True))
    span = expr.span
    match expr:
        case Call(callee=callee, attrs=attrs):
            operator, args = (callee, new) if isinstance(callee, Operator) else (new[0], new[1:])
            return Call(expr.type, span, operator, args, attrs) if types_unchanged else call(operator, args, attrs, span)
        case Tuple():
            return tuple_(new, span)
        case TupleItem(index=index):
            return tuple_item(new[0], index, span)
        case Function(params=params, attrs=attrs, constraints=constraints):
            if types_unchanged:
                return Function(expr.type, span, params, new[0], attrs, constraints)
            return function(params, new[0], attrs, span=span, constraints=constraints)
        case If(constraints=branch_constraints):
            if types_unchanged:
                return If(expr.type, span, new[0], new[1], new[2], branch_constraints)
            return if_(new[0], new[1], new[2], span, branch_constraints)
        case Let(var=variable):
            return Let(new[1].type, span, variable, *new) if types_unchanged else let(variable, new[0], new[1], span)
        case Loop():
            return _rebuild_loop(expr, new, types_unchanged)
    raise AssertionError(f"{expr!r} has no children")


def _rebuild_loop(expr: Loop, new: tuple[Expr, ...], types_unchanged: bool) -> Expr:
    rest = iter(new)
    body = next(rest)
    trips = next(rest) if expr.trip_count is not None else None
    condition = next(rest) if expr.condition is not None else None
    state = tuple(next(rest) for _ in expr.state)
    scanned = tuple(rest)
    if types_unchanged:
        return Loop(expr.type, expr.span, body, trips, condition, state, scanned)
    assert isinstance(expr.type, TupleType)
    extents = [output.shape[0] for output in expr.type.fields[len(state) :] if isinstance(output, TensorType)]
    extent = extents[0] if extents else None
    return loop(body, state=state, scanned=scanned, trip_count=trips, condition=condition, stacked_extent=extent, span=expr.span)


def operator_traits(expr: Expr) -> Traits:
    """Return the traits of the operator that an expression calls; `NO_TRAITS` for any other expression."""
    return expr.callee.traits if isinstance(expr, Call) and isinstance(expr.callee, Operator) else NO_TRAITS


def post_order(*roots: Expr) -> Iterator[Expr]:
    """Yield every expression reachable from the roots once, children before parents. Iterative: depth is not limited."""
    visited: set[int] = set()
    for root in roots:
        stack: list[Expr | None] = [root]  # None marks an expression whose children have been yielded
        while stack:
            expr = stack.pop()
            if expr is None:
                yield stack.pop()  # type: ignore[misc]
            elif id(expr) not in visited:
                visited.add(id(expr))
                stack += (expr, None, *children(expr)[::-1])


def in_order(body: Expr) -> list[Expr]:
    """Return the expressions of `body` in post-order, without the functions that it calls and their bodies."""
    order: dict[int, Expr] = {}
    stack: list[tuple[Expr, bool]] = [(body, False)]
    while stack:
        expr, is_expanded = stack.pop()
        if is_expanded:
            order[id(expr)] = expr
        elif id(expr) not in order:
            stack.append((expr, True))
            subexpressions = expr.args if isinstance(expr, Call) else children(expr)
            stack.extend((child, False) for child in reversed(subexpressions) if id(child) not in order)
    return list(order.values())
