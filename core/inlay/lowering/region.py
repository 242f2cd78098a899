"""A region of the graph as a region program: kernels, calls in order, buffers with places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from inlay import arith
from inlay.arith import Dim
from inlay.artifact import DimSource, Signature, TensorSpec
from inlay.errors import CompileError
from inlay.graph import ir as graph
from inlay.graph.keys import structural_key
from inlay.graph.operator import Operator
from inlay.graph.unify import upper_bound
from inlay.lowering.finish import finish
from inlay.lowering.kernel import INLINE_LIMIT, KernelSource, build, result_types, tensor_type
from inlay.memory.planner import Lifetime, plan
from inlay.schedules.rule import KernelContext, ScheduleRule
from inlay.tensor import ir
from inlay.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlay.types import TensorType, Type, type_vars


@dataclass(frozen=True)
class RegionSource:
    """A region to lower: a closed function whose body is made of calls (of operators and of fused functions), constants and
    tuples."""

    name: str
    function: graph.Function


def lower_region(source: RegionSource, rules: Sequence[ScheduleRule], context: KernelContext) -> RegionProgram:
    """Lower a region. Equal kernels are built once. Raises `CompileError` naming operator and node."""
    return _RegionLowering(source, tuple(rules), context).run()


def bound_bytes(shape: tuple[Dim, ...], width: int) -> Dim:
    """Bytes of a buffer, with existential dimensions at their upper bounds. Raises `CompileError` when one has none."""
    return arith.unwrap(arith.mul(arith.product(tuple(map(_bounded, shape))), width))


def _bounded(dim: Dim) -> Dim:
    if isinstance(dim, int):
        return dim
    mapping: dict[arith.Expr, arith.Expr] = {}
    for variable in arith.free_vars(dim):
        if isinstance(variable, arith.SizeVar) and variable.existential:
            bound = upper_bound(variable)
            if bound is None:
                raise CompileError(f"dimension {variable!r} has no upper bound, so that no buffer can be set aside for it")
            mapping[variable] = arith.wrap(_bounded(bound))
    return arith.unwrap(arith.substitute(dim, mapping))


@dataclass
class _Buffer:
    """A buffer while its place is not known: `first` and `last` are the numbers of the calls that write and last read it."""

    name: str
    storage: Literal["input", "output", "constant", "arena"]
    shape: tuple[Dim, ...]
    dtype: Any
    index: int = 0
    first: int = 0
    last: int = 0
    view_of: int | None = None


@dataclass
class _RegionLowering:
    source: RegionSource
    rules: tuple[ScheduleRule, ...]
    context: KernelContext
    kernels: list[ir.LoopProgram] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)
    calls: list[KernelCall] = field(default_factory=list)
    buffers: list[_Buffer] = field(default_factory=list)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    constant_numbers: dict[str, int] = field(default_factory=dict)
    values: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def run(self) -> RegionProgram:
        function = self.source.function
        for number, param in enumerate(function.params):
            type_ = tensor_type(param.type)
            self.values[id(param)] = (self._add(_Buffer(param.name, "input", type_.shape, type_.dtype, number)),)
        for expr in _in_order(function.body):
            if id(expr) not in self.values:
                self._visit(expr)
        self._outputs(self.values[id(function.body)])
        buffers, workspace = self._place()
        return RegionProgram(
            self.source.name, tuple(self.kernels), tuple(self.calls), buffers, self._signature(), self.constants, workspace
        )

    def _add(self, buffer: _Buffer) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    # --- expressions ---

    def _visit(self, expr: graph.Expr) -> None:
        match expr:
            case graph.Tuple(fields=fields):
                self.values[id(expr)] = tuple(item for entry in fields for item in self.values[id(entry)])
            case graph.TupleItem(tuple=inner, index=index):
                self.values[id(expr)] = (self.values[id(inner)][index],)
            case graph.Constant():
                self.values[id(expr)] = (self._constant(expr),)
            case graph.Call(callee=graph.Function() as callee, args=args):
                self._call(expr, callee.params, callee.body, args)
            case graph.Call(callee=Operator() as operator, args=args, attrs=attrs):
                if operator.name == "reshape":
                    self.values[id(expr)] = (self._view(self.values[id(args[0])][0], tensor_type(expr.type)),)
                    return
                params = tuple(graph.var(f"x{index}", arg.type) for index, arg in enumerate(args))
                body = graph.Call(expr.type, expr.span, operator, params, attrs)
                self._call(expr, params, body, args)
            case _:
                raise CompileError(f"region {self.source.name} holds {expr!r}, which cannot be lowered", node=str(expr.span or ""))

    def _constant(self, constant: graph.Constant) -> int:
        name = constant.digest()[:32]
        number = self.constant_numbers.setdefault(name, len(self.constants))
        self.constants.setdefault(name, constant.data)
        type_ = tensor_type(constant.type)
        return self._add(_Buffer("constant", "constant", type_.shape, type_.dtype, number))

    def _view(self, base: int, type_: TensorType) -> int:
        """The same bytes under another shape."""
        buffer = self.buffers[base]
        root = base if buffer.view_of is None else buffer.view_of
        return self._add(_Buffer(f"{buffer.name}_view", buffer.storage, type_.shape, type_.dtype, buffer.index, view_of=root))

    def _call(self, call: graph.Expr, params: tuple[graph.Var, ...], body: graph.Expr, args: tuple[graph.Expr, ...]) -> None:
        params, body, args = inline_scalars(params, body, args)
        key = structural_key(graph.function(params, body))
        if key not in self.known:
            self.known[key] = len(self.kernels)
            self.kernels.append(self._kernel(params, body))
        number = self.known[key]
        kernel = self.kernels[number]
        inputs = tuple(self.values[id(arg)][0] for arg in args)
        results = []
        step = len(self.calls)
        for type_ in result_types(call.type):
            results.append(self._add(_Buffer(kernel.name, "arena", type_.shape, type_.dtype, first=step, last=step)))
        sizes, defines, names = self._sizes(kernel, params, args, body.type, call.type)
        scratch = kernel.outputs[len(results) : len(kernel.outputs) - len(kernel.defines)]
        spare = [
            self._add(_Buffer(item.name, "arena", _renamed(item.shape, names), item.dtype, first=step, last=step))
            for item in scratch
        ]
        self.calls.append(KernelCall(number, inputs, (*results, *spare), sizes, defines, _nodes(call, body)))
        self.values[id(call)] = tuple(results)

    def _kernel(self, params: tuple[graph.Var, ...], body: graph.Expr) -> ir.LoopProgram:
        program = build(KernelSource(_kernel_name(body), params, body))
        for rule in self.rules:
            scheduled = rule.apply(program, self.context)
            if scheduled is not None:
                program = scheduled
                break
        return finish(program)

    def _sizes(
        self, kernel: ir.LoopProgram, params: tuple[graph.Var, ...], args: tuple[graph.Expr, ...], inner: Type, outer: Type
    ) -> tuple[tuple[arith.Expr, ...], tuple[arith.SizeVar, ...], dict[arith.Expr, arith.Expr]]:
        """The kernel's dimensions in terms of the region's: kernels that are equal up to the names of dimensions are shared."""
        names: dict[arith.Expr, arith.Expr] = {}
        declared = [(buffer.shape, tensor_type(arg.type).shape) for buffer, arg in zip(kernel.inputs, args, strict=True)]
        declared += [(buffer.shape, type_.shape) for buffer, type_ in zip(kernel.outputs, result_types(outer), strict=False)]
        for mine, theirs in declared:
            for a, b in zip(mine, theirs, strict=True):
                if isinstance(a, arith.SizeVar):
                    names.setdefault(a, arith.wrap(b))
        defines = tuple(names[size] for size, _ in kernel.defines)
        if not all(isinstance(size, arith.SizeVar) for size in defines):
            raise CompileError(f"kernel {kernel.name} works out a dimension that the region does not name")
        sizes = tuple(names.get(size, size) for size in size_vars(kernel))
        return sizes, tuple(size for size in defines if isinstance(size, arith.SizeVar)), names

    # --- outputs and places ---

    def _outputs(self, results: tuple[int, ...]) -> None:
        """Give every result a place with the caller: the buffer itself where it is a kernel's own, else a copy."""
        taken: set[int] = set()
        for number, result in enumerate(results):
            buffer = self.buffers[result]
            if buffer.storage == "arena" and buffer.view_of is None and result not in taken:
                taken.add(result)
            else:
                result = self._copy(result)
            self.buffers[result].storage = "output"
            self.buffers[result].index = number
        self.results = results
        for view in self.buffers:
            if view.view_of is not None:
                root = self.buffers[view.view_of]
                view.storage, view.index = root.storage, root.index

    def _copy(self, source: int) -> int:
        buffer = self.buffers[source]
        a = ir.Buffer("source", buffer.shape, buffer.dtype)
        b = ir.Buffer("copy", buffer.shape, buffer.dtype)
        variables = tuple(arith.Var(f"i{axis}") for axis in range(len(buffer.shape)))
        body: ir.Stmt = ir.Store(b, variables, ir.load(a, variables))
        for variable, extent in zip(reversed(variables), reversed(buffer.shape), strict=True):
            body = ir.For(variable, arith.wrap(extent), body)
        program = ir.LoopProgram("copy", (a,), (b,), body)
        target = self._add(_Buffer("copy", "arena", buffer.shape, buffer.dtype, first=len(self.calls), last=len(self.calls)))
        self.calls.append(KernelCall(len(self.kernels), (source,), (target,), size_vars(program)))
        self.kernels.append(program)
        return target

    def _place(self) -> tuple[tuple[RegionBuffer, ...], Dim]:
        """Offsets in the arena for what is neither input, output nor constant."""
        for step, call in enumerate(self.calls):
            for number in call.inputs:
                root = self.buffers[number].view_of
                owner = self.buffers[number if root is None else root]
                owner.last = max(owner.last, step)
        owners = [n for n, buffer in enumerate(self.buffers) if buffer.storage == "arena" and buffer.view_of is None]
        lives = [
            Lifetime(bound_bytes(buffer.shape, buffer.dtype.bytes), buffer.first, buffer.last)
            for buffer in (self.buffers[n] for n in owners)
        ]
        arena = plan(lives)
        offsets = dict(zip(owners, arena.offsets, strict=True))
        placed = tuple(
            RegionBuffer(
                buffer.name,
                buffer.storage,
                buffer.shape,
                buffer.dtype,
                buffer.index,
                offsets.get(number if buffer.view_of is None else buffer.view_of, 0),
            )
            for number, buffer in enumerate(self.buffers)
        )
        return placed, arena.size

    def _signature(self) -> Signature:
        function = self.source.function
        inputs = tuple(TensorSpec(p.name, tensor_type(p.type).shape, tensor_type(p.type).dtype) for p in function.params)
        types = result_types(function.body.type)
        outputs = tuple(TensorSpec(f"output{number}", type_.shape, type_.dtype) for number, type_ in enumerate(types))
        dims: dict[arith.Expr, DimSource] = {}
        for number, spec in enumerate(inputs):
            for axis, dim in enumerate(spec.shape):
                if isinstance(dim, arith.SizeVar) and dim not in dims:
                    dims[dim] = DimSource(dim.name, number, axis)
        for call in self.calls:
            for size in call.defines:
                bound = upper_bound(size)
                if bound is None:
                    raise CompileError(f"dimension {size!r} has no upper bound")
                dims.setdefault(size, DimSource(size.name, None, 0, _bounded(bound)))
        needed = frozenset().union(*(type_vars(p.type) for p in function.params), type_vars(function.body.type))
        for variable in sorted(needed, key=repr):
            if isinstance(variable, arith.SizeVar):
                dims.setdefault(variable, DimSource(variable.name))
        return Signature(inputs, outputs, tuple(dims.values()))


def inline_scalars(
    params: tuple[graph.Var, ...], body: graph.Expr, args: tuple[graph.Expr, ...]
) -> tuple[tuple[graph.Var, ...], graph.Expr, tuple[graph.Expr, ...]]:
    """Put constants of one element into the kernel itself, where they become literals."""
    chosen = {
        id(param): arg
        for param, arg in zip(params, args, strict=True)
        if isinstance(arg, graph.Constant) and arg.data.size <= INLINE_LIMIT and arg.data.size
    }
    if not chosen:
        return params, body, args
    memo: dict[int, graph.Expr] = dict(chosen)
    for expr in graph.post_order(body):
        if id(expr) not in memo:
            memo[id(expr)] = graph.rebuild(expr, tuple(memo[id(child)] for child in graph.children(expr)))
    kept = [(param, arg) for param, arg in zip(params, args, strict=True) if id(param) not in chosen]
    return tuple(param for param, _ in kept), memo[id(body)], tuple(arg for _, arg in kept)


def _in_order(body: graph.Expr) -> list[graph.Expr]:
    """The expressions of a region, operands first; what is inside fused functions is left to their kernels."""
    order: dict[int, graph.Expr] = {}
    stack: list[tuple[graph.Expr, bool]] = [(body, False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order[id(expr)] = expr
        elif id(expr) not in order:
            stack.append((expr, True))
            below = expr.args if isinstance(expr, graph.Call) else graph.children(expr)
            stack.extend((child, False) for child in reversed(below) if id(child) not in order)
    return list(order.values())


def _renamed(shape: tuple[Dim, ...], names: dict[arith.Expr, arith.Expr]) -> tuple[Dim, ...]:
    return tuple(dim if isinstance(dim, int) else arith.unwrap(arith.substitute(dim, names)) for dim in shape)


def _kernel_name(body: graph.Expr) -> str:
    names = [e.callee.name for e in graph.post_order(body) if isinstance(e, graph.Call) and isinstance(e.callee, Operator)]
    return "_".join(names)[:60] or "empty"


def _nodes(call: graph.Expr, body: graph.Expr) -> tuple[str, ...]:
    spans = [expr.span for expr in graph.post_order(body) if isinstance(expr, graph.Call)] + [call.span]
    return tuple(dict.fromkeys(span.node for span in spans if span is not None and span.node))
