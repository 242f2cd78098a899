"""The verifier of the graph IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from inlaid.graph.attrs import attr_vars, shown_sizes, sizes_in
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
    Var,
    call,
    children,
    introduced_sizes,
    post_order,
)
from inlaid.graph.loops import infer_loop
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import Scope, Scopes, analyse, opens_scope
from inlaid.graph.unify import fits, join_types
from inlaid_runtime import arith
from inlaid_runtime.errors import TypeInferenceError, VerifyError, suggestion
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, from_numpy


def verify(unit: Module | Function) -> None:
    """Raise `VerifyError` unless the module or function is well formed.

    Every variable is bound once and used in its scope. Every shared expression is evaluated in a scope that has its operands. Every
    type equals the inferred type, except in dimensions that only a run can compare. Functions return their declared type. Global
    names exist and have their declared type. Symbolic dimensions in attributes are bound by a parameter, or defined by a value that
    the call depends on.
    """
    if isinstance(unit, Function):
        _Verifier(unit, None, "").run()
        return
    for name, target in unit.functions.items():
        _Verifier(target, unit, name).run()


def verify_model(module: Module) -> None:
    """Raise `VerifyError` unless a module can be compiled: it is well formed, its entry point `main` is a function whose parameters
    have different names and whose result contains no functions, and each symbolic dimension in a function's type is an extent of a
    parameter, so that a call determines it."""
    functions = module.functions
    main = functions.get("main") if isinstance(functions, Mapping) else None
    if not isinstance(main, Function):
        actual = "none of that name" if main is None else f"a {type(main).__name__}"
        names = ", ".join(map(str, functions)) if isinstance(functions, Mapping) else type(functions).__name__
        raise VerifyError(
            f"a module must have a function main, its entry point; found {actual} among {names or 'no functions'}",
            remedy='make it with inlaid.Module({"main": function})',
        )
    for name, target in functions.items():
        if not isinstance(target, Function):
            raise VerifyError(f"@{name} must be a Function, got {type(target).__name__}", remedy="make it with inlaid.function")
    verify(module)
    for name, target in functions.items():
        _check_sizes(name, target)
    parameter_names = [param.name for param in main.params]
    for name in parameter_names:
        if parameter_names.count(name) > 1:
            raise VerifyError(
                f"in @main: parameters must have different names, as inputs are given by name; found {name!r} "
                f"{parameter_names.count(name)} times",
                remedy="rename them: inlaid.var(name, type)",
            )
    if isinstance(main.type, FunctionType) and _holds_function(main.type.result):
        raise VerifyError(f"in @main: the result must contain no function, got {main.type.result!r}", remedy="return a call of it")


def _check_sizes(name: str, target: Function) -> None:
    """Raise `VerifyError` for a symbolic dimension in a function's type that a call does not determine."""
    assert isinstance(target.type, FunctionType)
    params = [param.type for param in target.params]
    result = target.type.result
    declared = [*params, result] if result != target.body.type else params
    # Tensors inside of sequences and optionals may have any sizes.
    shapes = [part.shape for type_ in declared for part in _parts(type_) if isinstance(part, TensorType)]
    for size in sizes_in(tuple(shapes)):
        if not size.existential and size not in shown_sizes(*params):
            raise VerifyError(
                f"in @{name}: the dimension {size!r} must be an extent of a parameter, so that each call determines it; got "
                f"{target.type!r}",
                remedy=f"declare a parameter whose shape has the extent {size!r}, or make {size!r} an integer",
            )


def _parts(type_: Type) -> tuple[Type, ...]:
    """Flatten a tuple type."""
    return tuple(part for field in type_.fields for part in _parts(field)) if isinstance(type_, TupleType) else (type_,)


def _holds_function(type_: Type) -> bool:
    return isinstance(type_, FunctionType) or (isinstance(type_, TupleType) and any(map(_holds_function, type_.fields)))


class _Verifier:
    """Checks one function. Here the body of a `Let` counts as a scope, to check that its variable is used only in the body."""

    def __init__(self, target: Function, module: Module | None, name: str) -> None:
        self._target = target
        self._module = module
        self._name = name
        self._scopes: Scopes = analyse(target, _binds)
        self._scope_intervals = _intervals(self._scopes)
        self._vars: dict[int, Scope] = {}
        self._sizes: dict[arith.Expr, list[tuple[Scope, int]]] = {}

    def run(self) -> None:
        order = list(post_order(self._target))
        for position, expr in enumerate(order):
            self._record_binders(expr, position)
        for position, expr in enumerate(order):
            try:
                self._check_type(expr)
            except TypeInferenceError as error:
                self._fail(expr, f"ill-typed: {error.message}")
            for index, child in enumerate(children(expr)):
                if isinstance(child, Var) and not self._inside(self._vars.get(id(child)), self._child_scope(expr, index)):
                    rebind_remedy = f"bind it once around all its uses: %{child.name} is bound elsewhere"
                    parameter_remedy = f"add it to the parameters of the function: inlaid.function([..., {child.name}], body)"
                    self._fail(
                        expr,
                        f"%{child.name} is used outside of its scope",
                        rebind_remedy if id(child) in self._vars else parameter_remedy,
                    )
            if isinstance(expr, Call):
                call_scope = self._scopes.expr_scopes[id(expr)]
                for size in attr_vars(expr.attrs):
                    bindings = self._sizes.get(size, ())
                    if not any(
                        binding_position < position and self._inside(binding_scope, call_scope)
                        for binding_scope, binding_position in bindings
                    ):
                        self._fail(expr, f"the dimension {size!r} is not bound in this scope", "make it a dimension of a parameter")

    def _child_scope(self, parent: Expr, index: int) -> Scope:
        return self._scopes.inner[id(parent), index] if _binds(parent, index) else self._scopes.expr_scopes[id(parent)]

    def _inside(self, outer: Scope | None, inner: Scope) -> bool:
        if outer is None:
            return False
        (start, end), (position, _) = self._scope_intervals[outer], self._scope_intervals[inner]
        return start <= position <= end

    def _record_binders(self, expr: Expr, position: int) -> None:
        """Record the scope in which variables and symbolic dimensions are bound, and the position of the binding expression."""
        variables: tuple[Var, ...] = ()
        if isinstance(expr, Function):
            variables, scope = expr.params, self._scopes.inner[id(expr), 0]
        elif isinstance(expr, Let):
            variables, scope = (expr.var,), self._scopes.inner[id(expr), 1]
        for variable in variables:
            if id(variable) in self._vars:
                self._fail(expr, f"%{variable.name} is bound twice", "make a variable for each place: inlaid.var(name, type)")
            self._vars[id(variable)] = scope
            for size in sizes_in(variable.type):
                self._sizes.setdefault(size, []).append((scope, -1))
        for introduced in introduced_sizes(expr):
            size_scope = self._scopes.expr_scopes.get(id(expr), self._scopes.root)
            while isinstance(size_scope.owner, Let):  # a size defined in the body of a `Let` occurs in the type of the `Let`
                assert size_scope.parent is not None
                size_scope = size_scope.parent
            self._sizes.setdefault(introduced, []).append((size_scope, position))

    def _check_type(self, expr: Expr) -> None:
        match expr:
            case Call(callee=callee, args=args, attrs=attrs):
                if isinstance(callee, Operator):
                    self._agree(expr, callee.infer_type(attrs, tuple(arg.type for arg in args), expr.span))
                else:
                    self._agree(expr, call(callee, args).type)
            case Constant(data=data):
                self._agree(expr, TensorType(data.shape, from_numpy(data.dtype)))
            case Tuple(fields=fields):
                self._agree(expr, TupleType(tuple(item.type for item in fields)))
            case TupleItem(tuple=value, index=index):
                if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.fields):
                    self._fail(expr, f"expected a tuple with a field {index}, got {value.type!r}")
                self._agree(expr, value.type.fields[index])
            case Function(params=params, body=body):
                self._agree(expr, FunctionType(tuple(param.type for param in params), body.type))
            case If(condition=condition, then=then, otherwise=otherwise):
                if not fits(TensorType((), "bool"), condition.type):
                    self._fail(expr, f"the condition must be a 0-d bool tensor, got {condition.type!r}")
                self._agree(expr, join_types(then.type, otherwise.type))
            case Let(var=variable, value=value, body=body):
                if not fits(variable.type, value.type):
                    self._fail(expr, f"%{variable.name} is declared {variable.type!r}, but its value has type {value.type!r}")
                self._agree(expr, body.type)
            case Loop(body=body, state=state, scanned=scanned, trip_count=trips, condition=condition):
                self._agree(expr, infer_loop(body, state, scanned, trips, condition, None, expr.span))
            case GlobalVar(name=name) if self._module is not None:
                functions = self._module.functions
                if name not in functions:
                    function_names = ", ".join(f"@{each}" for each in functions)
                    problem = f"the module has no function @{name}{suggestion(name, list(functions))}; it has {function_names}"
                    self._fail(expr, problem, f'add it: inlaid.Module({{..., "{name}": function}})')
                self._agree(expr, functions[name].type, f'declare it as inlaid.global_var("{name}", module["{name}"].type)')

    def _agree(self, expr: Expr, inferred: Type, remedy: str | None = None) -> None:
        if expr.type is not inferred and not fits(expr.type, inferred):
            what = f"the type of @{expr.name}" if isinstance(expr, GlobalVar) else "the type"
            self._fail(expr, f"{what} is declared as {expr.type!r}, but inferred as {inferred!r}", remedy)

    def _fail(self, expr: Expr, problem: str, remedy: str | None = None) -> NoReturn:
        location = f"in @{self._name}: " if self._name else ""
        operator = expr.callee.name if isinstance(expr, Call) and isinstance(expr.callee, Operator) else None
        raise VerifyError(f"{location}{problem}", operator=operator, node=str(expr.span) if expr.span else None, remedy=remedy)


def _binds(expr: Expr, index: int) -> bool:
    return opens_scope(expr, index) or (isinstance(expr, Let) and index == 1)


def _intervals(scopes: Scopes) -> dict[Scope, tuple[int, int]]:
    """Number the scopes: a scope encloses another one if and only if its interval contains the first number of the other's."""
    inner_scopes: dict[Scope, list[Scope]] = {}
    for scope in scopes.inner.values():
        assert scope.parent is not None
        inner_scopes.setdefault(scope.parent, []).append(scope)
    start: dict[Scope, int] = {}
    intervals: dict[Scope, tuple[int, int]] = {}
    stack = [scopes.root]
    while stack:
        scope = stack[-1]
        if scope not in start:
            start[scope] = len(start)
            stack.extend(inner_scopes.get(scope, ()))
        else:
            stack.pop()
            intervals.setdefault(scope, (start[scope], len(start) - 1))
    return intervals
