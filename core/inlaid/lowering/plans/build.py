"""Build the execution plans of a partitioned model: the executor's instructions around its regions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import held_constraints
from inlaid.graph.scopes import Scope, Scopes, analyse
from inlaid.graph.unify import upper_bound
from inlaid.lowering.plans.aliases import Aliases, with_aliases
from inlaid.lowering.plans.moves import overlapped, with_donations, with_waits
from inlaid.lowering.signature import bound_bytes
from inlaid.ops.plan import bind_size
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Instruction, Invoke, Loop, Move, Plan, Storage, Value
from inlaid_runtime.artifact.touched import lifetimes, read_by, renumbered
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.memory.planner import Lifetime, plan
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, type_vars

MAIN = "main"
"""Name of the entry's plan."""
OUTPUT_NAMES = "outputs"
"""Function attribute of the entry: the names of its results as a JSON list."""


@dataclass(frozen=True)
class Plans:
    """The plans of a model by name (the entry is "main"), and the weights that they read directly."""

    plans: Mapping[str, Plan]
    constants: Mapping[str, np.ndarray[Any, Any]]


def build_plans(
    module: ir.Module,
    regions: Aliases,
    entry: str = "main",
    donate: Collection[str] = (),
    devices: Mapping[str, str] = MappingProxyType({}),
) -> Plans:
    """Build the plans of a partitioned module: "main" for the entry, and one per global function, branch, loop body and closure.

    `regions` maps the functions that are artifacts to their aliases. Inputs of the entry named in `donate` may be updated in place.
    `devices` gives the target of each region that works in device memory: a value is copied there once. Plans of branches, loop
    bodies and functions have inputs and outputs in a device's memory if only that device reads or writes them; a function that is
    called before its plan is built (recursion) has them all in host memory. Raises `CompileError` for functions as values and
    operators outside of regions."""
    work = _Work(module, regions, devices, {entry: MAIN}, [entry])
    if devices:
        work.plans[MAIN] = Plan(MAIN, (), (), (), ())  # so that it comes first
        work.waiting = _callees_first(module, entry, regions, work.early)
        work.names = {name: work.names.get(name, f"{MAIN}.{name}") for name in work.waiting}
    for name in work.waiting:
        function = module[name]
        builder = _Builder(analyse(function), work)
        first = name == entry
        owned = {id(param) for param in function.params if first and param.name in donate}
        names = output_names(function) if first else ()
        body = _ScopePlan(builder, work.names[name], builder.scopes.body(function))
        body.begin(tuple(function.params))
        sides = _HOST if first or name in work.early else body.sides()
        work.plans[work.names[name]] = body.finish(sides, names, owned)
        work.made.add(name)
    return Plans(work.plans, work.constants)


def _callees_first(module: ir.Module, entry: str, regions: Collection[str], early: set[str]) -> list[str]:
    """List the functions that the entry runs as plans, callees first except for recursion. Adds to `early` the functions with
    operands or results whose sizes are known only at run time."""
    found: list[str] = []
    seen: set[str] = set()
    stack = [(entry, False)]
    while stack:
        name, ready = stack.pop()
        if ready:
            found.append(name)
        elif name not in seen and name in module.functions:
            seen.add(name)
            stack.append((name, True))
            for expr in ir.post_order(module[name]):
                if isinstance(expr, ir.Call) and isinstance(expr.callee, ir.GlobalVar) and expr.callee.name not in regions:
                    stack.append((expr.callee.name, False))
                    early |= set() if _passes(expr) else {expr.callee.name}
    return found


def _passing(type_: Type) -> list[bool]:
    """Test for each part of a value whether its shape is known before the run, so that a loop may carry or stack it on a device."""
    return [_finished(_value(_storage(part), part)) for part in _flat(type_)]


def _passes(call: ir.Call) -> bool:
    """Test whether the shapes of all operands and results of a call are known before the run."""
    parts = [part for value in (call, *call.args) for part in _flat(value.type)]
    return not any(isinstance(part, TensorType) and any(map(ir.existential, type_vars(part))) for part in parts)


_Sides = tuple[Sequence[str], Sequence[str]]
"""Devices of the inputs, then of the outputs, of a plan; "" is the host."""
_HOST: _Sides = ((), ())
"""All inputs and outputs on the host."""


def _sole(*found: Collection[str]) -> str:
    """Return the only device in collections of memories; "" if they contain no device or several."""
    devices = {device for some in found for device in some}
    return devices.pop() if len(devices) == 1 else ""


@dataclass
class _Work:
    """State shared by the builders of all functions. `names` maps functions to plan names. `waiting` lists the functions in
    planning order. `made` are functions whose plans exist. `early` are functions with all inputs and outputs on the host, since
    they are called before they are planned or with tensors of unknown sizes."""

    module: ir.Module
    regions: Aliases
    devices: Mapping[str, str]
    names: dict[str, str]
    waiting: list[str]
    plans: dict[str, Plan] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)

    def sides(self, name: str) -> _Sides:
        """Return the devices of the inputs and outputs of a function's plan."""
        if name in self.made:
            return sides_of(self.plans[self.names[name]])
        self.early.add(name)
        return _HOST

    def plan_of(self, name: str) -> str:
        """Return the name of a function's plan. Raises `CompileError` if the module lacks the function."""
        if name not in self.module.functions:
            listed = ", ".join(f"@{each}" for each in self.module.functions)
            raise CompileError(f"the module has no function @{name}; it has {listed}")
        if name not in self.names:
            self.names[name] = f"{MAIN}.{name}"
            self.waiting.append(name)
        return self.names[name]


def sides_of(plan: Plan) -> _Sides:
    """Return the devices of the inputs and outputs of a plan."""
    inputs, outputs = ([plan.values[number].device for _, number in side] for side in (plan.inputs, plan.outputs))
    return inputs, outputs


def output_names(function: ir.Function) -> tuple[str, ...]:
    """Return the names of a function's results: the frontend's names, or output0, output1, ..."""
    count = len(_flat(function.body.type))
    noted = function.attr(OUTPUT_NAMES)
    names = tuple(json.loads(noted)) if noted else ()
    return names if len(names) == count else tuple(f"output{number}" for number in range(count))


def _flat(type_: Type) -> tuple[Type, ...]:
    """Flatten a tuple type."""
    if isinstance(type_, TupleType):
        return tuple(part for item in type_.fields for part in _flat(item))
    return (type_,)


class _Builder:
    """Builds the plans of one function."""

    def __init__(self, scopes: Scopes, work: _Work) -> None:
        self.scopes = scopes
        self.work = work
        self.closures: dict[tuple[int, bool], str] = {}
        self.captures = self._captures()
        self.constraints = held_constraints(scopes)

    def _captures(self) -> dict[int, dict[int, ir.Expr]]:
        """Collect, by id of each scope, the outer expressions that the scope and its nested scopes read."""
        found: dict[int, dict[int, ir.Expr]] = {}
        owners: dict[int, Scope] = {}
        for scope in self.scopes.inner.values():
            if isinstance(scope.owner, ir.Function):
                owners.update((id(param), scope) for param in scope.owner.params)

        def note(scope: Scope, read: ir.Expr) -> bool:
            """Record that a scope, and each scope between it and the expression's scope, reads the expression. True if any read is
            new."""
            home = owners.get(id(read)) if isinstance(read, ir.Var) else self.scopes.of.get(id(read))
            inside: Scope | None = scope if home is not None else None
            news = False
            while inside is not None and inside is not home:
                known = found.setdefault(id(inside), {})
                news |= id(read) not in known
                known[id(read)] = read
                inside = inside.parent
            return news

        shared: list[tuple[Scope, Scope]] = []
        for scope in self.scopes.inner.values():
            readers = [child for expr in scope.order for child in self._direct(expr)]
            for child in map(self.scopes.resolve, [*readers, scope.result]):
                if not isinstance(child, ir.Function):
                    note(scope, child)
                elif self.scopes.of[id(child)] is not scope:
                    shared.append((scope, self.scopes.body(child)))
        # The caller of a closure from an outer scope passes it the captured values, so it reads them.
        news = True
        while news:
            news = False
            for scope, body in shared:
                for read in list(found.get(id(body), {}).values()):
                    news |= note(scope, read)
        return found

    def _direct(self, expr: ir.Expr) -> list[ir.Expr]:
        """Return the children of an expression that are in the same scope."""
        return [child for index, child in enumerate(ir.children(expr)) if (id(expr), index) not in self.scopes.inner]

    def captured(self, *scopes: Scope) -> tuple[ir.Expr, ...]:
        """Return the outer expressions that scopes read, in a fixed order."""
        found: dict[int, ir.Expr] = {}
        for scope in scopes:
            found.update(self.captures.get(id(scope), {}))
        return tuple(found.values())


@dataclass
class _ScopePlan:
    builder: _Builder
    name: str
    scope: Scope
    values: list[Value] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    numbers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[tuple[str, str], int] = field(default_factory=dict)
    moved: dict[tuple[int, str], int] = field(default_factory=dict)

    inputs: list[tuple[str, int]] = field(default_factory=list)
    params: tuple[ir.Expr, ...] = ()
    result: tuple[int, ...] = ()

    def begin(self, params: tuple[ir.Expr, ...]) -> None:
        """Emit the instructions, with all inputs in host memory."""
        self.params = params
        for param in params:
            label = param.name if isinstance(param, ir.Var) else "captured"
            parts = [self._add(_value("input", type_)) for type_ in _flat(param.type)]
            self.numbers[id(param)] = tuple(parts)
            self.inputs += [(label if len(parts) == 1 else f"{label}.{index}", part) for index, part in enumerate(parts)]
        for expr in self.scope.order:
            if id(expr) not in self.numbers and not isinstance(expr, ir.Function):
                self.numbers[id(expr)] = self._visit(expr)
        self.result = self._numbers(self.scope.result)

    def readers(self, outputs: Sequence[str] = ()) -> list[set[str]]:
        """Collect for each input the memories in which it is read. `outputs` are the devices of the results."""
        found: dict[int, set[str]] = {number: set() for _, number in self.inputs}
        for item in self.instructions:
            for number in read_by(item):
                if number in found:
                    found[number].add(self.values[item.target].device if isinstance(item, Move) else "")
        for number, device in zip(self.result, outputs, strict=False):
            if number in found:
                found[number].add(device)
        return [found[number] if self.values[number].dtype is not None else {""} for _, number in self.inputs]

    def makers(self) -> list[set[str]]:
        """Collect per result the memories that produce it: none for a constant; for an input, the memories that read it."""
        readers = dict(zip((number for _, number in self.inputs), self.readers(), strict=True))
        found = []
        for number in self.result:
            value = self.values[number]
            if value.dtype is None:
                found.append({""})
            elif value.storage == "input":
                found.append(readers[number])
            else:
                found.append(set() if value.storage == "constant" else {value.device})
        return found

    def sides(self) -> _Sides:
        """Choose the devices of a plan's inputs and outputs by the memories that read and produce them."""
        outputs = [_sole(made) for made in self.makers()]
        return [_sole(read) for read in self.readers(outputs)], outputs

    def finish(self, sides: _Sides, names: tuple[str, ...] = (), owned: Collection[int] = ()) -> Plan:
        """Build the plan with inputs and outputs on the devices `sides`. `owned` are ids of parameters whose buffers it may
        donate."""
        arriving: dict[int, int] = {}
        for (_, number), device in zip(self.inputs, sides[0], strict=False):
            if device:
                self.values[number] = replace(self.values[number], device=device)
                if (number, device) in self.moved:
                    arriving[self.moved.pop((number, device))] = number
        kept = [item for item in self.instructions if not (isinstance(item, Move) and item.target in arriving)]
        self.instructions = [renumbered(item, lambda number: arriving.get(number, number)) for item in kept]
        results = self._results(self.result, sides[1] or [""] * len(self.result))
        names = names or tuple(f"output{number}" for number in range(len(results)))
        donated = {number for param in self.params if id(param) in owned for number in self.numbers[id(param)]}
        if self.name == MAIN:
            self.instructions = overlapped(self.instructions, self.values, results)
        self.instructions = with_waits(self.instructions, self.values, results)
        self.instructions = with_aliases(self.instructions, self.values, results, donated, self.builder.work.regions)
        self.instructions = with_donations(self.instructions, donated)
        arenas = self._place()
        order = [number for number in range(len(self.values)) if number not in arriving]
        place = {old: new for new, old in enumerate(order)}.__getitem__
        return Plan(
            self.name,
            tuple(self.values[old] for old in order),
            tuple((label, place(old)) for label, old in self.inputs),
            tuple((name, place(old)) for name, old in zip(names, results, strict=True)),
            tuple(renumbered(item, place) for item in self.instructions) if arriving else tuple(self.instructions),
            arenas.pop("", 0),
            arenas,
            self.builder.constraints.get(self.scope, ()),
        )

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _numbers(self, expr: ir.Expr) -> tuple[int, ...]:
        expr = self.builder.scopes.resolve(expr)
        if isinstance(expr, ir.Constant) and id(expr) not in self.numbers:
            name = expr.digest()[:32]
            self.builder.work.constants[name] = expr.data
            self.numbers[id(expr)] = (self._constant(_value("constant", expr.type, name)),)
        if isinstance(expr, ir.Function) or isinstance(expr.type, FunctionType):
            raise CompileError("the executor cannot run functions as values", node=str(expr.span or "") or None)
        return self.numbers[id(expr)]

    def _constant(self, value: Value) -> int:
        """Add a constant; equal constants share a value."""
        key = (value.name, value.device)
        if key not in self.constants:
            self.constants[key] = self._add(value)
        return self.constants[key]

    def _at(self, numbers: Sequence[int], device: str = "") -> tuple[int, ...]:
        """Return the numbers of values in a device's memory ("": host). Values in other memories are copied there once."""
        return tuple(self._copied(number, device) for number in numbers)

    def _copied(self, number: int, device: str) -> int:
        value = self.values[number]
        if value.device == device:
            return number
        if value.storage == "constant":
            return self._constant(replace(value, device=device))
        if value.device and device:
            number = self._copied(number, "")
        if (number, device) not in self.moved:
            target = self._add(replace(value, storage=_array_storage(value.shape), name="", device=device))
            self.moved[number, device] = target
            self.instructions.append(Move(number, target))
        return self.moved[number, device]

    def _new(self, type_: Type, devices: Sequence[str] = ()) -> tuple[int, ...]:
        """Add values for a result, in the arena if their sizes are bounded. `devices` holds the device of each part; empty for the
        host."""
        parts = _flat(type_)
        found = []
        for part, device in zip(parts, devices or [""] * len(parts), strict=True):
            value = replace(_value(_storage(part), part), device=device)
            if device and value.storage == "host":
                raise Unsupported(f"results in the memory of {device} must be numeric tensors, found {type_!r}")
            found.append(self._add(value))
        return tuple(found)

    def _visit(self, expr: ir.Expr) -> tuple[int, ...]:
        match expr:
            case ir.Tuple(fields=fields):
                return tuple(number for item in fields for number in self._numbers(item))
            case ir.TupleItem(tuple=inner, index=index):
                assert isinstance(inner.type, TupleType)
                start = sum(len(_flat(item)) for item in inner.type.fields[:index])
                return self._numbers(inner)[start : start + len(_flat(expr.type))]
            case ir.Call(callee=ir.GlobalVar(name=name), args=args):
                work = self.builder.work
                if name not in work.regions:
                    return self._call(expr, work.plan_of(name), self._each(args), work.sides(name))
                device = work.devices.get(name, "")
                outputs = self._new(expr.type, [device] * len(_flat(expr.type)))
                self.instructions.append(Invoke(name, self._all(args, device), outputs))
                return outputs
            case ir.Call(callee=Operator() as operator) if operator.planned:
                return self._planned(expr, operator)
            case ir.Call(callee=ir.Function() as callee, args=args):
                return self._closure(expr, callee, args)
            case ir.Let(body=body):
                return self._numbers(body)
            case ir.If(condition=condition):
                return self._if(expr, self._all((condition,))[0])
            case ir.Loop():
                return self._loop(expr)
        raise CompileError(f"the executor cannot run {expr!r}", node=str(expr.span or ""))

    def _each(self, exprs: Sequence[ir.Expr]) -> list[int]:
        return [number for expr in exprs for number in self._numbers(expr)]

    def _all(self, exprs: tuple[ir.Expr, ...], device: str = "") -> tuple[int, ...]:
        return self._at(self._each(exprs), device)

    def _spread(self, numbers: Sequence[int], devices: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of values, each in the memory of its device; all on the host if `devices` is empty."""
        return tuple(map(self._copied, numbers, devices or [""] * len(numbers)))

    def _call(self, expr: ir.Call, plan: str, given: Sequence[int], sides: _Sides) -> tuple[int, ...]:
        inputs, outputs = self._spread(given, sides[0]), self._new(expr.type, sides[1])
        self.instructions.append(Call(plan, inputs, outputs))
        return outputs

    def _planned(self, expr: ir.Call, operator: Operator) -> tuple[int, ...]:
        """Emit an operator that is a plan instruction."""
        given, outputs = self._all(expr.args), self._new(expr.type)
        message, node = expr.attrs.message, str(expr.span or "")
        if operator is bind_size:
            self.instructions.append(Bind(given[0], outputs[0], message, node, expr.attrs.element))
        else:
            self.instructions.append(Assert(given[0] if given else None, outputs, message, node))
        return outputs

    def _nested(self, scope: Scope, params: tuple[ir.Expr, ...], hint: str) -> _ScopePlan:
        """Begin the plan of a nested scope under a new name."""
        plans = self.builder.work.plans
        name = f"{self.name}.{hint}{len(plans)}"
        plans[name] = Plan(name, (), (), (), ())  # Reserve the name before the plans inside take theirs.
        found = _ScopePlan(self.builder, name, scope)
        found.begin(params)
        return found

    def _if(self, expr: ir.If, condition: int) -> tuple[int, ...]:
        captured = self.builder.captured(*(scopes := self.builder.scopes.branches(expr)))
        branches = [self._nested(scope, captured, hint) for scope, hint in zip(scopes, ("then", "else"), strict=True)]
        given = [_sole(*found) for found in zip(*(branch.makers() for branch in branches), strict=True)]
        taken = [_sole(*read) for read in zip(*(branch.readers(given) for branch in branches), strict=True)]
        for branch in branches:
            self.builder.work.plans[branch.name] = branch.finish((taken, given))
        inputs, outputs = self._spread(self._each(captured), taken), self._new(expr.type, given)
        self.instructions.append(Branch(condition, branches[0].name, branches[1].name, inputs, outputs))
        return outputs

    def _closure(self, expr: ir.Call, callee: ir.Function, args: tuple[ir.Expr, ...]) -> tuple[int, ...]:
        """Emit a call of a closure; its captured values are passed as additional arguments."""
        scope, work = self.builder.scopes.body(callee), self.builder.work
        captured = self.builder.captured(scope)
        known, key = self.builder.closures, (id(callee), _passes(expr))
        if key not in known:
            made = self._nested(scope, (*callee.params, *captured), "closure")
            work.plans[made.name] = made.finish(made.sides() if key[1] else _HOST)
            known[key] = made.name
        plan = known[key]
        return self._call(expr, plan, self._each((*args, *captured)), sides_of(work.plans[plan]))

    def _loop(self, expr: ir.Loop) -> tuple[int, ...]:
        if not isinstance(expr.body, ir.Function):
            raise CompileError(f"the body of a loop must be a function literal, found {expr.body!r}", node=str(expr.span or ""))
        scope = self.builder.scopes.body(expr.body)
        captured = self.builder.captured(scope)
        body = self._nested(scope, (*expr.body.params, *captured), "body")
        state, scanned, around = self._each(expr.state), self._each(expr.scanned), self._each(captured)
        made, read, count = body.makers(), body.readers(), len(state)
        whole = _passing(expr.type)
        carried = [
            _sole(made[1 + place], read[1 + place]) if whole[place] and _finished(self.values[number]) else ""
            for place, number in enumerate(state)
        ]
        stacked = [_sole(found) if fits else "" for found, fits in zip(made[1 + count :], whole[count:], strict=True)]
        given = ["", *carried, *stacked]
        inner = [_sole(found) for found in body.readers(given)[1 + count :]]
        sliced = [device if _finished(self.values[of]) else "" for device, of in zip(inner, scanned, strict=False)]
        taken = ["", *carried, *sliced, *inner[len(scanned) :]]
        states = frozenset(map(id, expr.body.params[1 : 1 + len(expr.state)]))
        self.builder.work.plans[body.name] = body.finish((taken, given), owned=states)
        carries, scans = self._spread(state, carried), self._spread(scanned, sliced)
        around_it = self._spread(around, taken[1 + count + len(scanned) :])
        trips = None if expr.trip_count is None else self._all((expr.trip_count,))[0]
        going = None if expr.condition is None else self._all((expr.condition,))[0]
        outputs = self._new(expr.type, given[1:])
        rows = [self.values[number] for number in (*outputs[:count], *scans, *outputs[count:])]
        shapes = [value.shape if place < count else value.shape[1:] for place, value in enumerate(rows)]
        pairs = zip(rows, shapes, strict=True)
        spare = [self._add(replace(row, storage="arena", name="", shape=shape)) for row, shape in pairs if row.device]
        self.instructions.append(Loop(body.name, trips, going, carries, scans, around_it, outputs, tuple(spare)))
        return outputs

    def _results(self, numbers: Sequence[int], devices: Sequence[str]) -> list[int]:
        """Make every result an output value in the memory of its device: its producer writes it directly if possible; otherwise it
        is copied."""
        results: list[int] = []
        for number, device in zip(numbers, devices, strict=True):
            value = self.values[number]
            near = not value.device or not device
            if value.device != device and near and value.storage != "constant" and (number, device) not in self.moved:
                target = self._add(replace(value, storage="output", name="", device=device))
                self.moved[number, device] = target
                self.instructions.append(Move(number, target))
                results.append(target)
                continue
            (number,) = self._at((number,), device)
            value = self.values[number]
            if value.storage == "arena" and number not in results:
                self.values[number] = replace(value, storage="output")
            elif value.storage not in ("dynamic", "host") or number in results:
                target = self._add(replace(value, storage="output" if value.dtype is not None else "host", name=""))
                self.instructions.append(Move(number, target))
                number = target
            results.append(number)
        return results

    def _place(self) -> dict[str, Dim]:
        """Assign arena offsets; returns the arena sizes by device."""
        owners, lives = lifetimes(self.values, self.instructions, lambda value: value.storage == "arena")
        offsets: dict[int, Dim] = {}
        sizes: dict[str, Dim] = dict.fromkeys((value.device for value in self.values if value.device), 0)
        for device in dict.fromkeys(self.values[number].device for number in lives):
            own = {number: life for number, life in lives.items() if self.values[number].device == device}
            arena = plan([Lifetime(_bytes(self.values[number]), *life) for number, life in own.items()])
            offsets.update(zip(own, arena.offsets, strict=True))
            sizes[device] = arena.size
        for number, owner in owners.items():
            self.values[number] = replace(self.values[number], offset=offsets[owner])
        return sizes


def _finished(value: Value) -> bool:
    """Test whether a value's shape is known before the run, so that a loop may carry, scan or stack it on a device."""
    return value.dtype is not None and not any(ir.existential(size) for dim in value.shape for size in arith.free_vars(dim))


def _bytes(value: Value) -> Dim:
    assert value.dtype is not None
    return bound_bytes(value.shape, value.dtype.bytes)


def _storage(type_: Type) -> Storage:
    """Return the storage of a result: `_array_storage` for a numeric array, else the host."""
    return _array_storage(type_.shape) if isinstance(type_, TensorType) and type_.dtype.kind != "string" else "host"


def _array_storage(shape: tuple[Dim, ...]) -> Storage:
    """Return the storage of a numeric array: the arena, unless its size has no bound that is known before the run."""
    waiting = [size for dim in shape for size in arith.free_vars(dim) if ir.existential(size)]
    for size in waiting:
        bound = upper_bound(arith.unwrap(size))
        if bound is None:
            return "dynamic"
        waiting += filter(ir.existential, arith.free_vars(bound))  # a bound known only at run time, such as the k of top-k
    return "arena"


def _value(storage: Any, type_: Type, name: str = "") -> Value:
    if not isinstance(type_, TensorType) or type_.dtype.kind == "string":
        shown = type_.shape if storage == "input" and isinstance(type_, TensorType) else ()
        return Value(storage if storage in ("constant", "input") else "host", None, shown, name)
    return Value(storage, type_.dtype, type_.shape, name)
