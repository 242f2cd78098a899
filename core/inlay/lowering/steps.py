"""A region as a list of steps over numbered buffers: what a region-level code generator walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlay.arith import Dim
from inlay.artifact import Artifact, Signature
from inlay.errors import CompileError
from inlay.graph import ir
from inlay.graph.operator import Operator
from inlay.graph.pattern import Match, Pattern, match
from inlay.lowering.kernel import result_types
from inlay.lowering.region import in_order, source_nodes
from inlay.lowering.signature import bound_bytes, signature_of
from inlay.memory.planner import Lifetime, plan
from inlay.ops.composites import Quantised, quantisation
from inlay.plugins.contract import COMPOSITE, OpRule
from inlay.tensor.region import RegionBuffer
from inlay.types import TensorType

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Step:
    """One thing to run: an operator, or a composite, under the name of its rule.

    `inputs` and `outputs` are numbers of buffers: those of an operator's arguments in order, or of what a composite reads from
    outside of it, constants excepted. Parts are found by the names that the rule's pattern gives them, or that the operator gives
    its arguments; "" is the whole. `nodes` are the source nodes.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[str, ...]
    parts: Mapping[str, ir.Expr] = field(repr=False)
    numbers: Mapping[int, int] = field(repr=False)

    def __contains__(self, part: object) -> bool:
        """Whether a part of the pattern took part."""
        return part in self.parts

    def buffer(self, part: str) -> int:
        """The number of the buffer that holds a part: something from outside, or a constant. Raises `CompileError`."""
        number = self.numbers.get(id(self._part(part)))
        if number is None:
            raise CompileError(f"{part!r} of {self.name} is computed inside of it, and in no buffer")
        return number

    def array(self, part: str) -> Array:
        """The value of a part that is a constant. Raises `CompileError` where it is none."""
        found = self._part(part)
        if not isinstance(found, ir.Constant):
            raise CompileError(f"{part!r} of {self.name} is no constant")
        return found.data

    def attrs(self, part: str = "") -> Any:
        """The attributes of a part that is an operator's call. Raises `CompileError` where it is none."""
        return self._call(part).attrs

    def quantised(self, part: str = "") -> Quantised:
        """The parameters of a part that is a `quantize`, `dequantize` or `requantize`. Raises `CompileError` where they are no
        constants."""
        found = quantisation(self._call(part))
        if found is None:
            raise CompileError(f"{part!r} of {self.name} has no constant scale")
        return found

    def _part(self, part: str) -> ir.Expr:
        found = self.parts.get(part)
        if found is None:
            raise CompileError(f"{self.name} has no part {part!r}: it has {', '.join(filter(None, self.parts))}")
        return found

    def _call(self, part: str) -> ir.Call:
        found = self._part(part)
        if not isinstance(found, ir.Call):
            raise CompileError(f"{part!r} of {self.name} is no operator")
        return found


@dataclass(frozen=True)
class StepProgram:
    """A region: `steps` run in order, over `buffers` that each have their place. `constants` are in the order of their numbers;
    `workspace` is the bytes of arena that the caller provides, aligned to 64."""

    name: str
    steps: tuple[Step, ...]
    buffers: tuple[RegionBuffer, ...]
    signature: Signature
    constants: Mapping[str, Array]
    workspace: Dim = 0

    def artifact(self, format: str, format_version: int, code: bytes, constants: Mapping[str, Array] | None = None) -> Artifact:
        """The region as compiled code, with its own constants where no others are given."""
        kept = self.constants if constants is None else constants
        return Artifact(self.name, format, format_version, code, self.signature, kept, {"": self.workspace})


def steps_of(name: str, function: ir.Function, rules: Sequence[OpRule]) -> StepProgram:
    """The steps of a region's function for a target with these rules. Raises `CompileError`, naming the node, for what is neither
    an operator nor a composite of the rules."""
    return _Walk(name, function, rules).run()


@dataclass
class _Buffer:
    """A buffer whose place is not known yet: which steps write and last read it."""

    name: str
    type: TensorType
    storage: Any = "arena"
    index: int = 0
    first: int = 0
    last: int = 0


class _Walk:
    def __init__(self, name: str, function: ir.Function, rules: Sequence[OpRule]) -> None:
        self.name = name
        self.function = function
        self.patterns = [(rule.name, rule.pattern) for rule in rules if isinstance(rule.pattern, Pattern)]
        self.buffers: list[_Buffer] = []
        self.steps: list[Step] = []
        self.constants: dict[str, Array] = {}
        self.values: dict[int, tuple[int, ...]] = {}
        self.of_constants: dict[str, int] = {}

    def run(self) -> StepProgram:
        for number, param in enumerate(self.function.params):
            self.values[id(param)] = tuple(self._add(f"{param.name}", type_, "input", number) for type_ in result_types(param.type))
        for expr in in_order(self.function.body):
            if id(expr) not in self.values:
                self.values[id(expr)] = self._value(expr)
        for number, result in enumerate(self.values[id(self.function.body)]):
            buffer = self.buffers[result]
            if buffer.storage != "arena":
                raise CompileError(f"result {number} of region {self.name} is not computed there, or is another result as well")
            buffer.storage, buffer.index = "output", number
        buffers, workspace = self._place()
        defined = {size: None for expr in ir.post_order(self.function.body) for size in ir.introduced_sizes(expr)}
        signature = signature_of(self.function, tuple(defined))  # type: ignore[arg-type]
        return StepProgram(self.name, tuple(self.steps), buffers, signature, self.constants, workspace)

    def _add(self, name: str, type_: TensorType, storage: str = "arena", index: int = 0) -> int:
        step = len(self.steps)
        self.buffers.append(_Buffer(name, type_, storage, index, step, step))
        return len(self.buffers) - 1

    def _value(self, expr: ir.Expr) -> tuple[int, ...]:
        match expr:
            case ir.Tuple(fields=fields):
                return tuple(item for entry in fields for item in self.values[id(entry)])
            case ir.TupleItem(tuple=inner, index=index):
                return (self.values[id(inner)][index],)
            case ir.Constant():
                return (self._constant(expr),)
            case ir.Call(callee=Operator() as operator, args=args):
                parts = {"": expr, **dict(zip(operator.inputs, args, strict=False))}
                return self._step(operator.name, expr, parts, {})
            case ir.Call(callee=ir.Function() as function, args=args) if function.attr(COMPOSITE) is not None:
                outside = {id(param): self.values[id(arg)][0] for param, arg in zip(function.params, args, strict=True)}
                return self._step(str(function.attr(COMPOSITE)), expr, self._matched(function).captures, outside)
        raise CompileError(f"region {self.name} holds {expr!r}, which is neither an operator nor a composite", node=str(expr.span))

    def _matched(self, function: ir.Function) -> Match:
        for name, pattern in self.patterns:
            found = match(pattern, function.body) if name == function.attr(COMPOSITE) else None
            if found is not None:
                return Match(found.root, {"": found.root, **found.captures}, found.calls)
        raise CompileError(f"no rule of the target is called {function.attr(COMPOSITE)!r} and fits", node=str(function.body.span))

    def _step(self, name: str, call: ir.Call, parts: Mapping[str, ir.Expr], numbers: dict[int, int]) -> tuple[int, ...]:
        inputs = tuple(number for arg in call.args for number in self.values[id(arg)])
        for part in parts.values():
            if isinstance(part, ir.Constant):
                numbers[id(part)] = self._constant(part)
            elif id(part) in self.values:
                numbers[id(part)] = self.values[id(part)][0]
        for number in (*inputs, *numbers.values()):
            self.buffers[number].last = len(self.steps)
        outputs = tuple(self._add(f"{name}{len(self.steps)}", type_) for type_ in result_types(call.type))
        nodes = source_nodes(call, parts[""] if isinstance(call.callee, ir.Function) else ir.tuple_(()))
        self.steps.append(Step(name, inputs, outputs, nodes, parts, numbers))
        return outputs

    def _constant(self, expr: ir.Constant) -> int:
        """The number of a constant's buffer; equal constants share one."""
        name = expr.digest()[:32]
        if name not in self.of_constants:
            (type_,) = result_types(expr.type)
            self.of_constants[name] = self._add(name, type_, "constant", len(self.constants))
            self.constants[name] = expr.data
        return self.of_constants[name]

    def _place(self) -> tuple[tuple[RegionBuffer, ...], Dim]:
        """Offsets in the arena for what is neither input, output nor constant."""
        inside = [number for number, buffer in enumerate(self.buffers) if buffer.storage == "arena"]
        found = [self.buffers[number] for number in inside]
        arena = plan([Lifetime(bound_bytes(b.type.shape, b.type.dtype.bytes), b.first, b.last) for b in found])
        offsets = dict(zip(inside, arena.offsets, strict=True))
        placed = [
            RegionBuffer(buffer.name, buffer.storage, buffer.type.shape, buffer.type.dtype, buffer.index, offsets.get(number, 0))
            for number, buffer in enumerate(self.buffers)
        ]
        return tuple(placed), arena.size
