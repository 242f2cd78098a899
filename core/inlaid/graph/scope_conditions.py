"""Conditions on sizes, collected from the expressions that state them, by the scope in which they must hold.

Type relations state conditions by `require`. `call_conditions` collects those of operator calls. `scope_conditions` collects those
of all expressions of a function, for each scope (see `graph.scopes`): a condition must hold if its scope is entered, before
anything in the scope runs, or as soon as the scope has computed the sizes in it. Nothing is required of a branch that is not
taken, or of the body of a loop without iterations.

`Function.constraints` and `If.constraints` hold the conditions of a scope while passes change the expressions in it: a pass that
removes a call does not remove what the call required of the sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping

from inlaid.graph import ir
from inlaid.graph.attrs import attr_vars, shown_sizes
from inlaid.graph.conditions import not_negative, recording
from inlaid.graph.loops import infer_loop, require_carried
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import Scope, Scopes, analyse, is_leaf
from inlaid.graph.unify import bind_dims, match_dims, unify
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Expr
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, substitute_type, type_vars

_LOOP = "loop"
"""Name of a `Loop` in errors, in place of an operator's."""


def call_conditions(calls: Iterable[ir.Call]) -> tuple[Constraint, ...]:
    """Return the preconditions of operator calls that cannot be proved at compile time, in the order of the calls, without
    duplicates: the constraints that type relations pass to `require`, that dimensions of results are >= 0, and that results have
    the declared type."""
    conditions: dict[arith.Dim, Constraint] = {}
    proofs = _Proofs()
    for call in calls:
        proofs.add(conditions, _operator_conditions(call))
    return tuple(conditions.values())


def scope_conditions(scopes: Scopes, functions: Mapping[str, ir.Function] | None = None) -> dict[Scope, tuple[Constraint, ...]]:
    """Return the conditions of each scope of a function that cannot be proved at compile time, without those of enclosing scopes:
    the constraints of the function or branch, and the conditions of the scope's expressions. `functions` are the module's functions
    by name. Scopes without conditions are omitted."""
    collector = _Collector(scopes, functions or {})
    conditions_by_scope: dict[Scope, frozenset[arith.Dim]] = {}
    result: dict[Scope, tuple[Constraint, ...]] = {}
    for scope in (scopes.root, *scopes.inner.values()):  # outer scopes first
        outer = conditions_by_scope[scope.parent] if scope.parent is not None else frozenset()
        conditions: dict[arith.Dim, Constraint] = {}
        _Proofs().add(conditions, collector.stated(scope), outer)
        conditions_by_scope[scope] = outer.union(conditions)
        if conditions:
            result[scope] = tuple(conditions.values())
    return result


def owner_constraints(scope: Scope) -> tuple[Constraint, ...]:
    """Return the constraints of a scope that its owner, a function or an `If`, stores."""
    match scope.owner:
        case ir.Function(constraints=constraints):
            return constraints
        case ir.If(constraints=(then, otherwise)):
            return then if scope.index == 1 else otherwise
    return ()


def scope_constraints(scopes: Scopes) -> dict[Scope, tuple[Constraint, ...]]:
    """Return the constraints of each scope that its owner stores, without those of enclosing scopes. A constraint on a size that is
    an extent of no value in the scope or in an enclosing one is omitted: a pass has removed the expression that computes the size,
    and nothing depends on it."""
    visible_sizes: dict[Scope, frozenset[Expr]] = {}
    outer: dict[Scope, frozenset[arith.Dim]] = {}
    result: dict[Scope, tuple[Constraint, ...]] = {}
    if not any(map(owner_constraints, scopes.inner.values())):
        return result
    for scope in (scopes.root, *scopes.inner.values()):
        types = [expr.type for expr in scope.order]
        if isinstance(scope.owner, ir.Function):
            types += [param.type for param in scope.owner.params]
        visible_sizes[scope] = shown_sizes(*types).union(visible_sizes[scope.parent] if scope.parent is not None else ())
        outer_conditions = outer[scope.parent] if scope.parent is not None else frozenset()
        candidates = {item.condition: item for item in reversed(owner_constraints(scope)) if item.sizes <= visible_sizes[scope]}
        constraints = tuple(item for condition, item in reversed(candidates.items()) if condition not in outer_conditions)
        outer[scope] = outer_conditions.union(candidates)
        if constraints:
            result[scope] = constraints
    return result


def conditions_in(scope: Scope | None, constraints: Mapping[Scope, Iterable[Constraint]]) -> frozenset[arith.Dim]:
    """Return the conditions that hold in a scope: those of the scope and of enclosing scopes in `constraints`."""
    conditions: set[arith.Dim] = set()
    while scope is not None:
        conditions.update(item.condition for item in constraints.get(scope, ()))
        scope = scope.parent
    return frozenset(conditions)


def with_added(old: ir.Expr, new: ir.Expr, scopes: Scopes, added: Mapping[Scope, tuple[Constraint, ...]]) -> ir.Expr:
    """Return `new`, which replaces `old`, with further constraints: those that `added` has for the scopes that `old` owns in
    `scopes`."""
    if isinstance(old, ir.Function) and isinstance(new, ir.Function):
        more = added.get(scopes.body(old), ())
        return dataclasses.replace(new, constraints=(*new.constraints, *more)) if more else new
    if isinstance(old, ir.If) and isinstance(new, ir.If):
        then, otherwise = (added.get(branch, ()) for branch in scopes.branches(old))
        if then or otherwise:
            return dataclasses.replace(new, constraints=((*new.constraints[0], *then), (*new.constraints[1], *otherwise)))
    return new


def weakened(constraints: Iterable[Constraint], count: arith.Dim) -> tuple[Constraint, ...]:
    """Return the constraints of the body of a loop as constraints outside of the loop, which runs `count` iterations: each applies
    only if there is an iteration. Constraints that then hold for all sizes are dropped."""
    no_iterations = arith.compare("<", count, 1)
    changed = (
        dataclasses.replace(item, condition=arith.unwrap(arith.logical_or(no_iterations, item.condition))) for item in constraints
    )
    return tuple(item for item in changed if not isinstance(item.condition, int) or not item.condition)


def with_constraints(module: ir.Module) -> ir.Module:
    """Add the conditions of all scopes to the functions and branches that own the scopes. Returns the same object if there are
    none."""
    changed = {name: _with_constraints(target, module.functions) for name, target in module.functions.items()}
    is_unchanged = all(changed[name] is target for name, target in module.functions.items())
    return module if is_unchanged else ir.Module(changed)


def _with_constraints(target: ir.Function, functions: Mapping[str, ir.Function]) -> ir.Function:
    scopes = analyse(target)
    conditions = scope_conditions(scopes, functions)
    if not conditions:
        return target
    replacements: dict[int, ir.Expr] = {}
    for expr in ir.post_order(target):
        new = ir.rebuild(expr, tuple(replacements[id(child)] for child in ir.children(expr)))
        if isinstance(expr, ir.Function) and isinstance(new, ir.Function):
            new = dataclasses.replace(new, constraints=conditions.get(scopes.body(expr), ()))
        elif isinstance(expr, ir.If) and isinstance(new, ir.If):
            then, otherwise = (conditions.get(branch, ()) for branch in scopes.branches(expr))
            new = dataclasses.replace(new, constraints=(then, otherwise))
        replacements[id(expr)] = new
    result = replacements[id(target)]
    assert isinstance(result, ir.Function)
    return result


def substitute_constraints(constraints: tuple[Constraint, ...], sizes: Mapping[Expr, Expr]) -> tuple[Constraint, ...]:
    """Replace symbolic dimensions in constraints. Constraints that then hold for all sizes are dropped."""
    changed = []
    for item in constraints:
        if sizes.keys().isdisjoint(item.sizes):
            changed.append(item)
            continue
        condition, value = (arith.unwrap(arith.substitute(arith.wrap(dim), sizes)) for dim in (item.condition, item.value))
        if not arith.prove(condition):
            changed.append(dataclasses.replace(item, condition=condition, value=value))
    return tuple(changed)


class _Proofs:
    """The conditions that are proved in one scope, kept since similar layers state the same ones. Each scope needs its own object:
    another scope may have another size of the same name, with other bounds."""

    def __init__(self) -> None:
        self._analyzer = arith.Analyzer()
        self._provable: set[arith.Dim] = set()

    def add(
        self, conditions: dict[arith.Dim, Constraint], stated: Iterable[Constraint], assumptions: Container[arith.Dim] = ()
    ) -> None:
        """Add to `conditions` the stated constraints that are neither assumed nor provable. A condition that divides by 0 does not
        hold."""
        for constraint in stated:
            condition = arith.with_value(constraint.condition)
            if condition is not constraint.condition:
                constraint = dataclasses.replace(constraint, condition=condition)
            if condition in conditions or condition in assumptions or condition in self._provable:
                continue
            if self._analyzer.prove(condition):
                self._provable.add(condition)
            else:
                conditions[condition] = constraint


# --- operators --------------------------------------------------------------------------------------------------------


def _operator_conditions(call: ir.Call) -> Iterator[Constraint]:
    types = [arg.type for arg in call.args]
    if not any(map(type_vars, (*types, call.type))) and not attr_vars(call.attrs):
        return
    operator = call.callee
    assert isinstance(operator, Operator)
    with recording() as recorded:
        inferred = operator.infer(call.attrs, *types)
        # Existential dimensions of the result are fresh in each inference.
        renamed_sizes = _declared_sizes(call, inferred)
        _unify_result(call.type, substitute_type(inferred, renamed_sizes))
    stated = substitute_constraints(tuple(recorded.symbolic), renamed_sizes) if renamed_sizes else recorded.symbolic
    node = str(call.span) if call.span else ""
    for constraint in (*stated, *not_negative(call.type)):
        yield dataclasses.replace(constraint, operator=operator.name, node=node)


def _declared_sizes(expr: ir.Expr, inferred: Type) -> dict[Expr, Expr]:
    """Map the existential dimensions that an inferred type introduces to the dimensions of the expression's declared type."""
    renamed_sizes: dict[Expr, Expr] = {}
    if expr.type is not inferred and any(map(ir.existential, type_vars(inferred))):
        match_dims(inferred, expr.type, renamed_sizes)
        operand_sizes = frozenset().union(*(type_vars(child.type) for child in ir.children(expr)))
        if isinstance(expr, ir.Call):
            operand_sizes |= attr_vars(expr.attrs)
        renamed_sizes = {
            size: value
            for size, value in renamed_sizes.items()
            if ir.existential(size) and size not in operand_sizes and size != value
        }
    return renamed_sizes


def _unify_result(declared: Type, inferred: Type) -> None:
    """Require the dimensions of an expression's declared type to be those of its inferred type."""
    if declared is not inferred and declared != inferred:
        unify(declared, inferred, what="the result")


# --- scopes -----------------------------------------------------------------------------------------------------------


class _Collector:
    """Collects the conditions that the expressions of one function state. `functions` are the functions of its module."""

    def __init__(self, scopes: Scopes, functions: Mapping[str, ir.Function]) -> None:
        self._scopes = scopes
        self._functions = functions
        self._captured: dict[int, frozenset[Expr]] = {}
        self._loops: dict[int, list[ir.Loop]] = {}
        for scope in (scopes.root, *scopes.inner.values()):
            for expr in scope.order:
                if isinstance(expr, ir.Loop):
                    self._loops.setdefault(id(expr.body), []).append(expr)

    def stated(self, scope: Scope) -> Iterator[Constraint]:
        """Yield the conditions that must hold in a scope: those that its owner holds, those of its expressions, and those on its
        result."""
        yield from owner_constraints(scope)
        for expr in scope.order:
            yield from self._expr_conditions(expr)
        match scope.owner:
            case ir.Function() as owner:
                yield from self._function_conditions(owner)
            case ir.If() as owner:
                yield from self._branch_type_conditions(owner, scope.result)

    def _expr_conditions(self, expr: ir.Expr) -> Iterator[Constraint]:
        match expr:
            case ir.Call(callee=Operator()):
                yield from _operator_conditions(expr)
            case ir.Call():
                yield from self._call_conditions(expr)
            case ir.Loop():
                yield from self._loop_conditions(expr)
            case ir.Let(var=variable, value=value):
                if variable.type != value.type:
                    yield from self._let_conditions(expr)
            case ir.Tuple(fields=fields):
                yield from self._wiring_conditions(expr, TupleType(tuple(field.type for field in fields)))
            case ir.TupleItem(tuple=operand, index=index):
                assert isinstance(operand.type, TupleType)
                yield from self._wiring_conditions(expr, operand.type.fields[index])

    def _wiring_conditions(self, expr: ir.Expr, inferred: Type) -> Iterator[Constraint]:
        if expr.type is not inferred and expr.type != inferred:
            with recording() as recorded:
                unify(expr.type, inferred, what="the value")
            yield from _with_node(recorded.symbolic, expr)

    def _call_conditions(self, expr: ir.Call) -> Iterator[Constraint]:
        callee = expr.callee
        assert isinstance(callee, ir.Expr)
        declared, name = callee.type, ir.callee_name(callee)
        if isinstance(callee, ir.GlobalVar) and callee.name in self._functions:
            declared = self._functions[callee.name].type
        assert isinstance(declared, FunctionType)
        types = tuple(arg.type for arg in expr.args)
        if not any(map(type_vars, (declared, *types, expr.type))):
            return
        captured = self._captured_sizes(callee)
        labels = [f"argument {number} of {name}" for number in range(len(types))]
        with recording() as recorded:
            sizes = bind_dims(declared.params, types, labels, name, expr.span, captured)
            result = substitute_type(declared.result, sizes)
            result_bindings: dict[Expr, Expr] = {}
            match_dims(result, expr.type, result_bindings)
            result_sizes = (
                ir.defined_sizes(callee) if isinstance(callee, ir.Function) else filter(ir.existential, type_vars(declared.result))
            )
            renamed_sizes = {size: result_bindings[size] for size in result_sizes if size not in sizes and size in result_bindings}
            unify(expr.type, substitute_type(result, renamed_sizes), what=f"the result of {name}")
        yield from _with_node(recorded.symbolic, expr)

    def _loop_conditions(self, expr: ir.Loop) -> Iterator[Constraint]:
        parts = [child.type for child in ir.children(expr)]
        if not any(map(type_vars, (expr.type, *parts))):
            return
        assert isinstance(expr.type, TupleType)
        outputs = [field for field in expr.type.fields[len(expr.state) :] if isinstance(field, TensorType)]
        extent = outputs[0].shape[0] if outputs else None
        captured = self._captured_sizes(expr.body)
        with recording() as recorded:
            inferred = infer_loop(expr.body, expr.state, expr.scanned, expr.trip_count, expr.condition, extent, expr.span, captured)
            unify(expr.type, substitute_type(inferred, _declared_sizes(expr, inferred)), what="the result of the loop")
        yield from _with_node(recorded.symbolic, expr, _LOOP)

    def _let_conditions(self, expr: ir.Let) -> Iterator[Constraint]:
        """State that the value has the variable's type. Dimensions that nothing else binds are bound by the value."""
        bound = self._bound_sizes(self._scopes.expr_scopes[id(expr)])
        name = f"%{expr.var.name}"
        with recording() as recorded:
            bind_dims([expr.var.type], [expr.value.type], [name], name, expr.span, bound)
        yield from _with_node(recorded.symbolic, expr)

    def _function_conditions(self, owner: ir.Function) -> Iterator[Constraint]:
        """State that the body has the declared result type, and that the states of a loop keep their types. Existential dimensions
        of the declared type are bound by the body."""
        assert isinstance(owner.type, FunctionType)
        declared, actual = owner.type.result, owner.body.type
        if declared is not actual and declared != actual:
            bindings: dict[Expr, Expr] = {}
            match_dims(declared, actual, bindings)
            renamed_sizes = {size: value for size, value in bindings.items() if ir.existential(size)}
            with recording() as recorded:
                unify(substitute_type(declared, renamed_sizes), actual, what="the result of the function")
            yield from _with_node(recorded.symbolic, owner)
        for loop in self._loops.get(id(owner), ()):
            if type_vars(owner.type):
                with recording() as recorded:
                    require_carried(loop, self._captured_sizes(owner))
                yield from _with_node(recorded.symbolic, loop, _LOOP)

    def _branch_type_conditions(self, owner: ir.If, result: ir.Expr) -> Iterator[Constraint]:
        """State that the result of a branch has the type of the conditional, except for dimensions that the conditional
        introduces."""
        if owner.type is result.type or owner.type == result.type:
            return
        bindings: dict[Expr, Expr] = {}
        match_dims(owner.type, result.type, bindings)
        new_sizes = ir.introduced_sizes(owner)
        renamed_sizes = {size: value for size, value in bindings.items() if size in new_sizes}
        with recording() as recorded:
            unify(substitute_type(owner.type, renamed_sizes), result.type, what="the result of the branch")
        yield from _with_node(recorded.symbolic, owner)

    def _captured_sizes(self, callee: ir.Expr) -> frozenset[Expr]:
        """Return the dimensions of the values that a function literal captures. They keep their names in a call of it, while the
        dimensions of its parameters are bound by each call."""
        if not isinstance(callee, ir.Function):
            return frozenset()
        if id(callee) not in self._captured:
            self._captured[id(callee)] = self._read_sizes(self._scopes.body(callee))
        return self._captured[id(callee)]

    def _read_sizes(self, body: Scope) -> frozenset[Expr]:
        """Return the dimensions of the values of enclosing scopes that the body of a function reads."""
        sizes: set[Expr] = set()
        inner_ids: set[int] = set()
        inner_scopes = [scope for scope in self._scopes.inner.values() if _encloses(body, scope)]
        for scope in inner_scopes:
            inner_ids.update(map(id, scope.order))
            if isinstance(scope.owner, ir.Function):
                inner_ids.update(map(id, scope.owner.params))
        for scope in inner_scopes:
            operands = [child for expr in scope.order for child in ir.children(expr)]
            for child in map(self._scopes.resolve, (*operands, scope.result)):
                if id(child) not in inner_ids and (isinstance(child, ir.Var) or not is_leaf(child)):
                    sizes |= type_vars(child.type)
        return frozenset(sizes)

    def _bound_sizes(self, scope: Scope | None) -> frozenset[Expr]:
        """Return the dimensions that parameters and expressions of a scope and of enclosing scopes bind."""
        sizes: set[Expr] = set()
        while scope is not None:
            for expr in scope.order:
                if not isinstance(expr, ir.Let):
                    sizes |= ir.introduced_sizes(expr)
            if isinstance(scope.owner, ir.Function):
                sizes = sizes.union(*(type_vars(param.type) for param in scope.owner.params))
            scope = scope.parent
        return frozenset(sizes)


def _encloses(outer: Scope, inner: Scope | None) -> bool:
    while inner is not None and inner.depth > outer.depth:
        inner = inner.parent
    return inner is outer


def _with_node(constraints: Iterable[Constraint], expr: ir.Expr, operator: str = "") -> Iterator[Constraint]:
    """Yield constraints with the operator and the source node of an expression."""
    node = str(expr.span) if expr.span else ""
    for constraint in constraints:
        yield dataclasses.replace(constraint, operator=operator, node=node)
