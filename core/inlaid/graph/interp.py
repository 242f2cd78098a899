"""The reference interpreter of the graph IR. It evaluates every operator by its numpy reference.

It is the oracle that passes and targets are tested against. It is iterative: neither the depth of a graph nor the recursion depth
of the program is limited by Python's stack.

Values: a tensor is a numpy array, a tuple is a Python tuple, a sequence is a Python list, an optional is None or its value, and a
function is a `Closure`.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from inlaid.graph.attrs import attr_vars, substitute_attrs
from inlaid.graph.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Loop,
    Module,
    Tuple,
    TupleItem,
    children,
    function,
    var,
)
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scope_conditions import scope_conditions
from inlaid.graph.scopes import Scope, Scopes, analyse, opens_scope
from inlaid_runtime import arith
from inlaid_runtime.errors import InlaidError, InputError, KernelFault, VerifyError
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, TupleType, Type, type_vars

Value = Any
Steps = Generator["tuple[Scope, _Frame, Scopes]", Value, Value]
"""A generator that evaluates an expression. It yields nested evaluations, is sent their values, and returns its result."""

_MISSING = object()


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """The values of one evaluation of a scope, and the sizes of the symbolic dimensions that the scope binds."""

    values: dict[int, Value]
    dims: dict[arith.Expr, int]
    parent: _Frame | None

    def get(self, expr: Expr) -> Value:
        frame: _Frame | None = self
        while frame is not None:
            value = frame.values.get(id(expr), _MISSING)
            if value is not _MISSING:
                return value
            frame = frame.parent
        raise VerifyError(f"{expr!r} is used outside of its scope")

    def size(self, dim: arith.Expr) -> int | None:
        frame: _Frame | None = self
        while frame is not None:
            extent = frame.dims.get(dim)
            if extent is not None:
                return extent
            frame = frame.parent
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function value: the function and the frame of the variables that it captures."""

    function: Function
    frame: _Frame | None
    scopes: Scopes


@dataclass(frozen=True, slots=True, eq=False)
class Interpreter:
    """Runs the functions of a module. The analysis of a function is cached for later runs."""

    module: Module = field(default_factory=lambda: Module({}))
    _analyses: dict[int, tuple[Expr, Scopes]] = field(default_factory=dict)
    _last_uses: dict[Scope, list[list[int]]] = field(default_factory=dict)
    _conditions: dict[Scope, tuple[arith.Constraint, ...]] = field(default_factory=dict)
    _decomposed: dict[Any, Function] = field(default_factory=dict)

    def run(self, target: Function, inputs: Sequence[Value]) -> Value:
        """Run a function without free variables. `inputs` are in the order of its parameters.

        Raises `InputError` for inputs that do not fit the parameters' types or violate a condition on sizes, `KernelFault` if an
        operator is undefined for its operands, and `VerifyError` if an operator's reference disagrees with its type relation.
        """
        scopes = self._scopes(target)
        frame = self._bind(Closure(target, None, scopes), tuple(inputs))
        return self._drive(self._evaluate(scopes.body(target), frame, scopes))

    def _scopes(self, root: Expr) -> Scopes:
        analysis = self._analyses.get(id(root))
        if analysis is None:
            analysis = self._analyses[id(root)] = (root, analyse(root))
            self._conditions.update(scope_conditions(analysis[1], self.module.functions))
        return analysis[1]

    def _drive(self, first: Steps) -> Value:
        """Run an evaluation and all nested ones, on an explicit stack."""
        stack = [first]
        value: Value = None
        while stack:
            try:
                scope, frame, scopes = stack[-1].send(value)
            except StopIteration as stop:
                stack.pop()
                value = stop.value
            else:
                stack.append(self._evaluate(scope, frame, scopes))
                value = None
        return value

    def _evaluate(self, scope: Scope, frame: _Frame, scopes: Scopes) -> Steps:
        """Evaluate a scope. A condition on sizes is checked as soon as all its sizes are known, if possible before the first
        expression."""
        values = frame.values
        unchecked = _unchecked(self._conditions.get(scope, ()), frame)
        for expr, dead in zip(scope.order, self._dead(scope, scopes), strict=True):
            match expr:
                case Call(callee=callee, args=args, attrs=attrs):
                    operands = tuple(self._read(arg, frame, scopes) for arg in args)
                    if isinstance(callee, Operator) and callee.reference is not None:
                        value = self._apply(callee, attrs, operands, frame, expr)
                    elif isinstance(callee, Operator):
                        closure = self._decompose(callee, attrs, expr, operands, frame)
                        value = yield closure.scopes.body(closure.function), self._bind(closure, operands), closure.scopes
                    else:
                        value = yield from self._invoke(self._read(callee, frame, scopes), operands)
                case Tuple(fields=fields):
                    value = tuple(self._read(item, frame, scopes) for item in fields)
                case TupleItem(tuple=inner, index=index):
                    value = self._read(inner, frame, scopes)[index]
                case Function():
                    value = Closure(expr, frame, scopes)
                case If(condition=condition):
                    branch = scopes.branches(expr)[0 if self._read(condition, frame, scopes) else 1]
                    value = yield branch, _Frame({}, {}, frame), scopes
                case Let(body=body):
                    value = self._read(body, frame, scopes)
                case Loop():
                    value = yield from self._loop(expr, frame, scopes)
                case _:
                    raise VerifyError(f"{expr!r} cannot be evaluated")
            values[id(expr)] = value
            _bind_sizes(expr.type, value, frame.dims)
            if unchecked:
                unchecked = _unchecked(unchecked, frame)
            for key in dead:
                del values[key]
        return self._read(scope.result, frame, scopes)

    def _read(self, expr: Expr, frame: _Frame, scopes: Scopes) -> Value:
        expr = scopes.resolve(expr)
        match expr:
            case Constant(data=data):
                return data
            case GlobalVar(name=name):
                if name not in self.module.functions:
                    raise VerifyError(f"the module has no function @{name}")
                target = self.module[name]
                return Closure(target, None, self._scopes(target))
        return frame.get(expr)

    def _dead(self, scope: Scope, scopes: Scopes) -> list[list[int]]:
        """Return, for each expression of a scope, the ids of the values that are dead after it."""
        if scope not in self._last_uses:
            self._last_uses.update(_last_uses(scopes))
        return self._last_uses[scope]

    def _invoke(self, callee: Closure, args: tuple[Value, ...]) -> Steps:
        frame = self._bind(callee, args)
        return (yield callee.scopes.body(callee.function), frame, callee.scopes)

    def _bind(self, callee: Closure, args: tuple[Value, ...]) -> _Frame:
        """Make the frame of a call: bind the parameters and their symbolic dimensions. Raises `InputError`."""
        params = callee.function.params
        if len(params) != len(args):
            raise InputError(f"the function takes {len(params)} inputs, got {len(args)}")
        frame = _Frame({}, {}, callee.frame)
        for param, arg in zip(params, args, strict=True):
            frame.values[id(param)] = arg
            problem = _misfit(param.type, arg, frame.dims)
            if problem:
                raise InputError(f"input {param.name!r} {problem}", node=str(param.span or "") or None)
        for param, arg in zip(params, args, strict=True):
            problem = _wrong_size(param.type, arg, frame)
            if problem:
                raise InputError(f"input {param.name!r} {problem}", node=str(param.span or "") or None)
        return frame

    def _apply(self, operator: Operator, attrs: Attrs, args: tuple[Value, ...], frame: _Frame, expr: Call) -> Value:
        """Run an operator's reference and check the result against the inferred type."""
        assert operator.reference is not None
        node = str(expr.span) if expr.span else None
        try:
            result = operator.reference(_concrete(attrs, frame, operator, node), *args)
        except (InlaidError, MemoryError, RecursionError):
            raise
        except (ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
            raise KernelFault(str(error), operator=operator.name, node=node) from error
        except Exception as error:  # an error of the reference itself, which may be user code
            raise KernelFault(f"the reference raised {type(error).__name__}: {error}", operator=operator.name, node=node) from error
        result = as_value(expr.type, result)
        problem = _misfit(expr.type, result, _Sizes(frame)) or _wrong_size(expr.type, result, frame)
        if problem:
            raise VerifyError(f"the reference's result {problem}", operator=operator.name, node=node)
        return result

    def _decompose(self, operator: Operator, attrs: Attrs, expr: Call, args: tuple[Value, ...], frame: _Frame) -> Closure:
        """Return the decomposition of an operator without a reference, as a function of its operands at their actual shapes."""
        node = str(expr.span) if expr.span else None
        if operator.decompose is None:
            raise VerifyError("the operator has neither a reference nor a decomposition", operator=operator.name, node=node)
        attrs = _concrete(attrs, frame, operator, node)
        types = tuple(_actual_type(arg.type, value) for arg, value in zip(expr.args, args, strict=True))
        key = (operator, attrs, types)
        target = self._decomposed.get(key)
        if target is None:
            params = tuple(var(f"x{index}", type_) for index, type_ in enumerate(types))
            target = self._decomposed[key] = function(params, operator.decompose(attrs, params), span=expr.span)
        return Closure(target, None, self._scopes(target))

    def _loop(self, expr: Loop, frame: _Frame, scopes: Scopes) -> Steps:
        body: Closure = self._read(expr.body, frame, scopes)
        node = str(expr.span) if expr.span else ""
        limit = None if expr.trip_count is None else int(self._read(expr.trip_count, frame, scopes))
        keep_going = expr.condition is None or bool(self._read(expr.condition, frame, scopes))
        state = tuple(self._read(item, frame, scopes) for item in expr.state)
        scanned = tuple(self._read(item, frame, scopes) for item in expr.scanned)
        if scanned:
            lengths = {len(item) for item in scanned}
            if len(lengths) > 1:
                raise KernelFault(f"scanned inputs must have one length, got {sorted(lengths)}", operator="loop", node=node)
            limit = min(lengths.pop(), len(scanned[0]) if limit is None else limit)
        assert isinstance(expr.type, TupleType)
        stacked_types = expr.type.fields[len(state) :]
        stacked: tuple[list[Value], ...] = tuple([] for _ in stacked_types)
        for iteration in itertools.count():
            if not keep_going or (limit is not None and iteration >= limit):
                break
            slices = tuple(np.asarray(item[iteration]) for item in scanned)
            results = yield from self._invoke(body, (np.asarray(iteration, np.int64), *state, *slices))
            keep_going = bool(results[0])
            state = results[1 : 1 + len(state)]
            for values, value in zip(stacked, results[1 + len(state) :], strict=True):
                values.append(value)
        return (*state, *(_stack(type_, values, frame, node) for type_, values in zip(stacked_types, stacked, strict=True)))


def _unchecked(constraints: Sequence[arith.Constraint], frame: _Frame) -> list[arith.Constraint]:
    """Check constraints, and return those that read sizes which are unknown yet. Raises `InputError`."""
    unknown_constraints = []
    for constraint in constraints:
        sizes = {dim: size for dim in constraint.sizes if (size := frame.size(dim)) is not None}
        holds = constraint.holds(sizes)
        if holds is None:
            unknown_constraints.append(constraint)
        elif not holds:
            raise InputError(constraint.message(sizes), operator=constraint.operator, node=constraint.node)
    return unknown_constraints


def _last_uses(scopes: Scopes) -> dict[Scope, list[list[int]]]:
    """Return, for each scope and each of its expressions, the ids of the scope's values that no later expression reads. A value
    that an inner scope reads is kept until the end of the outer scope."""
    pinned_ids: set[int] = set()
    last_uses: dict[int, tuple[Scope, int]] = {}
    scope_list = [scopes.root, *scopes.inner.values()]
    for scope in scope_list:
        pinned_ids.add(id(scopes.resolve(scope.result)))
        for position, expr in enumerate(scope.order):
            for index, child in enumerate(children(expr)):
                if isinstance(expr, Let) and index == 0:
                    continue  # a Let does not read its variable
                key = id(scopes.resolve(child))
                if scopes.expr_scopes.get(key) is scope and not opens_scope(expr, index):
                    last_uses[key] = scope, position
                else:
                    pinned_ids.add(key)
    dead: dict[Scope, list[list[int]]] = {scope: [[] for _ in scope.order] for scope in scope_list}
    for key, (scope, position) in last_uses.items():
        if key not in pinned_ids:
            dead[scope][position].append(key)
    return dead


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Sizes of a frame, for checking results. An existential size has no expected value, because the run defines it."""

    frame: _Frame

    def get(self, dim: arith.Expr) -> int | None:
        return None if isinstance(dim, arith.SizeVar) and dim.existential else self.frame.size(dim)

    def __setitem__(self, dim: arith.Expr, size: int) -> None:
        """Ignore the size: a result binds only existential sizes."""


def evaluate(target: Module | Function, inputs: Mapping[str, Value] | Sequence[Value]) -> Value:
    """Evaluate a function, or a module's `main`, by the numpy reference of every operator.

    `inputs` are in the order of the parameters, or a mapping by their names. A function that returns a tuple returns a Python
    tuple. Raises the errors of `Interpreter.run`, and `InputError` for names other than the parameters' names.
    """
    module, entry = (target, target.main) if isinstance(target, Module) else (Module({}), target)
    if isinstance(inputs, Mapping):
        names = [param.name for param in entry.params]
        if set(names) != set(inputs):
            raise InputError(f"expected the inputs {', '.join(names) or 'none'}, got {', '.join(inputs) or 'none'}")
        inputs = [inputs[name] for name in names]
    return Interpreter(module).run(entry, [as_value(param.type, value) for param, value in zip(entry.params, inputs, strict=False)])


def evaluate_call(call: Call, args: Sequence[Value]) -> Value:
    """Evaluate a call of an operator that has a reference on the values of its operands. Raises the errors of `Interpreter.run`."""
    assert isinstance(call.callee, Operator)
    return Interpreter()._apply(call.callee, call.attrs, tuple(args), _Frame({}, {}, None), call)


def as_value(type_: Type, value: Value) -> Value:
    """Convert numpy scalars to arrays, and several results to a tuple."""
    match type_:
        case TensorType():
            return value if isinstance(value, np.ndarray) else np.asarray(value)
        case TupleType(fields=fields) if isinstance(value, (tuple, list)) and len(value) == len(fields):
            return tuple(map(as_value, fields, value))
    return value


def _concrete(attrs: Attrs, frame: _Frame, operator: Operator, node: str | None) -> Attrs:
    """Replace symbolic dimensions in attributes by the sizes of this run."""
    names = attr_vars(attrs)
    if not names:
        return attrs
    sizes: dict[arith.Expr, arith.Expr] = {}
    for name in names:
        size = frame.size(name)
        if size is None:
            raise VerifyError(f"the dimension {name!r} must be bound before it is used", operator=operator.name, node=node)
        sizes[name] = arith.Const(size)
    return substitute_attrs(attrs, sizes)


def _misfit(type_: Type, value: Value, sizes: dict[arith.Expr, int] | _Sizes) -> str | None:
    """Explain why a value does not have a type. Returns None if it does. Binds symbolic dimensions that have no size yet."""
    match type_:
        case TensorType(shape=shape, dtype=dtype):
            if not isinstance(value, np.ndarray):
                return f"is {value!r:.40}, but must have {type_!r}"
            if value.dtype != dtype.numpy:
                return f"has element type {value.dtype.name}, but must have {dtype}"
            if value.ndim != len(shape):
                return f"has shape {value.shape}, but must have {type_!r}"
            for dim, size in zip(shape, value.shape, strict=True):
                if isinstance(dim, arith.SizeVar):
                    extent = sizes.get(dim)
                    if extent is None:
                        sizes[dim] = size
                    dim = size if extent is None else extent
                if isinstance(dim, int) and dim != size:
                    return f"has shape {value.shape}, but must have {type_!r}"
        case TupleType(fields=fields):
            if not isinstance(value, tuple) or len(value) != len(fields):
                return f"is not a tuple of {len(fields)} values"
            return next(filter(None, (_misfit(*pair, sizes) for pair in zip(fields, value, strict=True))), None)
        case SequenceType() if not isinstance(value, list):
            return f"is a {type(value).__name__}, but must be a list"
    return None


def _wrong_size(type_: Type, value: Value, frame: _Frame) -> str | None:
    """Explain how the sizes of a value violate its type: a size is outside of its bounds, or differs from the value of its
    expression in the type. Returns None if none does. Expressions with unknown sizes are not checked."""
    match type_:
        case TensorType(shape=shape):
            for dim, size in zip(shape, value.shape, strict=True):
                if isinstance(dim, int) or (isinstance(dim, arith.SizeVar) and dim.existential):
                    continue
                if isinstance(dim, arith.SizeVar):
                    if size < dim.lower or (isinstance(dim.upper, int) and size > dim.upper):
                        upper = "any" if dim.upper is None else dim.upper
                        return f"has shape {value.shape}, but {dim.name} must be {dim.lower} to {upper}"
                    continue
                sizes = {name: extent for name in arith.free_vars(dim) if (extent := frame.size(name)) is not None}
                with suppress(KeyError, ZeroDivisionError):
                    if (expected := arith.evaluate(dim, sizes)) != size:
                        return f"has shape {value.shape}, but must have {type_!r}, where {dim!r} is {expected}"
        case TupleType(fields=fields):
            return next(filter(None, (_wrong_size(*pair, frame) for pair in zip(fields, value, strict=True))), None)
    return None


def _bind_sizes(type_: Type, value: Value, dims: dict[arith.Expr, int]) -> None:
    """Bind the existential dimensions of a type to the sizes of a value of that type."""
    match type_:
        case TensorType(shape=shape):
            pairs = zip(shape, value.shape, strict=True)
            dims.update((dim, size) for dim, size in pairs if isinstance(dim, arith.SizeVar) and dim.existential)
        case TupleType(fields=fields):
            for item, part in zip(fields, value, strict=True):
                _bind_sizes(item, part, dims)


def _actual_type(type_: Type, value: Value) -> Type:
    """Return the type of a value with the value's sizes as the dimensions of tensors, also inside tuples and optionals."""
    match type_:
        case TensorType(dtype=dtype):
            return TensorType(value.shape, dtype)
        case TupleType(fields=fields):
            return TupleType(tuple(map(_actual_type, fields, value)))
        case OptionalType(element=element) if value is not None:
            return OptionalType(_actual_type(element, value))
    return type_


def _stack(type_: Type, values: list[Value], frame: _Frame, node: str) -> Value:
    """Stack the outputs of a loop. After 0 iterations, the shape is that of `type_`, with 0 for each unknown size."""
    assert isinstance(type_, TensorType)
    if values:
        if len({value.shape for value in values}) > 1:
            raise KernelFault("a stacked output must have one shape in all iterations", operator="loop", node=node)
        return np.stack(values)
    sizes = {dim: frame.size(dim) or 0 for dim in type_vars(type_)}
    return np.zeros((0, *(arith.evaluate(dim, sizes) for dim in type_.shape[1:])), type_.dtype.numpy)
