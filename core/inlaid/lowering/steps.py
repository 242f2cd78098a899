"""A region as a list of steps over numbered buffers, for region-level code generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Match, Pattern, match
from inlaid.lowering.kernels.bodies import source_nodes
from inlaid.lowering.kernels.kernel import result_types
from inlaid.lowering.memory.scratch import plan_scope, scratch_bytes
from inlaid.lowering.signature import bound_bytes, build_signature
from inlaid.ops.composites import Quantized, quantization
from inlaid.plugins.contract import COMPOSITE, OpRule, Scratch
from inlaid.tensor.region import RegionBuffer
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.artifact import Artifact, Signature
from inlaid_runtime.errors import CompileError, PluginError, Unsupported
from inlaid_runtime.memory.planner import Lifetime, plan
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import MemoryScope, TensorType, dtype, from_numpy, type_vars

Array = np.ndarray[Any, Any]
UINT8 = dtype("uint8")


@dataclass(frozen=True, eq=False)
class Step:
    """An operator, or a composite under the name of its rule.

    `inputs` and `outputs` are buffer numbers: an operator's arguments in order, or the values other than constants that a composite
    reads. `parts` maps the capture names of the rule's pattern, or the operator's argument names, to expressions; "" is the whole.
    `nodes` are the source nodes. `scratch` are the numbers of the temporary buffers that the code generator asks for, in its order.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[str, ...]
    parts: Mapping[str, ir.Expr] = field(repr=False)
    _numbers: Mapping[int, int] = field(repr=False)
    _constant: Callable[[Array], int] = field(repr=False)
    scratch: tuple[int, ...] = ()

    def __contains__(self, part: object) -> bool:
        """Test whether an optional part of the pattern matched."""
        return part in self.parts

    def buffer(self, part: str) -> int:
        """Return the number of the buffer that holds a part. A constant part becomes a constant of the region. Raises
        `CompileError` for a part that is computed inside the step."""
        expr = self._part(part)
        if isinstance(expr, ir.Constant):
            return self._constant(expr.data)
        number = self._numbers.get(id(expr))
        if number is None:
            raise CompileError(f"part {part!r} of {self.name} must be an operand or a constant, but is computed inside the step")
        return number

    def array(self, part: str) -> Array:
        """Return the value of a constant part. Raises `CompileError` if the part is not constant."""
        expr = self._part(part)
        if not isinstance(expr, ir.Constant):
            raise CompileError(f"part {part!r} of {self.name} must be a constant, found {type(expr).__name__}")
        return expr.data

    def attrs(self, part: str = "") -> Any:
        """Return the attributes of a part. Raises `CompileError` if the part is not an operator call."""
        return self._call(part).attrs

    def quantized(self, part: str = "") -> Quantized:
        """Return the scale and zero point of a `quantize`, `dequantize` or `requantize` part. Raises `CompileError` if they are not
        constant."""
        parameters = quantization(self._call(part))
        if parameters is None:
            raise CompileError(f"part {part!r} of {self.name} must have a constant scale and zero point")
        return parameters

    def _part(self, part: str) -> ir.Expr:
        expr = self.parts.get(part)
        if expr is None:
            raise CompileError(f"unknown part {part!r} of {self.name}, expected one of {', '.join(filter(None, self.parts))}")
        return expr

    def _call(self, part: str) -> ir.Call:
        call = self._part(part)
        if not isinstance(call, ir.Call):
            raise CompileError(f"part {part!r} of {self.name} must be an operator call, found {type(call).__name__}")
        return call


@dataclass
class StepProgram:
    """A region: `steps` in execution order over placed `buffers`. `constants`, in order of number, are the constants that operators
    read, then those that a code generator adds; their buffers come last. `workspace` is the size in bytes of the arena, which the
    caller provides, aligned to 64 bytes. `scopes` has the bytes that scratch buffers use of each memory scope."""

    name: str
    signature: Signature
    steps: list[Step] = field(default_factory=list)
    buffers: list[RegionBuffer] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    workspace: Dim = 0
    scopes: dict[str, int] = field(default_factory=dict)
    _constant_numbers: dict[str, int] = field(default_factory=dict, repr=False)

    def constant(self, array: Array) -> int:
        """Add a constant array, such as repacked weights, to the region; returns its buffer number. Equal arrays share a buffer."""
        name = ir.constant(array).digest()[:32]
        if name not in self._constant_numbers:
            self._constant_numbers[name] = len(self.buffers)
            self.buffers.append(RegionBuffer(name, "constant", array.shape, from_numpy(array.dtype), len(self.constants)))
            self.constants[name] = array
        return self._constant_numbers[name]

    def artifact(self, format: str, format_version: int, code: bytes) -> Artifact:
        """Build the region's artifact from its compiled code."""
        return Artifact(self.name, format, format_version, code, self.signature, self.constants, {"": self.workspace})


def convert_to_steps(
    name: str,
    function: ir.Function,
    rules: Sequence[OpRule],
    outside: ir.Function | None = None,
    inside: Callable[[TensorType], TensorType] = lambda type_: type_,
    scratch: Callable[[Step], Sequence[Scratch]] | None = None,
    scopes: Sequence[MemoryScope] = (),
) -> StepProgram:
    """Convert a region's function to steps for a target with these rules. Inputs and outputs are stored in the types of the
    function `outside` (None: `function` itself), values between steps in the types that `inside` returns. `scratch` returns the
    temporary buffers of a step, in the arena or in the target's memory `scopes`. Raises `Unsupported` for an operator that no rule
    names and for scratch that exceeds a scope, `PluginError` for invalid scratch, `CompileError` for an expression that is neither
    an operator call nor a composite of the rules."""
    outside = function if outside is None else outside
    defined = {size: None for expr in ir.post_order(function.body) for size in ir.introduced_sizes(expr)}
    program = StepProgram(name, build_signature(outside, tuple(defined)))  # type: ignore[arg-type]
    walk = _Walk(program, rules, inside)
    walk.run(function, outside)
    if scratch is not None:
        walk.add_scratch(scratch, scopes, frozenset(defined).union(*(type_vars(param.type) for param in function.params)))
    walk.plan_memory(scopes)
    # The bound of an input's existential size is not among the input's sizes, and the workspace may depend on it.
    program.signature = build_signature(outside, tuple(defined), arith.free_vars(program.workspace))  # type: ignore[arg-type]
    return program


class _Walk:
    """Builds a program. `lives` maps buffer numbers to the first and last step that use the buffer."""

    def __init__(
        self, program: StepProgram, rules: Sequence[OpRule], inside: Callable[[TensorType], TensorType] = lambda type_: type_
    ) -> None:
        self.program = program
        self.inside = inside
        self.patterns = [(rule.name, rule.pattern) for rule in rules if isinstance(rule.pattern, Pattern)]
        self.operators = {rule.pattern for rule in rules if isinstance(rule.pattern, str)}
        self.lives: dict[int, tuple[int, int]] = {}
        self.values: dict[int, tuple[int, ...]] = {}

    def run(self, function: ir.Function, outside: ir.Function) -> None:
        for number, (param, stored) in enumerate(zip(function.params, outside.params, strict=True)):
            self.values[id(param)] = tuple(self._add(param.name, type_, "input", number) for type_ in result_types(stored.type))
        for expr in ir.in_order(function.body):
            if id(expr) not in self.values:
                self.values[id(expr)] = self._value(expr)
        buffers = self.program.buffers
        outputs = zip(self.values[id(function.body)], result_types(outside.body.type), strict=True)
        for number, (result, stored_type) in enumerate(outputs):
            if buffers[result].storage != "arena":
                raise CompileError(
                    f"result {number} of region {self.program.name} must be computed in the region and differ from other results"
                )
            shape, dtype = stored_type.shape, stored_type.dtype
            buffers[result] = replace(buffers[result], storage="output", index=number, shape=shape, dtype=dtype)

    def _add(self, name: str, type_: TensorType, storage: Literal["input", "arena"] = "arena", index: int = 0) -> int:
        self.program.buffers.append(RegionBuffer(name, storage, type_.shape, type_.dtype, index))
        return len(self.program.buffers) - 1

    def _value(self, expr: ir.Expr) -> tuple[int, ...]:
        match expr:
            case ir.Tuple(fields=fields):
                return tuple(item for entry in fields for item in self.values[id(entry)])
            case ir.TupleItem(tuple=inner, index=index):
                return (self.values[id(inner)][index],)
            case ir.Constant():
                return (self.program.constant(expr.data),)
            case ir.Call(callee=Operator() as operator, args=args):
                if not self.operators & {operator.name, "*"}:
                    raise Unsupported(
                        "no rule of the target supports it", operator=operator.name, node=str(expr.span or "") or None
                    )
                parts = {"": expr, **dict(zip(operator.inputs, args, strict=False))}
                return self._step(operator.name, expr, parts, {})
            case ir.Call(callee=ir.Function() as function, args=args) if function.attr(COMPOSITE) is not None:
                outside = {id(param): self.values[id(arg)][0] for param, arg in zip(function.params, args, strict=True)}
                return self._step(str(function.attr(COMPOSITE)), expr, self._matched(function).captures, outside)
        raise CompileError(
            f"region {self.program.name} must consist of operators and composites, found {expr!r}", node=str(expr.span)
        )

    def _matched(self, function: ir.Function) -> Match:
        for name, pattern in self.patterns:
            composite = match(pattern, function.body) if name == function.attr(COMPOSITE) else None
            if composite is not None:
                return Match(composite.root, {"": composite.root, **composite.captures}, composite.calls)
        raise CompileError(
            f"no rule {function.attr(COMPOSITE)!r} of the target matches the composite", node=str(function.body.span)
        )

    def _step(self, name: str, call: ir.Call, parts: Mapping[str, ir.Expr], numbers: dict[int, int]) -> tuple[int, ...]:
        step = len(self.program.steps)
        inputs = tuple(number for arg in call.args for number in self.values[id(arg)])
        outputs = tuple(self._add(f"{name}{step}", self.inside(type_)) for type_ in result_types(call.type))
        for part in parts.values():
            if id(part) in self.values:
                numbers.setdefault(id(part), self.values[id(part)][0])
        for number in (*inputs, *outputs):
            self.lives[number] = (self.lives.get(number, (step,))[0], step)
        nodes = source_nodes(call, parts[""] if isinstance(call.callee, ir.Function) else ir.tuple_(()))
        self.program.steps.append(Step(name, inputs, outputs, nodes, parts, numbers, self.program.constant))
        return outputs

    def add_scratch(
        self, scratch: Callable[[Step], Sequence[Scratch]], scopes: Sequence[MemoryScope], sizes: frozenset[arith.Expr]
    ) -> None:
        """Add the temporary buffers of all steps. `sizes` are the dimensions of the region."""
        by_name = {scope.name: scope for scope in scopes}
        steps, buffers = self.program.steps, self.program.buffers
        for number, step in enumerate(steps):
            first = len(buffers)
            items = scratch(step)
            if not isinstance(items, Sequence):
                raise PluginError(f"scratch of step {step.name} must be a sequence of Scratch, got {items!r}", operator=step.name)
            for item in items:
                size = scratch_bytes(item, by_name, sizes, step.name, _nodes(step))
                self.lives[len(buffers)] = max(number - item.early, 0), number
                storage: Literal["arena", "scope"] = "scope" if item.scope else "arena"
                name = f"scratch{number}_{len(buffers) - first}"
                buffers.append(RegionBuffer(name, storage, (size,), UINT8, scope=item.scope))
            steps[number] = replace(step, scratch=tuple(range(first, len(buffers))))

    def plan_memory(self, scopes: Sequence[MemoryScope]) -> None:
        """Assign offsets in the arena and in memory scopes to buffers other than inputs, outputs and constants."""
        buffers = self.program.buffers
        numbers = [number for number, buffer in enumerate(buffers) if buffer.storage == "arena"]
        arena = plan([Lifetime(bound_bytes(buffers[n].shape, buffers[n].dtype.bytes), *self.lives[n]) for n in numbers])
        for number, offset in zip(numbers, arena.offsets, strict=True):
            buffers[number] = replace(buffers[number], offset=offset)
        self.program.workspace = arena.size
        steps = [(step.name, _nodes(step)) for step in self.program.steps]
        for scope in scopes:
            numbers = [number for number, buffer in enumerate(buffers) if buffer.storage == "scope" and buffer.scope == scope.name]
            if numbers:
                offsets, peak = plan_scope(scope, [Lifetime(buffers[n].shape[0], *self.lives[n]) for n in numbers], steps)
                self.program.scopes[scope.name] = peak
                for number, start in zip(numbers, offsets, strict=True):
                    buffers[number] = replace(buffers[number], offset=start)


def _nodes(step: Step) -> str:
    return ", ".join(step.nodes)
