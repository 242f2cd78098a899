"""A loop-level target that claims little. Its code generator refuses every construct of loop programs that is not in the
unscheduled kernels of the calls that its rules accept; what it compiles runs in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.plugin_registry import registry_with
from tests.unit.lowering import oracle

from inlaid.graph import ir as graph
from inlaid.lowering.kernels.bodies import inlined_body
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Accept, Capabilities, Codegen, Level, Loaded, OpRule, Reject, TargetSpec, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor import ir
from inlaid.tensor.primitives import SEMANTICS, TensorIntrin
from inlaid.tensor.region import RegionProgram
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.execution.host import HostRuntime

KIND, FORMAT = "narrow", "narrow-loops"
Construct = tuple[str, ...]


def constructs(program: ir.LoopProgram) -> Iterator[Construct]:
    """The value expressions of a program by class, operation and element types; statements by class and kind; memory by scope."""
    for buffer in program.params:
        yield "element", buffer.dtype.name
    for stmt in ir.walk_stmts(program.body):
        match stmt:
            case ir.For(kind=kind):
                yield "loop", kind.name
            case ir.Alloc(buffer=buffer):
                yield "memory", buffer.scope
                yield "element", buffer.dtype.name
            case ir.Intrinsic():
                yield "intrinsic", stmt.name
            case ir.Block() | ir.Seq() | ir.If() | ir.Store() | ir.Let():
                pass
            case _:
                yield "statement", type(stmt).__name__
        for value in ir.walk_exprs(*ir.statement_operands(stmt)[0]):
            dtype_name = value.dtype.name
            match value:
                case ir.Load() | ir.Const():
                    yield "element", dtype_name
                case ir.Unary(op=op, a=a) | ir.Binary(op=op, a=a):
                    yield type(value).__name__, op, a.dtype.name
                case ir.CallMath(name=name) | ir.CallIntrinsic(name=name):
                    yield type(value).__name__, name, dtype_name
                case ir.Cast(a=a) | ir.Bitcast(a=a):
                    yield type(value).__name__, a.dtype.name, dtype_name
                case _:
                    yield type(value).__name__, dtype_name


@dataclass
class Narrow:
    """The target: operators that it claims by name, where `fits` agrees; `facts` are further capabilities, `intrinsics`
    its own. `vocabulary` are the constructs that it has claimed so far, `regions` what it was given."""

    operators: frozenset[str]
    dtypes: tuple[str, ...]
    fits: Callable[[graph.Call], bool] = lambda call: True
    facts: Mapping[str, Any] = field(default_factory=dict)
    intrinsics: tuple[TensorIntrin, ...] = ()
    vocabulary: set[Construct] = field(default_factory=set)
    regions: dict[str, RegionProgram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vocabulary |= {("loop", "SERIAL"), ("memory", "")}
        if self.facts.get("vector_bits"):
            self.vocabulary |= {("loop", "VECTORIZED"), ("loop", "UNROLLED"), ("memory", "register"), ("Index", "bool")}
            self.vocabulary |= {("Select", dtype_name) for dtype_name in self.dtypes}
        self.vocabulary |= {("intrinsic", item.name) for item in self.intrinsics}

    def judge(self, call: graph.Call) -> Accept | Reject:
        """The verdict on a call. What its kernel is made of is claimed with it."""
        assert isinstance(call.callee, graph.Operator)
        if call.callee.name not in self.operators or call.callee.compute is None or not self.fits(call):
            return Reject(f"no unit for {call.callee.name}")
        inner, body, _ = inlined_body(call)
        self.vocabulary.update(constructs(build(KernelSource("claim", inner, body))))
        return Accept()

    def check(self, program: RegionProgram) -> None:
        """Raises for what it has not claimed."""
        for schedule in program.schedules:
            assert self.operators.issuperset(schedule.operators), f"{schedule.operators} are not claimed"
        for kernel in program.kernels:
            strange = set(constructs(kernel)) - self.vocabulary
            assert not strange, f"{strange} are not claimed: {kernel!r}"

    def registry(self) -> PluginRegistry:
        """A registry with the target and the reference."""

        @hookimpl
        def inlaid_targets():
            return [TargetSpec(KIND, "of a test", lambda options: Capabilities(self.dtypes, **self.facts), Level.LOOP)]

        @hookimpl
        def inlaid_op_rules(target):
            return [OpRule("*", "narrow", self.judge)] if target.kind == KIND else ()

        @hookimpl
        def inlaid_intrinsics(target):
            return self.intrinsics

        @hookimpl
        def inlaid_codegen(target):
            return Printer(self)

        @hookimpl
        def inlaid_runtime(target):
            return Runtime(self)

        return registry_with(KIND, inlaid_targets, inlaid_op_rules, inlaid_intrinsics, inlaid_codegen, inlaid_runtime)


class Printer(Codegen):
    """Refuses what the target has not claimed, and keeps the rest."""

    def __init__(self, target: Narrow) -> None:
        self.target = target

    def compile(self, unit, context):
        self.target.check(unit)
        self.target.regions[unit.name] = unit
        return Artifact(unit.name, FORMAT, 1, unit.name.encode(), unit.signature, unit.constants)


class Runtime(HostRuntime):
    """Runs what was compiled in this process."""

    def __init__(self, target: Narrow) -> None:
        super().__init__(FORMAT, 1)
        self.target = target

    def load(self, artifact, constants):
        return Loaded(Interpreted(self.target.regions[artifact.symbol], self.target.intrinsics))


@dataclass
class Interpreted:
    """A region in the interpreter of loop programs."""

    program: RegionProgram
    intrinsics: tuple[TensorIntrin, ...]

    def invoke(self, inputs, outputs, workspace, dims):
        semantics = {**SEMANTICS, **{item.name: item.semantics for item in self.intrinsics}}
        for output, result in zip(outputs, oracle.run(self.program, inputs, semantics=semantics), strict=True):
            output[...] = result.reshape(output.shape)
