"""Lower a region to kernels and a launch plan, for devices that run grids of threads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from inlaid import arith
from inlaid.arith import Dim, SizeVar
from inlaid.artifact import ALIGNMENT
from inlaid.errors import CompileError, Unsupported
from inlaid.runtime.launches import Descriptor, Launch, LaunchPlan, Place, Read, Size, Step
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, RegionProgram, size_vars
from inlaid.tensor.transform.launches import Kernel, Launches, split_launches
from inlaid.types import MemoryScope

AXES = ("x", "y", "z")


@dataclass(frozen=True)
class ThreadKernel:
    """A kernel to print. `name` is an identifier; the last `scalars` inputs are 0-d int64, passed by value."""

    name: str
    kernel: Kernel
    scalars: int


@dataclass(frozen=True)
class ThreadRegion:
    """The distinct kernels of a region and their launch plan. `workspace` is the size in bytes of the arena, which also holds
    computed sizes."""

    kernels: tuple[ThreadKernel, ...]
    plan: LaunchPlan
    workspace: Dim

    def reporting(
        self, reports: Sequence[bool], shared: Sequence[int] = (), descriptors: Sequence[tuple[Descriptor, ...]] = ()
    ) -> LaunchPlan:
        """Complete the plan: whether each kernel reports bad indices, its bytes of dynamic shared memory, and its descriptors."""
        bytes_, described = tuple(shared) if any(shared) else (), tuple(descriptors) if any(descriptors) else ()
        return replace(self.plan, reports=tuple(reports), shared=bytes_, descriptors=described)


def thread_region(program: RegionProgram, scopes: Sequence[MemoryScope], subgroup: int = 0) -> ThreadRegion:
    """Lower a region to kernels and a launch plan by `split_launches`. Raises the errors of `split_launches`, and `Unsupported` for
    calls that are predicated on data."""
    return _Builder(program, scopes, subgroup).build()


@dataclass
class _Builder:
    program: RegionProgram
    scopes: Sequence[MemoryScope]
    subgroup: int
    _kernels: list[ThreadKernel] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)
    _sizes: dict[arith.Expr, int] = field(default_factory=dict)
    _variables: list[Size] = field(default_factory=list)
    _workspace: Dim = 0

    def build(self) -> ThreadRegion:
        self._workspace = self.program.workspace
        for buffer in self.program.buffers:
            self._places.append(Place(buffer.storage, buffer.index, self._size(buffer.offset)))
        split = [split_launches(kernel, self.scopes, self.subgroup) for kernel in self.program.kernels]
        numbers: list[dict[str, int]] = []
        for position, launches in enumerate(split):
            known = {}
            for name, kernel in launches.kernels.items():
                known[name] = len(self._kernels)
                scalars = len(kernel.program.inputs) - _buffer_inputs(launches, name)
                self._kernels.append(ThreadKernel(_identifier(position, name), kernel, scalars))
            numbers.append(known)
        steps: list[Step] = []
        for number, call in enumerate(self.program.calls):
            steps += self._call(number, call, split[call.kernel], numbers[call.kernel])
        names = tuple(kernel.name for kernel in self._kernels)
        sizes, dims = (tuple(Size(arith.unwrap(item)) for item in items) for items in (self._sizes, map(SizeVar, self._dims)))
        plan = LaunchPlan(names, (), tuple(self._places), sizes, tuple(steps), dims, tuple(self._variables))
        return ThreadRegion(tuple(self._kernels), plan, self._workspace)

    @property
    def _dims(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.program.signature.dims)

    def _size(self, dim: Dim) -> int:
        """Return the number of a size in the plan. A new size is added."""
        return self._sizes.setdefault(arith.wrap(dim), len(self._sizes))

    def _call(self, number: int, call: KernelCall, launches: Launches, numbers: Mapping[str, int]) -> list[Step]:
        source = self.program.kernels[call.kernel]
        values: dict[arith.Expr, arith.Expr] = dict(zip(size_vars(source), call.sizes, strict=True))
        buffers = dict(zip(source.params, (*call.inputs, *call.outputs), strict=False))
        steps: list[Step] = []
        for (_, buffer), defined in zip(source.defines, call.defines, strict=True):
            buffers[buffer] = len(self._places)
            self._places.append(Place("arena", 0, self._size(self._workspace)))
            self._workspace = arith.unwrap(arith.add(self._workspace, ALIGNMENT))
            steps.append(Step(read=Read(self._dims.index(defined.name), buffers[buffer])))
        host = self._host(launches.host.body, launches, numbers, buffers, values, number)
        for predicate in reversed(call.predicates):
            if not isinstance(predicate.condition, arith.Expr):
                raise Unsupported("predicates of calls must depend only on sizes, found one that depends on data")
            holds = predicate.condition if predicate.holds else arith.logical_not(predicate.condition)
            host = [self._predicated(holds, host)]
        return [*host, *steps]

    def _host(
        self,
        stmt: ir.Stmt,
        launches: Launches,
        numbers: Mapping[str, int],
        buffers: Mapping[ir.Buffer, int],
        values: Mapping[arith.Expr, arith.Expr],
        call: int,
    ) -> list[Step]:
        def inner(part: ir.Stmt, known: Mapping[arith.Expr, arith.Expr] = values) -> list[Step]:
            return self._host(part, launches, numbers, buffers, known, call)

        match stmt:
            case ir.Seq(stmts=stmts):
                return [step for part in stmts for step in inner(part)]
            case ir.For(var=var, extent=extent, body=body):
                variable = len(self._variables)
                size = SizeVar(f"host.{variable}")
                self._variables.append(Size(size))
                steps = inner(body, {**values, var: size})
                return [Step(variable=variable, extent=self._size(_substituted(extent, values)), body=tuple(steps))]
            case ir.If(condition=ir.Index(index=index), then=then, otherwise=otherwise):
                arms = [(index, then)] if otherwise is None else [(index, then), (arith.logical_not(index), otherwise)]
                return [self._predicated(arith.wrap(_substituted(condition, values)), inner(arm)) for condition, arm in arms]
            case ir.Let(var=var, value=ir.Index(index=index), body=body):  # kernels that use it check its bounds
                return inner(body, {**values, var: arith.wrap(_substituted(index, values))})
            case ir.Intrinsic(name=name, args=args):
                kernel = launches.kernels[name]
                given = [arg.index for arg in args if isinstance(arg, ir.Index)]
                program = kernel.program
                touched = program.params if not given else (*program.inputs[: -len(given)], *program.outputs)
                scalars = (*given, *(size for size in size_vars(program)))
                launch = Launch(
                    numbers[name],
                    tuple(buffers[buffer] for buffer in touched),
                    tuple(self._size(_substituted(scalar, values)) for scalar in scalars),
                    self._extents(kernel.grid, "blockIdx", values),
                    self._extents(kernel.threads, "threadIdx", values),
                    call,
                )
                return [Step(launch=launch)]
        raise CompileError(f"kernel {launches.host.name}: {type(stmt).__name__} cannot run on the host")

    def _predicated(self, condition: arith.Expr, body: Sequence[Step]) -> Step:
        """Predicate steps by a host loop of 0 or 1 iterations."""
        variable = len(self._variables)
        self._variables.append(Size(SizeVar(f"host.{variable}")))
        return Step(variable=variable, extent=self._size(arith.select(condition, 1, 0)), body=tuple(body))

    def _extents(self, axes: Mapping[str, arith.Expr], group: str, values: Mapping[arith.Expr, arith.Expr]) -> tuple[int, int, int]:
        x, y, z = (self._size(_substituted(axes.get(f"{group}.{axis}", arith.ONE), values)) for axis in AXES)
        return x, y, z


def _identifier(position: int, name: str) -> str:
    """Return the identifier of a kernel's function."""
    return f"k{position}_{re.sub('[^A-Za-z0-9_]', '_', name)}"


def _buffer_inputs(launches: Launches, name: str) -> int:
    """Count the inputs of a kernel that are buffers."""
    kernel = launches.kernels[name].program
    for stmt in ir.walk_stmts(launches.host.body):
        if isinstance(stmt, ir.Intrinsic) and stmt.name == name:
            return len(kernel.inputs) - len(stmt.args)
    raise CompileError(f"kernel {name} must be launched by its host program, found no launch")


def _substituted(expr: arith.Expr, values: Mapping[arith.Expr, arith.Expr]) -> Dim:
    return arith.unwrap(arith.simplify(arith.substitute(expr, values)))
