"""Merges a loop or branch that consists of regions of one target into one region, to remove host steps between the regions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from inlaid.graph import ir
from inlaid.graph.loops import iterations
from inlaid.graph.scope_conditions import conditions_in, scope_constraints, weakened, with_added
from inlaid.graph.scopes import Scope, Scopes, analyse
from inlaid.graph.transform import substitute
from inlaid.partitioning.outline import Partitioned, call_by_name, region_conditions
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.types import TensorType, TupleType, Type, type_vars

_Bindings = dict[int, ir.Expr]
"""Rewritten expressions, by id of the original."""


def absorb_control(
    partitioned: Partitioned, loops: Collection[int], branches: Collection[int], static: Collection[int] = ()
) -> Partitioned:
    """Merge each loop or branch that consists of regions of one target into one region. The target must be in `loops` for a loop,
    in `branches` for a branch, and in both for a loop with branches. A loop with symbolic sizes, such as its number of iterations,
    is not merged for a target in `static`. The merged region has the name of its first region. A whole function that contains
    branches, and only regions of one target, is merged as well.

    A loop is not merged if it computes sizes: a state varies in shape, or a stacked output has a data-dependent length. A branch is
    not merged if it computes sizes, or if its arms check sizes, since only the taken arm may check. The same holds for a loop whose
    body checks sizes, unless its number of iterations is known before it runs.
    """
    guarded = {name for guard in partitioned.guards for name in (guard.region, *guard.regions)}
    mergeable_regions = {name: target for name, target in partitioned.regions.items() if name not in guarded}
    absorber = _Absorber(
        dict(partitioned.module.functions), mergeable_regions, frozenset(loops), frozenset(branches), frozenset(static)
    )
    for name, function in partitioned.module.functions.items():
        if name not in partitioned.regions and any(isinstance(expr, (ir.Loop, ir.If)) for expr in ir.post_order(function)):
            absorber.functions[name] = absorber.absorbed(function)
    merged = absorber.merged
    functions = {name: function for name, function in absorber.functions.items() if name not in merged}
    regions = {name: target for name, target in partitioned.regions.items() if name not in merged}
    placements = tuple(
        replace(item, regions=tuple(merged.get(name, name) for name in item.regions)) for item in partitioned.placements
    )
    return replace(partitioned, module=ir.Module(functions), regions=regions, placements=placements)


@dataclass
class _Absorber:
    """Merges regions. `functions` are the functions of the module; `regions` maps the regions that can be merged to their targets;
    `merged` maps the name of a merged region to the region that contains it. `constraints_by_scope` has the constraints of each
    scope, `added` those that merged loops add to it."""

    functions: dict[str, ir.Function]
    regions: dict[str, int]
    loops: frozenset[int]
    branches: frozenset[int]
    static: frozenset[int]
    merged: dict[str, str] = field(default_factory=dict)
    constraints_by_scope: dict[Scope, tuple[Constraint, ...]] = field(default_factory=dict)
    added: dict[Scope, tuple[Constraint, ...]] = field(default_factory=dict)

    def absorbed(self, function: ir.Function) -> ir.Function:
        """Replace loops and branches of a function by calls of merged regions."""
        scopes = analyse(function)
        scope = scopes.body(function)
        self.constraints_by_scope.update(scope_constraints(scopes))
        if names := self._function_regions(scope, scopes):
            operands = _outside_values([scope], scopes)
            region = self._region(names, operands, lambda bindings, _: self._inlined(scope, scopes, bindings), operands)
            body = region if isinstance(function.body.type, TupleType) else ir.tuple_item(region, 0)
            return replace(function, body=body)
        calls = self._merged_calls(scope, scopes)
        replacements: _Bindings = {}
        for expr in ir.post_order(function):
            call = calls.get(id(expr))
            if call is None:
                new = ir.rebuild(expr, tuple(replacements[id(child)] for child in ir.children(expr)))
                replacements[id(expr)] = with_added(expr, new, scopes, self.added)
            else:
                args = tuple(replacements[id(arg)] for arg in call.args)
                merged_call = ir.Call(call.type, call.span, call.callee, args, call.attrs)
                replacements[id(expr)] = merged_call if isinstance(expr.type, TupleType) else ir.tuple_item(merged_call, 0)
        changed = replacements[id(function)]
        assert isinstance(changed, ir.Function)
        return changed

    def _function_regions(self, scope: Scope, scopes: Scopes) -> list[str]:
        """Return the regions that make up a whole function, if they can be merged. Empty for a function without a branch, since its
        regions are already one."""
        if not any(isinstance(expr, ir.If) for expr in scope.order):
            return []
        names = self._scope_regions(scope, scopes, conditions_in(scope, self.constraints_by_scope))
        tensors = all(map(_is_tensor, (*_types(scope.result), *(item.type for item in _outside_values([scope], scopes)))))
        return names if names and tensors and self.regions[names[0]] in self.branches else []

    def _merged_calls(self, root: Scope, scopes: Scopes) -> dict[int, ir.Call]:
        """Return calls of merged regions for the outermost loops and branches that can be merged, by id."""
        calls: dict[int, ir.Call] = {}
        pending = [root]
        while pending:
            scope = pending.pop()
            bodies = {id(expr): expr for expr in scope.order if isinstance(expr, ir.Function)}
            for expr in scope.order:
                call = self._loop(expr, scopes) if isinstance(expr, ir.Loop) else None
                call = self._branch(expr, scopes) if isinstance(expr, ir.If) else call
                if call is not None:
                    calls[id(expr)] = call
                    if isinstance(expr, ir.Loop):
                        del bodies[id(expr.body)]
                elif isinstance(expr, ir.If):
                    pending += scopes.branches(expr)
            pending += map(scopes.body, bodies.values())
        return calls

    def _loop(self, loop: ir.Loop, scopes: Scopes) -> ir.Call | None:
        """Merge a loop into a region and return its call; None if impossible."""
        body = loop.body
        if not isinstance(body, ir.Function) or scopes.uses[id(body)] != 1:
            return None
        scope = scopes.body(body)
        outer_scope = scopes.expr_scopes[id(loop)]
        names = self._scope_regions(scope, scopes, conditions_in(outer_scope, self.constraints_by_scope))
        accepting_targets = self.loops & self.branches if any(isinstance(expr, ir.If) for expr in scope.order) else self.loops
        if not names or self.regions[names[0]] not in accepting_targets:
            return None
        controls = [item for item in (loop.trip_count, loop.condition) if item is not None]
        inputs = [*controls, *loop.state, *loop.scanned]
        captured = [item for item in _outside_values([scope], scopes) if not any(item is param for param in body.params)]
        if self.regions[names[0]] in self.static and any(type_vars(item.type) for item in (loop, *inputs, *captured)):
            return None
        count = iterations(body, loop.scanned, loop.trip_count, loop.condition)
        constraints = self.constraints_by_scope.get(scope, ())
        if not _determines_sizes(loop, body, [*inputs, *captured], count) or (constraints and count is None):
            return None
        if count is not None:
            self.added[outer_scope] = (*self.added.get(outer_scope, ()), *weakened(constraints, count))

        def build_body(bindings: _Bindings, params: Sequence[ir.Var]) -> ir.Expr:
            return ir.rebuild(loop, (ir.function(body.params, self._inlined(scope, scopes, bindings)), *params[: len(inputs)]))

        return self._region(names, [*inputs, *captured], build_body, captured)

    def _branch(self, choice: ir.If, scopes: Scopes) -> ir.Call | None:
        """Merge a branch into a region and return its call; None if impossible."""
        names = self._branch_regions(choice, scopes, conditions_in(scopes.expr_scopes[id(choice)], self.constraints_by_scope))
        if not names or len({self.regions[name] for name in names}) > 1 or self.regions[names[0]] not in self.branches:
            return None
        arms = scopes.branches(choice)
        captured = _outside_values(arms, scopes)
        operands = list({id(item): item for item in (choice.condition, *captured)}.values())
        if not all(_is_tensor(item.type) for item in operands):
            return None

        def build_body(bindings: _Bindings, params: Sequence[ir.Var]) -> ir.Expr:
            return ir.rebuild(choice, (params[0], *(self._inlined(arm, scopes, bindings) for arm in arms)))

        return self._region(names, operands, build_body, operands)

    def _region(
        self,
        names: Sequence[str],
        operands: Sequence[ir.Expr],
        build: Callable[[_Bindings, Sequence[ir.Var]], ir.Expr],
        direct_operands: Sequence[ir.Expr],
    ) -> ir.Call:
        """Merge several regions. Returns the call of the merged region on `operands`. `build` makes its body from the parameters;
        `direct_operands` are the operands that the inner regions read directly."""
        name, *merged_names = names
        self.merged.update(dict.fromkeys(merged_names, name))
        params = [ir.var(f"p{number}", item.type, span=item.span) for number, item in enumerate(operands)]
        params_by_operand = {id(item): param for item, param in zip(operands, params, strict=True)}
        body = build({id(item): params_by_operand[id(item)] for item in direct_operands}, params)
        self.functions[name] = ir.function(params, ir.tuple_(_items(body)), self.functions[name].attrs)
        return call_by_name(name, self.functions[name], operands)

    def _scope_regions(self, scope: Scope, scopes: Scopes, conditions: frozenset[Dim], arm: bool = False) -> list[str] | None:
        """Return the regions, of one target, that make up a scope; None if the scope contains anything else. `conditions` are the
        conditions that hold where the merged region is called."""
        names: list[str] = []
        for expr in scope.order:
            match expr:
                case ir.Tuple() | ir.TupleItem():
                    continue
                case ir.Call(callee=ir.GlobalVar(name=name)) if self._is_mergeable(name, conditions if arm else None):
                    names.append(name)
                case ir.If():
                    arm_names = self._branch_regions(expr, scopes, conditions)
                    if arm_names is None:
                        return None
                    names += arm_names
                case _:
                    return None
        return names if len({self.regions[name] for name in names}) <= 1 else None

    def _branch_regions(self, choice: ir.If, scopes: Scopes, conditions: frozenset[Dim]) -> list[str] | None:
        """Return the regions that make up the arms of a branch; None if the branch cannot be merged."""
        if any(
            item.condition not in conditions for arm in scopes.branches(choice) for item in self.constraints_by_scope.get(arm, ())
        ):
            return None
        if isinstance(choice.condition, ir.Constant) or ir.introduced_sizes(choice) or not all(map(_is_tensor, _types(choice))):
            return None
        names_by_arm = [self._scope_regions(arm, scopes, conditions, arm=True) for arm in scopes.branches(choice)]
        return None if None in names_by_arm else [name for names in names_by_arm for name in names or ()]

    def _is_mergeable(self, name: str, conditions: frozenset[Dim] | None) -> bool:
        """Test whether a region can be merged: it computes no sizes and, in an arm, checks no sizes besides `conditions`."""
        if name not in self.regions or any(map(ir.introduced_sizes, ir.post_order(self.functions[name].body))):
            return False
        return conditions is None or all(item.condition in conditions for item in region_conditions(self.functions[name]))

    def _inlined(self, scope: Scope, scopes: Scopes, bindings: _Bindings) -> ir.Expr:
        """Return the result of a scope with the calls of regions inlined. `bindings` has the expressions rewritten so far, and gets
        those of the scope."""
        for expr in scope.order:
            if id(expr) in bindings:
                continue  # read from outside
            if isinstance(expr, ir.Call):
                assert isinstance(expr.callee, ir.GlobalVar)
                region = self.functions[expr.callee.name]
                args = [bindings.get(id(arg), arg) for arg in expr.args]
                bindings[id(expr)] = substitute(region.body, dict(zip(region.params, args, strict=True)))
            elif isinstance(expr, ir.If):
                condition = bindings.get(id(expr.condition), expr.condition)
                arms = (self._inlined(arm, scopes, bindings) for arm in scopes.branches(expr))
                bindings[id(expr)] = ir.rebuild(expr, (condition, *arms))
            else:
                bindings[id(expr)] = ir.rebuild(expr, tuple(bindings.get(id(child), child) for child in ir.children(expr)))
        return bindings.get(id(scope.result), scope.result)


def _items(value: ir.Expr) -> list[ir.Expr]:
    """Return the items of a tuple, or the value itself in a list."""
    return (
        [ir.tuple_item(value, index) for index in range(len(value.type.fields))] if isinstance(value.type, TupleType) else [value]
    )


def _types(value: ir.Expr) -> tuple[Type, ...]:
    """Return the types of the items."""
    return value.type.fields if isinstance(value.type, TupleType) else (value.type,)


def _outside_values(roots: Sequence[Scope], scopes: Scopes) -> list[ir.Expr]:
    """Return the values that scopes, including arms of branches in them, read from outside."""
    scope_list = list(roots)
    for scope in scope_list:
        scope_list += (arm for expr in scope.order if isinstance(expr, ir.If) for arm in scopes.branches(expr))
    inner_exprs: set[int] = set()
    for expr in (expr for scope in scope_list for expr in scope.order):
        # A part of a tuple from outside, such as one of the results of a region, is read from outside as well.
        if not isinstance(expr, ir.TupleItem) or id(expr.tuple) in inner_exprs:
            inner_exprs.add(id(expr))
    inner = (expr for scope in scope_list for expr in scope.order if id(expr) in inner_exprs)
    read_exprs = [child for expr in inner for child in ir.children(expr)] + [scope.result for scope in roots]
    operands = {
        id(expr): expr for expr in read_exprs if id(expr) not in inner_exprs and not isinstance(expr, (ir.Constant, ir.GlobalVar))
    }
    return list(operands.values())


def _determines_sizes(loop: ir.Loop, body: ir.Function, operands: Sequence[ir.Expr], count: Dim | None) -> bool:
    """Test whether all values of a loop are tensors whose sizes are determined by the loop's inputs. `count` is the number of
    iterations if sizes determine it: stacked outputs must have so many rows."""
    assert isinstance(loop.type, TupleType) and isinstance(body.body.type, TupleType)
    results = loop.type.fields
    if not results or not all(_is_tensor(type_) for type_ in (*(item.type for item in operands), *results)):
        return False
    states = tuple(item.type for item in loop.state)
    if not states == results[: len(states)] == body.body.type.fields[1 : 1 + len(states)]:
        return False
    if states != tuple(param.type for param in body.params[1 : 1 + len(states)]):
        return False
    operand_sizes = frozenset().union(*(type_vars(item.type) for item in operands))
    if not frozenset().union(*map(type_vars, results)) <= operand_sizes:
        return False
    if any(isinstance(type_, TensorType) and type_.shape[0] != count for type_ in results[len(states) :]):
        return False
    scanned = [item.type for item in loop.scanned if isinstance(item.type, TensorType)]
    slices = [TensorType(type_.shape[1:], type_.dtype) for type_ in scanned]
    return len({type_.shape[0] for type_ in scanned}) <= 1 and slices == [param.type for param in body.params[1 + len(states) :]]


def _is_tensor(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.kind != "string"
