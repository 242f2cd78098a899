"""The plan of one scope: a function, or a branch, loop body or closure in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import scope_constraints
from inlaid.graph.scopes import Scope, analyse
from inlaid.lowering.plans.aliases import with_aliases
from inlaid.lowering.plans.body import PlanBody, flat, has_known_shape, make_value, result_storage, sole_device
from inlaid.lowering.plans.captures import Captures
from inlaid.lowering.plans.module import HOST, MAIN, ModulePlans, Sides, io_devices
from inlaid.lowering.plans.moves import overlapped, with_donations, with_waits
from inlaid.ops.plan import bind_size
from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Invoke, Loop, Move, Plan
from inlaid_runtime.artifact.touched import read_by, renumbered
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, type_vars


class FunctionScopes:
    """The scopes of a function, what they capture and require, and the plans of its closures."""

    def __init__(self, function: ir.Function, module_plans: ModulePlans) -> None:
        self.scopes = analyse(function)
        self.module_plans = module_plans
        self.closures: dict[tuple[int, bool], str] = {}
        self.captures = Captures(self.scopes)
        self.constraints = scope_constraints(self.scopes)


@dataclass
class ScopePlan:
    """Builds the plan of a scope: `begin`, then `finish`. `numbers` maps expressions by id to their values. Between the two,
    `readers`, `makers` and `sides` tell the memories in which inputs and results are used."""

    function: FunctionScopes
    name: str
    scope: Scope
    body: PlanBody = field(default_factory=PlanBody)
    numbers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    inputs: list[tuple[str, int]] = field(default_factory=list)
    params: tuple[ir.Expr, ...] = ()
    result: tuple[int, ...] = ()

    def begin(self, params: tuple[ir.Expr, ...]) -> None:
        """Emit the instructions, with all inputs in host memory."""
        self.params = params
        for param in params:
            label = param.name if isinstance(param, ir.Var) else "captured"
            parts = [self.body.add(make_value("input", type_)) for type_ in flat(param.type)]
            self.numbers[id(param)] = tuple(parts)
            self.inputs += [(label if len(parts) == 1 else f"{label}.{index}", part) for index, part in enumerate(parts)]
        for expr in self.scope.order:
            if id(expr) not in self.numbers and not isinstance(expr, ir.Function):
                self.numbers[id(expr)] = self._visit(expr)
        self.result = self._numbers(self.scope.result)

    def readers(self, outputs: Sequence[str] = ()) -> list[set[str]]:
        """Collect for each input the memories in which it is read. `outputs` are the devices of the results."""
        memories: dict[int, set[str]] = {number: set() for _, number in self.inputs}
        for item in self.body.instructions:
            for number in read_by(item):
                if number in memories:
                    memories[number].add(self.body.values[item.target].device if isinstance(item, Move) else "")
        for number, device in zip(self.result, outputs, strict=False):
            if number in memories:
                memories[number].add(device)
        return [memories[number] if self.body.values[number].dtype is not None else {""} for _, number in self.inputs]

    def makers(self) -> list[set[str]]:
        """Collect per result the memories that produce it: none for a constant; for an input, the memories that read it."""
        readers = dict(zip((number for _, number in self.inputs), self.readers(), strict=True))
        memories = []
        for number in self.result:
            value = self.body.values[number]
            if value.dtype is None:
                memories.append({""})
            elif value.storage == "input":
                memories.append(readers[number])
            else:
                memories.append(set() if value.storage == "constant" else {value.device})
        return memories

    def sides(self) -> Sides:
        """Choose the devices of a plan's inputs and outputs by the memories that read and produce them."""
        outputs = [sole_device(memories) for memories in self.makers()]
        return [sole_device(reader_memories) for reader_memories in self.readers(outputs)], outputs

    def finish(self, sides: Sides, names: tuple[str, ...] = (), owned: Collection[int] = ()) -> Plan:
        """Build the plan with inputs and outputs on the devices `sides`. `owned` are ids of parameters whose buffers it may
        donate."""
        body = self.body
        arriving = body.arriving([number for _, number in self.inputs], sides[0])
        results = body.outputs(self.result, sides[1] or [""] * len(self.result))
        names = names or tuple(f"output{number}" for number in range(len(results)))
        donated = {number for param in self.params if id(param) in owned for number in self.numbers[id(param)]}
        if self.name == MAIN:
            body.instructions = overlapped(body.instructions, body.values, results)
        body.instructions = with_waits(body.instructions, body.values, results)
        body.instructions = with_aliases(body.instructions, body.values, results, donated, self.function.module_plans.regions)
        body.instructions = with_donations(body.instructions, donated)
        arenas = body.assign_offsets()
        order = [number for number in range(len(body.values)) if number not in arriving]
        renumber = {old: new for new, old in enumerate(order)}.__getitem__
        return Plan(
            self.name,
            tuple(body.values[old] for old in order),
            tuple((label, renumber(old)) for label, old in self.inputs),
            tuple((name, renumber(old)) for name, old in zip(names, results, strict=True)),
            tuple(renumbered(item, renumber) for item in body.instructions) if arriving else tuple(body.instructions),
            arenas.pop("", 0),
            arenas,
            self.function.constraints.get(self.scope, ()),
        )

    def _numbers(self, expr: ir.Expr) -> tuple[int, ...]:
        expr = self.function.scopes.resolve(expr)
        if isinstance(expr, ir.Constant) and id(expr) not in self.numbers:
            name = expr.digest()[:32]
            self.function.module_plans.constants[name] = expr.data
            self.numbers[id(expr)] = (self.body.constant(make_value("constant", expr.type, name)),)
        if isinstance(expr, ir.Function) or isinstance(expr.type, FunctionType):
            raise CompileError("the executor cannot run functions as values", node=str(expr.span or "") or None)
        return self.numbers[id(expr)]

    def _visit(self, expr: ir.Expr) -> tuple[int, ...]:
        match expr:
            case ir.Tuple(fields=fields):
                return tuple(number for item in fields for number in self._numbers(item))
            case ir.TupleItem(tuple=inner, index=index):
                assert isinstance(inner.type, TupleType)
                start = sum(len(flat(item)) for item in inner.type.fields[:index])
                return self._numbers(inner)[start : start + len(flat(expr.type))]
            case ir.Call(callee=ir.GlobalVar(name=name), args=args):
                module_plans = self.function.module_plans
                if name not in module_plans.regions:
                    return self._call(expr, module_plans.plan_name(name), self._each(args), module_plans.sides(name))
                device = module_plans.devices.get(name, "")
                outputs = self.body.result(expr.type, [device] * len(flat(expr.type)))
                self.body.instructions.append(Invoke(name, self._operands(args, device), outputs))
                return outputs
            case ir.Call(callee=Operator() as operator) if operator.planned:
                return self._planned(expr, operator)
            case ir.Call(callee=ir.Function() as callee, args=args):
                return self._closure(expr, callee, args)
            case ir.Let(body=body):
                return self._numbers(body)
            case ir.If(condition=condition):
                return self._if(expr, self._operands((condition,))[0])
            case ir.Loop():
                return self._loop(expr)
        raise CompileError(f"the executor cannot run {expr!r}", node=str(expr.span or ""))

    def _each(self, exprs: Sequence[ir.Expr]) -> list[int]:
        return [number for expr in exprs for number in self._numbers(expr)]

    def _operands(self, exprs: tuple[ir.Expr, ...], device: str = "") -> tuple[int, ...]:
        return self.body.at(self._each(exprs), device)

    def _call(self, expr: ir.Call, plan: str, arguments: Sequence[int], sides: Sides) -> tuple[int, ...]:
        inputs, outputs = self.body.spread(arguments, sides[0]), self.body.result(expr.type, sides[1])
        self.body.instructions.append(Call(plan, inputs, outputs))
        return outputs

    def _planned(self, expr: ir.Call, operator: Operator) -> tuple[int, ...]:
        """Emit an operator that is a plan instruction."""
        inputs, outputs = self._operands(expr.args), self.body.result(expr.type)
        message, node = expr.attrs.message, str(expr.span or "")
        if operator is bind_size:
            self.body.instructions.append(Bind(inputs[0], outputs[0], message, node, expr.attrs.element))
        else:
            self.body.instructions.append(Assert(inputs[0] if inputs else None, outputs, message, node))
        return outputs

    def _nested(self, scope: Scope, params: tuple[ir.Expr, ...], hint: str) -> ScopePlan:
        """Begin the plan of a nested scope under a new name."""
        plans = self.function.module_plans.plans
        name = f"{self.name}.{hint}{len(plans)}"
        plans[name] = Plan(name, (), (), (), ())  # Reserve the name before the plans inside take theirs.
        scope_plan = ScopePlan(self.function, name, scope)
        scope_plan.begin(params)
        return scope_plan

    def _if(self, expr: ir.If, condition: int) -> tuple[int, ...]:
        captured = self.function.captures.outer_exprs(*(scopes := self.function.scopes.branches(expr)))
        branches = [self._nested(scope, captured, hint) for scope, hint in zip(scopes, ("then", "else"), strict=True)]
        output_devices = [sole_device(*memories) for memories in zip(*(branch.makers() for branch in branches), strict=True)]
        input_devices = [
            sole_device(*device_names)
            for device_names in zip(*(branch.readers(output_devices) for branch in branches), strict=True)
        ]
        for branch in branches:
            self.function.module_plans.plans[branch.name] = branch.finish((input_devices, output_devices))
        inputs, outputs = self.body.spread(self._each(captured), input_devices), self.body.result(expr.type, output_devices)
        self.body.instructions.append(Branch(condition, branches[0].name, branches[1].name, inputs, outputs))
        return outputs

    def _closure(self, expr: ir.Call, callee: ir.Function, args: tuple[ir.Expr, ...]) -> tuple[int, ...]:
        """Emit a call of a closure; its captured values are passed as additional arguments."""
        scope, module_plans = self.function.scopes.body(callee), self.function.module_plans
        captured = self.function.captures.outer_exprs(scope)
        closures, key = self.function.closures, (id(callee), has_known_shapes(expr))
        if key not in closures:
            scope_plan = self._nested(scope, (*callee.params, *captured), "closure")
            module_plans.plans[scope_plan.name] = scope_plan.finish(scope_plan.sides() if key[1] else HOST)
            closures[key] = scope_plan.name
        plan = closures[key]
        return self._call(expr, plan, self._each((*args, *captured)), io_devices(module_plans.plans[plan]))

    def _loop(self, expr: ir.Loop) -> tuple[int, ...]:
        if not isinstance(expr.body, ir.Function):
            raise CompileError(f"the body of a loop must be a function literal, found {expr.body!r}", node=str(expr.span or ""))
        scope = self.function.scopes.body(expr.body)
        captured = self.function.captures.outer_exprs(scope)
        body = self._nested(scope, (*expr.body.params, *captured), "body")
        state, scanned, captured_numbers = self._each(expr.state), self._each(expr.scanned), self._each(captured)
        producers, readers, count = body.makers(), body.readers(), len(state)
        static_shapes = _static_parts(expr.type)
        state_devices = [
            sole_device(producers[1 + index], readers[1 + index])
            if static_shapes[index] and has_known_shape(self.body.values[number])
            else ""
            for index, number in enumerate(state)
        ]
        stacked_devices = [
            sole_device(memories) if fits else ""
            for memories, fits in zip(producers[1 + count :], static_shapes[count:], strict=True)
        ]
        output_devices = ["", *state_devices, *stacked_devices]
        inner_devices = [sole_device(memories) for memories in body.readers(output_devices)[1 + count :]]
        slice_devices = [
            device if has_known_shape(self.body.values[source]) else ""
            for device, source in zip(inner_devices, scanned, strict=False)
        ]
        input_devices = ["", *state_devices, *slice_devices, *inner_devices[len(scanned) :]]
        states = frozenset(map(id, expr.body.params[1 : 1 + len(expr.state)]))
        self.function.module_plans.plans[body.name] = body.finish((input_devices, output_devices), owned=states)
        carries, scans = self.body.spread(state, state_devices), self.body.spread(scanned, slice_devices)
        captured_inputs = self.body.spread(captured_numbers, input_devices[1 + count + len(scanned) :])
        trips = None if expr.trip_count is None else self._operands((expr.trip_count,))[0]
        condition = None if expr.condition is None else self._operands((expr.condition,))[0]
        outputs = self.body.result(expr.type, output_devices[1:])
        rows = [self.body.values[number] for number in (*outputs[:count], *scans, *outputs[count:])]
        shapes = [value.shape if index < count else value.shape[1:] for index, value in enumerate(rows)]
        pairs = zip(rows, shapes, strict=True)
        spare_buffers = [self.body.add(replace(row, storage="arena", name="", shape=shape)) for row, shape in pairs if row.device]
        self.body.instructions.append(
            Loop(body.name, trips, condition, carries, scans, captured_inputs, outputs, tuple(spare_buffers))
        )
        return outputs


def _static_parts(type_: Type) -> list[bool]:
    """Test for each part of a value whether its shape is known before the run, so that a loop may carry or stack it on a device."""
    return [has_known_shape(make_value(result_storage(part), part)) for part in flat(type_)]


def has_known_shapes(call: ir.Call) -> bool:
    """Test whether the shapes of all operands and results of a call are known before the run."""
    parts = [part for value in (call, *call.args) for part in flat(value.type)]
    return not any(isinstance(part, TensorType) and any(map(ir.existential, type_vars(part))) for part in parts)
