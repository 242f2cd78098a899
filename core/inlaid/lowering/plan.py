"""The plan of a partitioned model: what the executor does between and around regions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from inlaid.arith import Dim
from inlaid.artifact.plan import Assert, Bind, Branch, Call, Instruction, Invoke, Loop, Move, Plan, Value, Wait
from inlaid.artifact.touched import read_by, written_by
from inlaid.errors import CompileError, Unsupported
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import Scope, Scopes, analyse
from inlaid.graph.unify import upper_bound
from inlaid.lowering.signature import bound_bytes
from inlaid.lowering.takeover import Aliases, with_takeovers
from inlaid.memory.planner import Lifetime, plan
from inlaid.ops.plan import bind_size
from inlaid.types import FunctionType, TensorType, TupleType, Type, type_vars

MAIN = "main"
"""The plan of the entry."""
OUTPUT_NAMES = "outputs"
"""Attribute of the entry that holds the names of its results as a JSON list."""


@dataclass(frozen=True)
class Plans:
    """The plans of a model by name, entry "main", and the weights that they read directly."""

    plans: Mapping[str, Plan]
    constants: Mapping[str, np.ndarray[Any, Any]]


def build_plans(
    module: ir.Module,
    regions: Aliases,
    entry: str = "main",
    donate: Collection[str] = (),
    devices: Mapping[str, str] = MappingProxyType({}),
) -> Plans:
    """Plans for the entry of a partitioned module, which is called "main", for the functions that it calls by name, and for the
    branches, loop bodies and closures in them. `regions` names the functions that are artifacts, with their aliases. Inputs of the
    entry named in `donate` may be updated in place. `devices` gives the target of each region that works in a device's memory: a
    value is moved there once. Raises `CompileError` for what an executor cannot do: functions as values, and
    operators outside of regions."""
    work = _Work(module, regions, devices, {entry: MAIN}, [entry])
    for name in work.waiting:
        function = module[name]
        builder = _Builder(analyse(function), work)
        first = name == entry
        owned = {id(param) for param in function.params if first and param.name in donate}
        names = output_names(function) if first else ()
        builder.build(work.names[name], builder.scopes.body(function), tuple(function.params), names, owned)
    return Plans(work.plans, work.constants)


@dataclass
class _Work:
    """What the builders of all functions share: the names of the plans of functions, and what is made so far. `waiting` lists
    functions in the order in which they are met."""

    module: ir.Module
    regions: Aliases
    devices: Mapping[str, str]
    names: dict[str, str]
    waiting: list[str]
    plans: dict[str, Plan] = field(default_factory=dict)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def plan_of(self, name: str) -> str:
        """The name of the plan of a function of the module. Raises `CompileError` where there is no such function."""
        if name not in self.module.functions:
            raise CompileError(f"the module has no function @{name}")
        if name not in self.names:
            self.names[name] = f"{MAIN}.{name}"
            self.waiting.append(name)
        return self.names[name]


def output_names(function: ir.Function) -> tuple[str, ...]:
    """The names of a function's results: those that its frontend noted, or output0, output1, ..."""
    count = len(_flat(function.body.type))
    noted = function.attr(OUTPUT_NAMES)
    names = tuple(json.loads(noted)) if noted else ()
    return names if len(names) == count else tuple(f"output{number}" for number in range(count))


def _flat(type_: Type) -> tuple[Type, ...]:
    """The types of a value with tuples taken apart."""
    if isinstance(type_, TupleType):
        return tuple(part for item in type_.fields for part in _flat(item))
    return (type_,)


class _Builder:
    """Builds the plans of one function."""

    def __init__(self, scopes: Scopes, work: _Work) -> None:
        self.scopes = scopes
        self.work = work
        self.closures: dict[int, str] = {}
        self.captures = self._captures()

    def _captures(self) -> dict[int, dict[int, ir.Expr]]:
        """Per scope (by id), the expressions from outside that it and the scopes in it read."""
        found: dict[int, dict[int, ir.Expr]] = {}
        owners: dict[int, Scope] = {}
        for scope in self.scopes.inner.values():
            if isinstance(scope.owner, ir.Function):
                owners.update((id(param), scope) for param in scope.owner.params)

        def note(scope: Scope, read: ir.Expr) -> bool:
            """A scope reads an expression: so do those around it, as far as where the expression belongs. True for news."""
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
        # Whoever calls a function that stands further out hands it what it reads.
        news = True
        while news:
            news = False
            for scope, body in shared:
                for read in list(found.get(id(body), {}).values()):
                    news |= note(scope, read)
        return found

    def _direct(self, expr: ir.Expr) -> list[ir.Expr]:
        """The children of an expression that stand in its own scope."""
        return [child for index, child in enumerate(ir.children(expr)) if (id(expr), index) not in self.scopes.inner]

    def captured(self, *scopes: Scope) -> tuple[ir.Expr, ...]:
        """What scopes read from outside, in a fixed order."""
        found: dict[int, ir.Expr] = {}
        for scope in scopes:
            found.update(self.captures.get(id(scope), {}))
        return tuple(found.values())

    def build(
        self,
        name: str,
        scope: Scope,
        params: tuple[ir.Expr, ...],
        names: tuple[str, ...] = (),
        owned: Collection[int] = (),
    ) -> None:
        """Add the plan of a scope. `owned` are the ids of the parameters whose buffers it may give away."""
        self.work.plans[name] = _ScopePlan(self, name, scope).run(params, names, owned)


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

    def run(self, params: tuple[ir.Expr, ...], names: tuple[str, ...], owned: Collection[int]) -> Plan:
        inputs: list[tuple[str, int]] = []
        for param in params:
            label = param.name if isinstance(param, ir.Var) else "captured"
            parts = [self._add(_value("input", type_)) for type_ in _flat(param.type)]
            self.numbers[id(param)] = tuple(parts)
            inputs += [(label if len(parts) == 1 else f"{label}.{index}", part) for index, part in enumerate(parts)]
        for expr in self.scope.order:
            if id(expr) not in self.numbers and not isinstance(expr, ir.Function):
                self.numbers[id(expr)] = self._visit(expr)
        results = self._results(self._numbers(self.scope.result))
        names = names or tuple(f"output{number}" for number in range(len(results)))
        donated = {number for param in params if id(param) in owned for number in self.numbers[id(param)]}
        self.instructions = _apart(self.instructions, self.values, results)
        self.instructions = _with_waits(self.instructions, self.values, results)
        self.instructions = with_takeovers(self.instructions, self.values, results, donated, self.builder.work.regions)
        arenas = self._place()
        outputs = tuple(zip(names, results, strict=True))
        return Plan(self.name, tuple(self.values), tuple(inputs), outputs, tuple(self.instructions), arenas.pop("", 0), arenas)

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
        """The value itself, or the one before it that is the same."""
        key = (value.name, value.device)
        if key not in self.constants:
            self.constants[key] = self._add(value)
        return self.constants[key]

    def _at(self, numbers: Sequence[int], device: str = "") -> tuple[int, ...]:
        """The values in the memory of a device or, where it is "", of the host: themselves, or copies, of which there is one."""
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
            target = self._add(replace(value, storage="arena", name="", device=device))
            self.moved[number, device] = target
            self.instructions.append(Move(number, target))
        return self.moved[number, device]

    def _new(self, type_: Type, device: str = "") -> tuple[int, ...]:
        """Values for a result, in the arena where their size is bounded."""
        made = [replace(_value(_storage(part), part), device=device) for part in _flat(type_)]
        if device and any(value.storage != "arena" for value in made):
            raise Unsupported(f"{device} has memory of its own, for tensors of bounded sizes alone, and gives {type_!r}")
        return tuple(map(self._add, made))

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
                device = work.devices.get(name, "")
                outputs = self._new(expr.type, device)
                given = self._all(args, device)
                self.instructions.append(
                    Invoke(name, given, outputs) if name in work.regions else Call(work.plan_of(name), given, outputs)
                )
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

    def _all(self, exprs: tuple[ir.Expr, ...], device: str = "") -> tuple[int, ...]:
        return self._at([number for expr in exprs for number in self._numbers(expr)], device)

    def _planned(self, expr: ir.Call, operator: Operator) -> tuple[int, ...]:
        """An operator that is an instruction of the plan."""
        given, outputs = self._all(expr.args), self._new(expr.type)
        message, node = expr.attrs.message, str(expr.span or "")
        if operator is bind_size:
            self.instructions.append(Bind(given[0], outputs[0], message, node, expr.attrs.element))
        else:
            self.instructions.append(Assert(given[0] if given else None, outputs, message, node))
        return outputs

    def _nested(self, scope: Scope, params: tuple[ir.Expr, ...], hint: str, owned: Collection[int] = ()) -> str:
        plans = self.builder.work.plans
        name = f"{self.name}.{hint}{len(plans)}"
        plans[name] = Plan(name, (), (), (), ())  # Reserve the name before the plans inside take theirs.
        self.builder.build(name, scope, params, owned=owned)
        return name

    def _if(self, expr: ir.If, condition: int) -> tuple[int, ...]:
        then, otherwise = self.builder.scopes.branches(expr)
        captured = self.builder.captured(then, otherwise)
        outputs = self._new(expr.type)
        self.instructions.append(
            Branch(
                condition,
                self._nested(then, captured, "then"),
                self._nested(otherwise, captured, "else"),
                self._all(captured),
                outputs,
            )
        )
        return outputs

    def _closure(self, expr: ir.Call, callee: ir.Function, args: tuple[ir.Expr, ...]) -> tuple[int, ...]:
        """A call of a function that is written out: what it reads from around it is given to it as well."""
        scope = self.builder.scopes.body(callee)
        captured = self.builder.captured(scope)
        known = self.builder.closures
        if id(callee) not in known:
            known[id(callee)] = self._nested(scope, (*callee.params, *captured), "closure")
        outputs = self._new(expr.type)
        self.instructions.append(Call(known[id(callee)], (*self._all(args), *self._all(captured)), outputs))
        return outputs

    def _loop(self, expr: ir.Loop) -> tuple[int, ...]:
        if not isinstance(expr.body, ir.Function):
            raise CompileError("the body of a loop must be a function, not a computed one", node=str(expr.span or ""))
        scope = self.builder.scopes.body(expr.body)
        captured = self.builder.captured(scope)
        outputs = self._new(expr.type)
        states = expr.body.params[1 : 1 + len(expr.state)]
        self.instructions.append(
            Loop(
                self._nested(scope, (*expr.body.params, *captured), "body", owned=frozenset(map(id, states))),
                None if expr.trip_count is None else self._all((expr.trip_count,))[0],
                None if expr.condition is None else self._all((expr.condition,))[0],
                self._all(expr.state),
                self._all(expr.scanned),
                self._all(captured),
                outputs,
            )
        )
        return outputs

    def _results(self, numbers: tuple[int, ...]) -> list[int]:
        """Every result as a value that belongs to the caller: a kernel writes there where it can, else a copy does."""
        results: list[int] = []
        for number in numbers:
            value = self.values[number]
            if value.device and value.storage != "constant" and (number, "") not in self.moved:
                target = self._add(replace(value, storage="output", device=""))
                self.moved[number, ""] = target
                self.instructions.append(Move(number, target))
                results.append(target)
                continue
            (number,) = self._at((number,))
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
        """Give values their places; the sizes of the arenas, by device."""
        lives: dict[int, tuple[int, int]] = {}
        owners: dict[int, int] = {}
        for step, instruction in enumerate(self.instructions):
            if isinstance(instruction, Move) and instruction.donate and self.values[instruction.source].storage == "arena":
                owners[instruction.target] = owners[instruction.source]
            apart = isinstance(instruction, Move) and instruction.apart
            for number in (*read_by(instruction), *written_by(instruction)):
                if self.values[number].storage == "arena":
                    owner = owners.setdefault(number, number)
                    first, last = lives.get(owner, (step, step))
                    leaves = apart and self.values[number].device and number in read_by(instruction)
                    lives[owner] = (first, max(last, len(self.instructions) if leaves else step))
        offsets: dict[int, Dim] = {}
        sizes: dict[str, Dim] = {}
        for device in dict.fromkeys(self.values[number].device for number in lives):
            own = {number: life for number, life in lives.items() if self.values[number].device == device}
            arena = plan([Lifetime(_bytes(self.values[number]), *life) for number, life in own.items()])
            offsets.update(zip(own, arena.offsets, strict=True))
            sizes[device] = arena.size
        for number, owner in owners.items():
            self.values[number] = replace(self.values[number], offset=offsets[owner])
        return sizes


def _apart(instructions: Sequence[Instruction], values: Sequence[Value], results: Sequence[int]) -> list[Instruction]:
    """The instructions, with copies beside kernels: of inputs to devices, which come first, and of what leaves a device as a result
    of the plan."""
    first: list[Instruction] = []
    rest: list[Instruction] = []
    for item in instructions:
        if isinstance(item, Move) and values[item.source].storage == "input" and values[item.target].device:
            first.append(replace(item, apart=True))
        elif isinstance(item, Move) and values[item.source].device and item.target in results:
            rest.append(replace(item, apart=True))
        else:
            rest.append(item)
    return [*first, *rest]


def _with_waits(instructions: Sequence[Instruction], values: Sequence[Value], results: Sequence[int]) -> list[Instruction]:
    """The instructions, with a `Wait` in front of each that reads what a device may not have given yet, and at the end."""
    found: list[Instruction] = []
    pending: dict[int, str] = {}

    def wait(read: Sequence[int]) -> None:
        for device in dict.fromkeys(pending[number] for number in read if number in pending):
            found.append(Wait(device))
            for number in [number for number, of in pending.items() if of == device]:
                del pending[number]

    for instruction in instructions:
        wait(read_by(instruction))
        found.append(instruction)
        if isinstance(instruction, Move) and values[instruction.source].device and not values[instruction.target].device:
            pending[instruction.target] = values[instruction.source].device
    wait(results)
    return found


def _bytes(value: Value) -> Dim:
    assert value.dtype is not None
    return bound_bytes(value.shape, value.dtype.bytes)


def _storage(type_: Type) -> Any:
    """Where a result lives: the arena, unless its size has no bound before the run, or it is no array of numbers."""
    if not isinstance(type_, TensorType) or type_.dtype.kind == "string":
        return "host"
    sizes = (size for size in type_vars(type_) if ir.existential(size))
    return "dynamic" if any(upper_bound(size) is None for size in sizes) else "arena"


def _value(storage: Any, type_: Type, name: str = "") -> Value:
    if not isinstance(type_, TensorType) or type_.dtype.kind == "string":
        shown = type_.shape if storage == "input" and isinstance(type_, TensorType) else ()
        return Value(storage if storage in ("constant", "input") else "host", None, shown, name)
    return Value(storage, type_.dtype, type_.shape, name)
