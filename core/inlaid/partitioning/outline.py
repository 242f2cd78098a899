"""Outlines regions, maximal sets of operators of one target that can run together, into functions of the module.

Every operator gets a level: the greatest level of its operands, plus one for an operand on another target. Operators of one target
and level form a region. A path that leaves a region raises the level and never lowers it, so it cannot return. Regions are
therefore convex and free of cyclic dependences by construction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.attrs import attr_vars, shown_sizes
from inlaid.graph.loops import iterations
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scope_conditions import call_conditions, owner_constraints, weakened
from inlaid.graph.scopes import Scope, Scopes, analyse, common_scope, is_leaf
from inlaid.graph.transform import substitute
from inlaid.partitioning.annotate import Annotated, Candidate, Claim, annotate
from inlaid.partitioning.assignment import by_priority, check_complete
from inlaid.partitioning.compose import Composed, compose, dissolve
from inlaid.passes.witness_sizes import size_binders, unshown_sizes
from inlaid.plugins import Accept, AcceptIf, Target
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, type_vars

REGION_TARGET = "target"
"""Attribute of a region's function that names its target."""
_PLAN = -1
"""Target number of control flow, which the executor runs."""


@dataclass(frozen=True)
class Placement:
    """Placement of the original function called `name`: its annotations, the chosen claims, which cover every call once, and the
    region name of each claim."""

    name: str
    annotated: Annotated
    claims: tuple[Claim, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True)
class Guard:
    """Run-time guard of a region whose target accepts it only under a condition. If the region `condition` returns false, the
    function `otherwise` computes the same results on other targets. `regions` are `condition` and the regions of `otherwise`."""

    region: str
    constraint: Dim
    condition: str
    otherwise: str
    regions: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Partitioned:
    """A partitioned module: `module` has the entry and one function per region; `placements` are by original function; `regions`
    maps region names to target numbers, including regions of guards."""

    module: ir.Module
    placements: tuple[Placement, ...]
    regions: dict[str, int]
    guards: tuple[Guard, ...] = ()

    def __repr__(self) -> str:
        return f"<Partitioned {len(self.regions)} regions: {', '.join(self.regions)}; {self.module!r}>"


Placer = Callable[[str, Annotated], tuple[Claim, ...]]
"""Placement algorithm: chooses claims that cover every call of a function once, given the function's name and annotations."""


def first_come(name: str, annotated: Annotated) -> tuple[Claim, ...]:
    """Place by priority."""
    return by_priority(annotated)


def partition(module: ir.Module, candidates: Sequence[Candidate], entry: str = "main", placer: Placer = first_come) -> Partitioned:
    """Partition the entry of a module and the functions that it calls by name. Raises `CompileError` for an operator that no target
    accepts."""
    placements = []
    functions = dict(module.functions)
    regions = _Regions()
    for name in called(module, entry):
        functions[name], placement = _outline_function(name, module[name], candidates, regions, placer)
        placements.append(placement)
    outlined_module = ir.Module({**functions, **regions.functions, **regions.fallbacks})
    return Partitioned(outlined_module, tuple(placements), regions.targets, tuple(regions.guards))


def _outline_function(
    name: str, function: ir.Function, candidates: Sequence[Candidate], regions: _Regions, placer: Placer
) -> tuple[ir.Function, Placement]:
    """Outline the regions of a function."""
    annotated = annotate(function, candidates)
    claims = placer(name, annotated)
    check_complete(annotated, claims, candidates)
    outline = _Outline(compose(function, claims), candidates, regions)
    body = outline.run()
    if body is not function.body:
        function = replace(function, body=body)
    return function, Placement(name, annotated, claims, tuple(outline.region_names[id(claim)] for claim in claims))


def called(module: ir.Module, entry: str) -> tuple[str, ...]:
    """Return the entry and all functions of the module that it calls by name, directly or indirectly."""
    function_names = [entry]
    for name in function_names:
        names = (expr.name for expr in ir.post_order(module[name]) if isinstance(expr, ir.GlobalVar))
        function_names += [other for other in dict.fromkeys(names) if other not in function_names and other in module.functions]
    return tuple(function_names)


@dataclass(frozen=True)
class _Regions:
    """Regions under construction: functions and target numbers by name, and guards. `fallbacks` has the functions `otherwise` of
    the guards, by name."""

    functions: dict[str, ir.Function] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    fallbacks: dict[str, ir.Function] = field(default_factory=dict)


@dataclass
class _Unit:
    """A unit of emission: a region's calls, or a single control flow node."""

    level: int
    target: int
    members: list[ir.Expr] = field(default_factory=list)


@dataclass(frozen=True)
class _Result:
    """A member's value that is used outside its region: the whole value, or `items` of a tuple. `readers` are the expressions that
    extract the items, if nothing else reads the tuple."""

    member: ir.Expr
    items: tuple[int, ...] | None = None
    readers: tuple[ir.TupleItem, ...] = ()


class _Outline:
    def __init__(self, composed: Composed, candidates: Sequence[Candidate], regions: _Regions) -> None:
        self.function = composed.function
        self.claims = composed.claims
        self.composites = composed.composites
        self.region_names: dict[int, str] = {}
        self.candidates = candidates
        self.scopes: Scopes = analyse(self.function)
        self.regions = regions
        self.memo: dict[int, ir.Expr] = {}
        self.level: dict[int, int] = {}
        self.witnesses = self._witnesses()
        self.consumers = self._consumers()

    def run(self) -> ir.Expr:
        """Build the new body of the function."""
        return self._scope(self.scopes.body(self.function))

    def _consumers(self) -> dict[int, list[tuple[int, ir.Expr]]]:
        """Return the readers of each expression: pairs of (id of the reader in the scope of the expression, reader).

        A reader inside a nested scope counts as the control flow node that owns the scope. A `Let` reads its value, outside of
        every region. An operator also reads the tensors that show the sizes in its attributes.
        """
        consumers: dict[int, list[tuple[int, ir.Expr]]] = {}
        for expr in ir.post_order(self.function):
            if isinstance(expr, ir.Let):
                children = [(self._value(expr.value), self.scopes.expr_scopes.get(id(expr)))]
            else:
                children = [
                    (child, self.scopes.inner.get((id(expr), index)) or self.scopes.expr_scopes.get(id(expr)))
                    for index, child in enumerate(map(self._value, ir.children(expr)))
                ]
                children += [(_whole(witness), self.scopes.expr_scopes[id(expr)]) for witness in self.witnesses.get(id(expr), ())]
            for child, scope in children:
                if is_leaf(child) or id(child) not in self.scopes.expr_scopes:
                    continue
                expr_scope = self.scopes.expr_scopes[id(child)]
                reader: ir.Expr = expr
                while scope is not None and scope is not expr_scope:
                    assert scope.owner is not None
                    reader, scope = scope.owner, scope.parent
                consumers.setdefault(id(child), []).append((id(reader), expr))
        return consumers

    def _witnesses(self) -> dict[int, list[ir.Expr]]:
        """Return tensors that show the computed sizes which the attributes of calls read and their operands do not show, by the ids
        of the calls. The regions of the calls take them as inputs, so they are of dtypes that the targets accept."""
        unshown = {id(expr): sizes for expr in ir.post_order(self.function) if (sizes := self._unshown_sizes(expr))}
        binders = size_binders(self.function, self.scopes) if unshown else {}
        witnesses: dict[int, list[ir.Expr]] = {}
        for reader, sizes in unshown.items():
            home, dtypes = self.scopes.expr_scopes[reader], self.candidates[self.claims[reader].target].dtypes
            for size in sorted(sizes, key=repr):
                for binder, scope in binders.get(size, ()):
                    assert isinstance(binder.type, TensorType)
                    if common_scope(scope, home) is scope and binder.type.dtype.name in dtypes:
                        witnesses.setdefault(reader, []).append(binder)
                        break
        return witnesses

    def _unshown_sizes(self, expr: ir.Expr) -> frozenset[arith.Expr]:
        if id(expr) not in self.claims:
            return frozenset()
        assert isinstance(expr, ir.Call)
        if not isinstance(expr.callee, ir.GlobalVar):
            return unshown_sizes(expr)
        parts = ir.post_order(self.composites[expr.callee.name])
        return frozenset().union(*map(unshown_sizes, parts)) - shown_sizes(*(arg.type for arg in expr.args))

    def _value(self, expr: ir.Expr) -> ir.Expr:
        """Resolve an expression: the body of a `Let`, the value of a bound variable, otherwise the expression itself."""
        while True:
            if isinstance(expr, ir.Let):
                expr = expr.body
            elif id(expr) in self.scopes.bound:
                expr = self.scopes.bound[id(expr)]
            else:
                return expr

    def _resolve(self, expr: ir.Expr, member_ids: Collection[int] = ()) -> ir.Expr:
        """Return the expression to translate. A bound variable whose value is computed outside of the region is returned itself,
        since its value stays outside; any other expression is resolved."""
        while isinstance(expr, ir.Let):
            expr = expr.body
        value = self._value(expr)
        stays = isinstance(value, (ir.Call, ir.If, ir.Loop)) and id(value) not in member_ids
        return expr if stays else value

    def _children(self, expr: ir.Expr, member_ids: Collection[int] = ()) -> tuple[ir.Expr, ...]:
        return tuple(self._resolve(child, member_ids) for child in ir.children(expr))

    def _levels(self, scope: Scope) -> list[_Unit]:
        """Return the units of a scope, in a valid order of execution."""
        level = self.level
        target: dict[int, int] = {}
        units: dict[tuple[int, int], _Unit] = {}
        order: list[_Unit] = []
        reads: dict[int, list[int]] = {}
        for expr in scope.order:
            for reader, _ in self.consumers.get(id(expr), ()):
                reads.setdefault(reader, []).append(id(expr))
        for expr in scope.order:
            sources = reads.get(id(expr), ())
            if isinstance(expr, ir.Let):
                continue
            if isinstance(expr, (ir.Tuple, ir.TupleItem)):
                # A tuple or tuple item has the greatest level of its operands, and their target at that level. If they have several
                # targets there, it has none, and its readers get a greater level.
                level[id(expr)] = max((level[source] for source in sources), default=-1)
                latest = {target[source] for source in sources if level[source] == level[id(expr)]}
                target[id(expr)] = latest.pop() if len(latest) == 1 else _PLAN
                continue
            claim = self.claims.get(id(expr))
            expr_target = _PLAN if claim is None else claim.target
            expr_level = 0
            for source in sources:
                stays = expr_target != _PLAN and target[source] == expr_target
                expr_level = max(expr_level, level[source] + (0 if stays else 1))
            level[id(expr)], target[id(expr)] = expr_level, expr_target
            if expr_target == _PLAN:
                order.append(_Unit(expr_level, expr_target, [expr]))
            else:
                unit = units.get((expr_level, expr_target))
                if unit is None:
                    unit = units[expr_level, expr_target] = _Unit(expr_level, expr_target)
                    order.append(unit)
                unit.members.append(expr)
        return sorted(order, key=lambda unit: unit.level)

    def _scope(self, scope: Scope) -> ir.Expr:
        for unit in self._levels(scope):
            if unit.target == _PLAN:
                for expr in unit.members:
                    self._control(expr)
            else:
                self._region(unit, scope)
        return self._with_bindings(scope, self._mapped(scope.result))

    def _with_bindings(self, scope: Scope, result: ir.Expr) -> ir.Expr:
        """Wrap the result of a scope in its bindings, the earliest computed outermost."""
        bindings = []
        for expr in scope.order:
            if isinstance(expr, ir.Let):
                value = self._value(expr.value)
                is_local = self.scopes.expr_scopes.get(id(value)) is scope
                bindings.append((self.level[id(value)] if is_local else -1, expr, value))
        for _, binding, value in sorted(bindings, key=lambda item: -item[0]):
            result = ir.let(binding.var, self._mapped(value), result, binding.span)
        return result

    def _mapped(self, expr: ir.Expr) -> ir.Expr:
        """Return an expression after outlining. Tuples and tuple items are rebuilt on demand."""
        expr = self._resolve(expr)
        stack = [expr]
        while stack:
            top = stack[-1]
            if is_leaf(top):
                self.memo.setdefault(id(top), top)
            if id(top) in self.memo:
                stack.pop()
                continue
            if not isinstance(top, (ir.Tuple, ir.TupleItem)):
                raise CompileError(f"{top!r} is used before it is computed", node=str(top.span or ""))
            children = self._children(top)
            missing_children = [child for child in children if id(child) not in self.memo]
            if missing_children:
                stack.extend(missing_children)
                continue
            self.memo[id(top)] = ir.rebuild(top, tuple(self.memo[id(child)] for child in children))
            stack.pop()
        return self.memo[id(expr)]

    def _control(self, expr: ir.Expr) -> None:
        match expr:
            case ir.Function():
                body = self._scope(self.scopes.body(expr))
                self.memo[id(expr)] = ir.rebuild(expr, (body,))
            case ir.If(condition=condition):
                then, otherwise = (self._scope(branch) for branch in self.scopes.branches(expr))
                self.memo[id(expr)] = ir.rebuild(expr, (self._mapped(condition), then, otherwise))
            case ir.Loop() | ir.Call():
                self.memo[id(expr)] = ir.rebuild(expr, tuple(self._mapped(child) for child in ir.children(expr)))
            case _:
                raise CompileError(f"cannot partition {expr!r}", node=str(expr.span or ""))

    def _region(self, unit: _Unit, scope: Scope) -> None:
        member_ids = {id(member) for member in unit.members}
        inner: dict[int, ir.Expr] = {}
        params: dict[int, ir.Var] = {}
        args: list[ir.Expr] = []
        for member in unit.members:
            for expr in self._translation_order(member, inner, member_ids):
                if isinstance(expr, ir.Constant):
                    inner[id(expr)] = expr
                elif isinstance(expr, ir.GlobalVar) and expr.name in self.composites:
                    inner[id(expr)] = self.composites[expr.name]
                elif id(expr) in member_ids or self._passes_on(expr, member_ids):
                    children = tuple(inner[id(child)] for child in self._children(expr, member_ids))
                    inner[id(expr)] = ir.rebuild(expr, children)
                else:
                    outer = self._mapped(expr)
                    if id(outer) not in params:
                        params[id(outer)] = ir.var(f"p{len(params)}", expr.type, span=expr.span)
                        args.append(outer)
                    inner[id(expr)] = params[id(outer)]
        for witness in (witness for member in unit.members for witness in self.witnesses.get(id(member), ())):
            if id(_whole(witness)) not in member_ids and id(outer := self._mapped(witness)) not in params:
                params[id(outer)] = ir.var(f"p{len(params)}", witness.type, span=witness.span)
                args.append(outer)
        results = _with_witnesses(unit, self._results(unit, member_ids))
        self._emit(unit, results, inner, list(params.values()), args, scope)

    def _emit(
        self,
        unit: _Unit,
        results: list[_Result],
        inner: dict[int, ir.Expr],
        params: list[ir.Var],
        args: list[ir.Expr],
        scope: Scope,
    ) -> None:
        """Add a region's function, and replace the members' values by its results."""
        target = self.candidates[unit.target].target
        name = f"region{len(self.regions.functions)}_{target.kind}"
        fields = []
        for result in results:
            value = inner[id(result.member)]
            fields += [value] if result.items is None else [ir.tuple_item(value, index) for index in result.items]
        body = ir.tuple_(fields)
        for source in _size_sources(body, params, self.candidates[unit.target], _surrounding_params(scope)):
            params.append(ir.var(f"p{len(params)}", source.type, span=source.span))
            args.append(source)
        constraints = _constraints_on_computed_sizes(scope, unit, params)
        function = ir.function(params, body, ((REGION_TARGET, str(target)),), constraints=constraints)
        self.regions.functions[name] = function
        self.regions.targets[name] = unit.target
        self.region_names.update((id(self.claims[id(member)]), name) for member in unit.members)
        call: ir.Expr = call_by_name(name, function, args)
        conditions = [
            verdict.constraint
            for verdict in (self.claims[id(member)].verdict for member in unit.members)
            if isinstance(verdict, AcceptIf)
        ]
        if conditions:
            call = self._guarded(call, name, functools.reduce(arith.logical_and, conditions), args)
        position = 0
        for member, indices, readers in ((result.member, result.items, result.readers) for result in results):
            count = 1 if indices is None else len(indices)
            items = [ir.tuple_item(call, position + number, member.span) for number in range(count)]
            position += count
            if readers:
                assert indices is not None
                self.memo.update({id(reader): items[indices.index(reader.index)] for reader in readers})
            else:
                self.memo[id(member)] = items[0] if indices is None else ir.tuple_(items, member.span)

    def _guarded(self, call: ir.Expr, name: str, constraint: Dim, args: list[ir.Expr]) -> ir.Expr:
        """Build a branch: the region if the constraint holds, otherwise its calls on targets that accept them in any case."""
        region = self.regions.functions[name]
        region_count = len(self.regions.functions)
        condition, otherwise = f"{name}_condition", f"{name}_otherwise"
        fallback, _ = _outline_function(otherwise, dissolve(_copy(region)), self.candidates, self.regions, _unconditional)
        self.regions.fallbacks[otherwise] = fallback
        positions = [
            position for position, param in enumerate(region.params) if arith.free_vars(constraint) & type_vars(param.type)
        ]
        self._add_condition(condition, [region.params[position] for position in positions], constraint)
        self.regions.guards.append(Guard(name, constraint, condition, otherwise, tuple(self.regions.functions)[region_count:]))
        holds = call_by_name(condition, self.regions.functions[condition], [args[position] for position in positions])
        return ir.if_(ir.tuple_item(holds, 0), call, call_by_name(otherwise, fallback, args))

    def _add_condition(self, name: str, values: Sequence[ir.Var], constraint: Dim) -> None:
        """Add a region that evaluates a constraint on dimensions of the given values, on the first target that accepts it."""
        value = ops.cast(ops.reshape(ops.sizes(dims=(constraint,)), shape=()), dtype="bool")
        calls = [expr for expr in ir.post_order(value) if isinstance(expr, ir.Call)]
        accepts = [all(isinstance(candidate.judge(call), Accept) for call in calls) for candidate in self.candidates]
        if not any(accepts):
            raise CompileError(f"no target can evaluate the condition {constraint!r}")
        number = accepts.index(True)
        params = tuple(ir.var(param.name, param.type) for param in values)
        attrs = ((REGION_TARGET, str(self.candidates[number].target)),)
        self.regions.functions[name] = ir.function(params, ir.tuple_([value]), attrs)
        self.regions.targets[name] = number

    def _results(self, unit: _Unit, member_ids: set[int]) -> list[_Result]:
        """Return the members' values that are used outside the region: whole values, or items of tuples."""
        results = []
        for member in unit.members:
            if not isinstance(member.type, TupleType):
                if self._escapes(member, member_ids):
                    results.append(_Result(member))
                continue
            users = {id(user): user for _, user in self.consumers.get(id(member), ())}
            readers = [user for user in users.values() if isinstance(user, ir.TupleItem)]
            if len(readers) < len(users):
                if self._escapes(member, member_ids):
                    results.append(_Result(member, tuple(range(len(member.type.fields)))))
                continue
            readers = [reader for reader in readers if self._escapes(reader, member_ids)]
            if readers:
                results.append(_Result(member, tuple(sorted({reader.index for reader in readers})), tuple(readers)))
        return results

    def _escapes(self, expr: ir.Expr, member_ids: set[int]) -> bool:
        """Test whether anything outside the region reads a value, directly or through tuples."""
        stack = [expr]
        while stack:
            for _, user in self.consumers.get(id(stack.pop()), ()):
                if isinstance(user, (ir.Tuple, ir.TupleItem)):
                    stack.append(user)
                elif id(user) not in member_ids:
                    return True
        return False

    def _passes_on(self, expr: ir.Expr, member_ids: set[int]) -> bool:
        """Test whether a region includes an expression as wiring: any tuple, and items of values that the region computes."""
        while isinstance(expr, ir.TupleItem):
            expr = self._value(expr.tuple)
        return isinstance(expr, ir.Tuple) or id(expr) in member_ids

    def _translation_order(self, member: ir.Expr, translated: dict[int, ir.Expr], member_ids: set[int]) -> list[ir.Expr]:
        """Return the expressions to translate for a member: its operands, with wiring inside the region, then the member."""
        order: list[ir.Expr] = []
        visited: set[int] = set()
        stack: list[tuple[ir.Expr, bool]] = [(member, False)]
        while stack:
            expr, expanded = stack.pop()
            if id(expr) in translated or (id(expr) in visited and not expanded):
                continue
            visited.add(id(expr))
            if expanded or not (expr is member or self._passes_on(expr, member_ids)):
                order.append(expr)
            else:
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(self._children(expr, member_ids)))
        return order


def _whole(witness: ir.Expr) -> ir.Expr:
    """Return the expression that computes a witness: a call, a control flow node or a parameter."""
    return witness.tuple if isinstance(witness, ir.TupleItem) else witness


def _surrounding_params(scope: Scope) -> list[ir.Var]:
    """Return the parameters of the functions around a scope, the innermost first."""
    params: list[ir.Var] = []
    enclosing: Scope | None = scope
    while enclosing is not None:
        if isinstance(enclosing.owner, ir.Function):
            params += enclosing.owner.params
        enclosing = enclosing.parent
    return params


def _size_sources(body: ir.Expr, params: Sequence[ir.Var], candidate: Candidate, surrounding: Sequence[ir.Var]) -> list[ir.Var]:
    """Return the `surrounding` parameters that a region needs as further inputs. Their shapes determine sizes that attributes in
    the region read, but no input of the region determines. Parameters of a dtype that the target rejects are skipped."""
    attr_sizes = frozenset().union(*(attr_vars(expr.attrs) for expr in ir.post_order(body) if isinstance(expr, ir.Call)))
    missing = attr_sizes - shown_sizes(*(param.type for param in params))
    sources: list[ir.Var] = []
    for param in surrounding:
        if not isinstance(param.type, TensorType) or param.type.dtype.name not in candidate.dtypes:
            continue
        if missing & shown_sizes(param.type):
            sources.append(param)
            missing -= shown_sizes(param.type)
    return sources


def _constraints_on_computed_sizes(scope: Scope | None, unit: _Unit, params: Sequence[ir.Var]) -> tuple[Constraint, ...]:
    """Return the constraints of the scope and its enclosing scopes that a region must check itself: it computes at least one of the
    sizes in them, and its parameters determine the others."""
    computed = frozenset().union(*map(ir.introduced_sizes, unit.members))
    region_sizes = computed.union(*(type_vars(param.type) for param in params))
    constraints: dict[Dim, Constraint] = {}
    while scope is not None and computed:
        for item in owner_constraints(scope):
            if item.sizes <= region_sizes and not computed.isdisjoint(item.sizes):
                constraints.setdefault(item.condition, item)
        scope = scope.parent
    return tuple(constraints.values())


def _with_witnesses(unit: _Unit, results: list[_Result]) -> list[_Result]:
    """Add results that show the existential sizes which occur in the results, but are not an extent of any. Readers of the results
    need these sizes, and the plan takes sizes from shapes."""
    types = [type_ for result in results for type_ in _result_types(result)]
    hidden = (
        frozenset().union(*map(type_vars, types)).difference(*(type_.shape for type_ in types if isinstance(type_, TensorType)))
    )
    results_by_member = {id(result.member): result for result in results}
    for member in unit.members if any(map(ir.existential, hidden)) else ():
        fields = member.type.fields if isinstance(member.type, TupleType) else (member.type,)
        for size in sorted(hidden & ir.introduced_sizes(member), key=repr):
            index = next((n for n, field in enumerate(fields) if isinstance(field, TensorType) and size in field.shape), None)
            if index is None:
                continue  # a composite hides the size
            result = results_by_member.get(id(member), _Result(member, () if isinstance(member.type, TupleType) else None))
            items = result.items if result.items is None or index in result.items else (*result.items, index)
            results_by_member[id(member)] = _Result(member, items, result.readers)
    return list(results_by_member.values())


def _result_types(result: _Result) -> tuple[Type, ...]:
    type_ = result.member.type
    return tuple(type_.fields[index] for index in result.items or ()) if isinstance(type_, TupleType) else (type_,)


def _unconditional(name: str, annotated: Annotated) -> tuple[Claim, ...]:
    return by_priority(annotated, conditions=False)


def call_by_name(name: str, function: ir.Function, args: Sequence[ir.Expr]) -> ir.Call:
    """Build a call of a function of the module by name."""
    type_ = FunctionType(tuple(param.type for param in function.params), function.body.type)
    return ir.Call(function.body.type, None, ir.global_var(name, type_), tuple(args), Attrs())


def outlined(function: ir.Function, target: Target) -> ir.Function:
    """Mark a function as a region of a target, with a tuple as result."""
    body = function.body
    fields = [ir.tuple_item(body, n) for n in range(len(body.type.fields))] if isinstance(body.type, TupleType) else [body]
    return ir.function(function.params, ir.tuple_(fields), ((REGION_TARGET, str(target)),))


def _copy(function: ir.Function) -> ir.Function:
    """Copy a function, with new parameters, and without the mark of a region."""
    params = tuple(ir.var(param.name, param.type, span=param.span) for param in function.params)
    return ir.function(params, substitute(function.body, dict(zip(function.params, params, strict=True))))


def region_conditions(function: ir.Function, args: Sequence[ir.Expr] = ()) -> tuple[Constraint, ...]:
    """Return the conditions on sizes that the operators of a region state and that cannot be proved. `args` are the operands of the
    region's call. Conditions of a loop's body hold only if the loop runs an iteration; if its number of iterations is not known
    before it runs, they must always hold."""
    scopes = analyse(dissolve(function))
    constants = {id(param): arg for param, arg in zip(function.params, args, strict=False) if isinstance(arg, ir.Constant)}
    conditions_by_dim: dict[Dim, Constraint] = {}
    counts: dict[int, Dim | None] = {}
    for scope in (scopes.root, *scopes.inner.values()):
        for loop in (expr for expr in scope.order if isinstance(expr, ir.Loop)):
            trips, condition = (constants.get(id(item), item) for item in (loop.trip_count, loop.condition))
            counts[id(loop.body)] = iterations(loop.body, loop.scanned, trips, condition)
        conditions = call_conditions(
            expr for expr in scope.order if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator)
        )
        enclosing: Scope | None = scope
        while enclosing is not None and conditions:
            count = counts.get(id(enclosing.owner))
            conditions = conditions if count is None else weakened(conditions, count)
            enclosing = enclosing.parent
        for item in conditions:
            conditions_by_dim.setdefault(item.condition, item)
    return tuple(conditions_by_dim.values())


def region_operators(function: ir.Function) -> list[ir.Call]:
    """Return the operator calls of a region, including operators in composites, in order of execution."""
    body = dissolve(function).body
    return [e for e in ir.post_order(body) if isinstance(e, ir.Call) and isinstance(e.callee, Operator)]
