"""Lower a region to kernels and a launch plan, for devices that run grids of threads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inlaid.passes.manager import RunPasses, UnitPass, run_passes
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, RegionProgram, size_vars
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.launches import SplitProgram, SpmdKernel, split_launches
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.execution.launches import (
    HOST_VARIABLE,
    BufferAddress,
    Descriptor,
    KernelFunction,
    Launch,
    LaunchPlan,
    LaunchPlanStep,
    Parameter,
    Size,
    SizeRead,
)
from inlaid_runtime.types import MemoryScope

AXES = ("x", "y", "z")

_Defines = Sequence[tuple[SizeVar, ir.Buffer]]
"""Dimensions that a loop program computes, each with the buffer that receives it."""


@dataclass(frozen=True)
class ThreadKernel:
    """A kernel to print. `name` is an identifier; the last `scalars` inputs are 0-d int64, passed by value."""

    name: str
    kernel: SpmdKernel
    scalars: int


@dataclass(frozen=True)
class ThreadRegion:
    """The distinct kernels of a region and their launch plan. `workspace` is the size in bytes of the arena, which also holds
    computed sizes."""

    kernels: tuple[ThreadKernel, ...]
    plan: LaunchPlan
    workspace: Dim

    def completed(
        self, reports: Sequence[bool], shared: Sequence[int], descriptors: Sequence[tuple[Descriptor, ...]]
    ) -> LaunchPlan:
        """Complete the plan with facts about each kernel: whether it reports bad indices, its bytes of dynamic shared memory, and
        its descriptors."""
        facts = zip(self.plan.kernels, reports, shared, descriptors, strict=True)
        return replace(
            self.plan,
            kernels=tuple(
                replace(kernel, reports=reporting, shared=size, descriptors=kernel_descriptors)
                for kernel, reporting, size, kernel_descriptors in facts
            ),
        )


def thread_region(
    program: RegionProgram,
    scopes: Sequence[MemoryScope],
    subgroup: int = 0,
    run: RunPasses[ir.LoopProgram] = run_passes,
) -> ThreadRegion:
    """Lower a region to kernels and a launch plan by `split_launches`. `run`: see `CompileContext.run_passes`. Raises the errors of
    `split_launches`, and `Unsupported` for calls that are predicated on data."""
    return _Builder(program, scopes, subgroup, run).build()


@dataclass
class _Builder:
    program: RegionProgram
    scopes: Sequence[MemoryScope]
    subgroup: int
    run: RunPasses[ir.LoopProgram]
    _kernels: list[ThreadKernel] = field(default_factory=list)
    _functions: list[KernelFunction] = field(default_factory=list)
    _witnesses: list[tuple[arith.Expr, ...]] = field(default_factory=list)
    _addresses: list[BufferAddress] = field(default_factory=list)
    _sizes: dict[arith.Expr, int] = field(default_factory=dict)
    _variables: list[Size] = field(default_factory=list)
    _workspace: Dim = 0

    def build(self) -> ThreadRegion:
        self._workspace = self.program.workspace
        for buffer in self.program.buffers:
            self._addresses.append(BufferAddress(buffer.storage, buffer.index, self._size(buffer.offset)))
        split = [split_launches(kernel, self.scopes, self.subgroup, self._to_spmd) for kernel in self.program.kernels]
        assumed = {call.kernel: call.assumed for call in self.program.calls}
        numbers: list[dict[str, int]] = []
        for position, launches in enumerate(split):
            kernel_numbers = {}
            computed: set[arith.SizeVar] = set()
            for name, site in _sites(launches.host.body, assumed.get(position, ())):
                kernel_numbers[name] = len(self._kernels)
                kernel = ThreadKernel(_identifier(position, name), launches.kernels[name], len(site.variables))
                function, witnesses = _function(kernel, site, position, launches.host.defines, computed)
                self._kernels.append(kernel)
                self._functions.append(function)
                self._witnesses.append(witnesses)
            numbers.append(kernel_numbers)
        steps: list[LaunchPlanStep] = []
        for number, call in enumerate(self.program.calls):
            steps += self._call(number, call, split[call.kernel], numbers[call.kernel])
        sizes, dims = (tuple(Size(arith.unwrap(item)) for item in items) for items in (self._sizes, map(SizeVar, self._dims)))
        plan = LaunchPlan(tuple(self._functions), tuple(self._addresses), sizes, tuple(steps), dims, tuple(self._variables))
        return ThreadRegion(tuple(self._kernels), plan, self._workspace)

    def _to_spmd(self, program: ir.LoopProgram, *options: Any) -> ir.LoopProgram:
        return self.run((UnitPass("to_spmd", lambda kernel: to_spmd(kernel, *options)),), program)

    @property
    def _dims(self) -> tuple[str, ...]:
        return tuple(source.name for source in self.program.signature.dims)

    def _size(self, dim: Dim) -> int:
        """Return the number of a size in the plan. A new size is added."""
        return self._sizes.setdefault(arith.wrap(dim), len(self._sizes))

    def _call(self, number: int, call: KernelCall, launches: SplitProgram, numbers: Mapping[str, int]) -> list[LaunchPlanStep]:
        source = self.program.kernels[call.kernel]
        values: dict[arith.Expr, arith.Expr] = dict(zip(size_vars(source), call.sizes, strict=True))
        buffers = dict(zip(source.params, (*call.inputs, *call.outputs), strict=False))
        steps: list[LaunchPlanStep] = []
        for (_, buffer), defined in zip(source.defines, call.defines, strict=True):
            buffers[buffer] = len(self._addresses)
            self._addresses.append(BufferAddress("arena", 0, self._size(self._workspace)))
            self._workspace = arith.unwrap(arith.add(self._workspace, ALIGNMENT))
            steps.append(LaunchPlanStep(read=SizeRead(self._dims.index(defined.name), buffers[buffer])))
        host_steps = self._host(launches.host.body, launches, numbers, buffers, values, number)
        for predicate in reversed(call.predicates):
            if not isinstance(predicate.condition, arith.Expr):
                raise Unsupported("predicates of calls must depend only on sizes, found one that depends on data")
            holds = predicate.condition if predicate.holds else arith.logical_not(predicate.condition)
            host_steps = [self._predicated(holds, host_steps)]
        return [*host_steps, *steps]

    def _host(
        self,
        stmt: ir.Stmt,
        launches: SplitProgram,
        numbers: Mapping[str, int],
        buffers: Mapping[ir.Buffer, int],
        values: Mapping[arith.Expr, arith.Expr],
        call: int,
    ) -> list[LaunchPlanStep]:
        """Build the steps of a statement of the host program. `numbers` maps the names of kernels, `buffers` maps buffers to
        numbers in the plan; `values` maps variables to expressions over the plan's sizes; `call` is the number of the call."""

        def inner(part: ir.Stmt, bindings: Mapping[arith.Expr, arith.Expr] = values) -> list[LaunchPlanStep]:
            return self._host(part, launches, numbers, buffers, bindings, call)

        match stmt:
            case ir.Seq(stmts=stmts):
                return [step for part in stmts for step in inner(part)]
            case ir.For(var=var, extent=extent, body=body):
                variable = len(self._variables)
                size = SizeVar(f"{HOST_VARIABLE}{variable}")
                self._variables.append(Size(size))
                steps = inner(body, {**values, var: size})
                return [LaunchPlanStep(variable=variable, extent=self._size(_substituted(extent, values)), body=tuple(steps))]
            case ir.If(condition=ir.Index(index=index), then=then, otherwise=otherwise):
                arms = [(index, then)] if otherwise is None else [(index, then), (arith.logical_not(index), otherwise)]
                return [self._predicated(arith.wrap(_substituted(condition, values)), inner(arm)) for condition, arm in arms]
            case ir.Let(var=var, value=ir.Index(index=index), body=body):  # kernels that use it check its bounds
                return inner(body, {**values, var: arith.wrap(_substituted(index, values))})
            case ir.Intrinsic(name=name, args=args):
                kernel = launches.kernels[name]
                index_args = [arg.index for arg in args if isinstance(arg, ir.Index)]
                program = kernel.program
                kernel_buffers = program.params if not index_args else (*program.inputs[: -len(index_args)], *program.outputs)
                scalars = (*index_args, *(size for size in size_vars(program)))
                launch = Launch(
                    numbers[name],
                    tuple(buffers[buffer] for buffer in kernel_buffers),
                    tuple(self._size(_substituted(scalar, values)) for scalar in scalars),
                    self._extents(kernel.grid, "blockIdx", values),
                    self._extents(kernel.threads, "threadIdx", values),
                    call,
                    tuple(self._size(_substituted(witness, values)) for witness in self._witnesses[numbers[name]]),
                )
                return [LaunchPlanStep(launch=launch)]
        raise CompileError(f"kernel {launches.host.name}: {type(stmt).__name__} cannot run on the host")

    def _predicated(self, condition: arith.Expr, body: Sequence[LaunchPlanStep]) -> LaunchPlanStep:
        """Predicate steps by a host loop of 0 or 1 iterations."""
        variable = len(self._variables)
        self._variables.append(Size(SizeVar(f"{HOST_VARIABLE}{variable}")))
        return LaunchPlanStep(variable=variable, extent=self._size(arith.select(condition, 1, 0)), body=tuple(body))

    def _extents(self, axes: Mapping[str, arith.Expr], group: str, values: Mapping[arith.Expr, arith.Expr]) -> tuple[int, int, int]:
        x, y, z = (self._size(_substituted(axes.get(f"{group}.{axis}", arith.ONE), values)) for axis in AXES)
        return x, y, z


def _identifier(position: int, name: str) -> str:
    """Return the identifier of a kernel's function."""
    return f"k{position}_{re.sub('[^A-Za-z0-9_]', '_', name)}"


@dataclass(frozen=True)
class _LaunchSite:
    """The launch of a kernel in a host program: the `variables` that it passes, and conditions that hold there."""

    variables: tuple[arith.Expr, ...]
    conditions: tuple[arith.Expr, ...]


def _sites(stmt: ir.Stmt, conditions: tuple[arith.Expr, ...]) -> Iterator[tuple[str, _LaunchSite]]:
    """Yield the launches in a host program, with the names of their kernels, in order."""
    match stmt:
        case ir.Seq(stmts=stmts):
            for part in stmts:
                yield from _sites(part, conditions)
        case ir.For(var=var, extent=extent, body=body):
            bounds = (arith.compare("<=", 0, var), arith.compare("<", var, extent))
            yield from _sites(body, (*conditions, *bounds))
        case ir.If(condition=ir.Index(index=index), then=then, otherwise=otherwise):
            yield from _sites(then, (*conditions, index))
            if otherwise is not None:
                yield from _sites(otherwise, (*conditions, arith.logical_not(index)))
        case ir.Let(var=var, value=ir.Index(index=index), body=body):
            yield from _sites(body, (*conditions, arith.compare("==", var, index)))
        case ir.Intrinsic(name=name, args=args):
            yield name, _LaunchSite(tuple(arg.index for arg in args if isinstance(arg, ir.Index)), conditions)


def _function(
    kernel: ThreadKernel, site: _LaunchSite, number: int, defines: _Defines, computed: set[arith.SizeVar]
) -> tuple[KernelFunction, tuple[arith.Expr, ...]]:
    """Describe a kernel of loop program `number` and the arguments for which it is compiled. Also returns its witnesses: the
    variables of the host program that its buffer sizes, extents and conditions read, but that it does not take as arguments.
    `defines` are those of the loop program. `computed` are the sizes that earlier kernels compute; those that this kernel computes
    are added."""
    program = kernel.kernel.program
    inputs = program.inputs[: len(program.inputs) - kernel.scalars]
    scalars = (*site.variables, *size_vars(program))
    sizes = [arith.mul(_greatest(buffer, defines), buffer.dtype.bytes) for buffer in (*inputs, *program.outputs)]
    extents = [
        arith.wrap(axes.get(f"{group}.{axis}", arith.ONE))
        for axes, group in ((kernel.kernel.grid, "blockIdx"), (kernel.kernel.threads, "threadIdx"))
        for axis in AXES
    ]
    read_variables = dict.fromkeys(variable for expr in (*sizes, *extents, *site.conditions) for variable in _variables(expr))
    witnesses = tuple(variable for variable in read_variables if variable not in scalars)
    variables = (*scalars, *witnesses)
    conditions = [*site.conditions, *(bound for variable in variables for bound in _bounds(variable, variables))]
    names: dict[arith.Expr, arith.Expr] = {}
    for variable in variables:
        host_name = f"{HOST_VARIABLE}{len(names)}"
        names[variable] = SizeVar(variable.name if isinstance(variable, SizeVar) else host_name)
    sizes_by_buffer = {buffer: size for size, buffer in defines}
    parameters = []
    for buffer, size in zip((*inputs, *program.outputs), sizes, strict=True):
        writes, defined = buffer in program.outputs, sizes_by_buffer.get(buffer)
        reads = not writes or defined in computed
        parameters.append(Parameter(_substituted(size, names), reads, writes, "" if defined is None else defined.name))
    computed |= {size for size, buffer in defines if buffer in program.outputs}
    x, y, z, tx, ty, tz = (_substituted(extent, names) for extent in extents)
    variable_names = [str(names[variable]) for variable in variables]
    open_conditions = dict.fromkeys(_substituted(condition, names) for condition in conditions)
    function = KernelFunction(
        kernel.name,
        tuple(parameters),
        tuple(variable_names[: len(scalars)]),
        (x, y, z),
        (tx, ty, tz),
        tuple(variable_names[len(scalars) :]),
        tuple(Size(condition) for condition in open_conditions if condition != 1),
        number,
    )
    return function, witnesses


def _variables(expr: arith.Expr) -> list[arith.Expr]:
    """List the variables of an expression in a fixed order."""
    return sorted(arith.free_vars(expr), key=repr)


def _greatest(buffer: ir.Buffer, defines: _Defines) -> arith.Expr:
    """Return the number of elements of a buffer, with computed sizes at their upper bounds, for which it is allocated. Extents are
    bounded one by one: each is at least 0, which does not show in their product."""
    bounds: dict[arith.Expr, tuple[arith.Expr, arith.Expr]] = {
        defined: (arith.ZERO, arith.wrap(defined.upper)) for defined, _ in defines if defined.upper is not None
    }
    upper_bounds = []
    for dim in buffer.shape:
        limits = arith.limits(dim, bounds)
        if limits is None:
            raise CompileError(f"buffer {buffer.name} of shape {buffer.shape} must have a size with an upper bound")
        upper_bounds.append(limits[1])
    return arith.wrap(arith.product(tuple(upper_bounds)))


def _bounds(variable: arith.Expr, arguments: Collection[arith.Expr]) -> Iterator[arith.Expr]:
    """Yield the declared bounds of a dimension as conditions."""
    if isinstance(variable, SizeVar):
        if variable.lower > 0:
            yield arith.compare("<=", variable.lower, variable)
        if variable.upper is not None:
            inside = arith.free_vars(variable.upper) <= set(arguments)
            upper = variable.upper if inside else arith.bounds(variable.upper)[1]
            if upper is not None:
                yield arith.compare("<=", variable, upper)


def _substituted(expr: arith.Expr, values: Mapping[arith.Expr, arith.Expr]) -> Dim:
    return arith.unwrap(arith.simplify(arith.substitute(expr, values)))
