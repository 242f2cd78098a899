"""A region of the graph as a region program: kernels, calls in order, buffers with places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from inlay import arith
from inlay.arith import Dim
from inlay.artifact import DimSource, Signature, TensorSpec
from inlay.errors import CompileError
from inlay.graph import ir as graph
from inlay.graph.attrs import attr_vars
from inlay.graph.keys import structural_key
from inlay.graph.operator import Operator
from inlay.graph.unify import upper_bound
from inlay.lowering.finish import finish
from inlay.lowering.kernel import INLINE_LIMIT, KernelSource, build, result_types, tensor_type
from inlay.memory.planner import Lifetime, plan
from inlay.schedules.rule import Given, KernelContext, ScheduleRule
from inlay.tensor import ir
from inlay.tensor.layouts import relayout
from inlay.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlay.types import ROW_MAJOR, DType, Layout, TensorType, Type, type_vars


@dataclass(frozen=True)
class RegionSource:
    """A region to lower: a closed function whose body is made of calls (of operators and of fused functions), constants and
    tuples."""

    name: str
    function: graph.Function


def lower_region(
    source: RegionSource,
    rules: Sequence[ScheduleRule],
    context: KernelContext,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RegionProgram:
    """Lower a region. Equal kernels are built once. `progress` is told how many expressions are done, and how many there are.

    Raises `CompileError` naming operator and node.
    """
    return _RegionLowering(source, tuple(rules), context).run(progress)


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
    """A buffer while its place is not known: `first` and `last` are the numbers of the calls that write and last read it. `shape`
    is the tensor's, `layout` says how it lies; `copies` the numbers of copies of it in other layouts."""

    name: str
    storage: Literal["input", "output", "constant", "arena"]
    shape: tuple[Dim, ...]
    dtype: DType
    index: int = 0
    first: int = 0
    last: int = 0
    view_of: int | None = None
    layout: Layout = ROW_MAJOR
    copies: dict[Layout, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kernel:
    """A kernel: the number of the finished program, the unscheduled one, and the layouts of its parameters."""

    number: int
    source: ir.LoopProgram
    layouts: tuple[Layout, ...]


@dataclass
class _RegionLowering:
    source: RegionSource
    rules: tuple[ScheduleRule, ...]
    context: KernelContext
    kernels: list[ir.LoopProgram] = field(default_factory=list)
    known: dict[Any, _Kernel] = field(default_factory=dict)
    sources: dict[Any, ir.LoopProgram] = field(default_factory=dict)
    movers: dict[Any, int] = field(default_factory=dict)
    calls: list[KernelCall] = field(default_factory=list)
    buffers: list[_Buffer] = field(default_factory=list)
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    arrays: dict[int, graph.Constant] = field(default_factory=dict)
    values: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def run(self, progress: Callable[[int, int], None]) -> RegionProgram:
        function = self.source.function
        for number, param in enumerate(function.params):
            type_ = tensor_type(param.type)
            self.values[id(param)] = (self._add(_Buffer(param.name, "input", type_.shape, type_.dtype, number)),)
        exprs = tuple(_in_order(function.body))
        for done, expr in enumerate(exprs):
            progress(done, len(exprs))
            if id(expr) not in self.values:
                self._visit(expr)
        self._outputs(self.values[id(function.body)])
        self._store_weights()
        buffers, workspace = self._place()
        return RegionProgram(
            self.source.name, tuple(self.kernels), tuple(self.calls), buffers, self._signature(), self.weights, workspace
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

    def _constant(self, constant: graph.Constant, layout: Layout = ROW_MAJOR) -> int:
        """A buffer for a constant; it is stored in a layout only once a call reads it in that layout."""
        type_ = tensor_type(constant.type)
        name = ".".join([constant.digest()[:32], *(f"{axis}x{factor}" for axis, factor in layout.blocks)])
        number = self._add(_Buffer(name, "constant", type_.shape, type_.dtype, layout=layout))
        self.arrays[number] = constant
        return number

    def _view(self, base: int, type_: TensorType) -> int:
        """The same bytes under another shape."""
        base = self._in_layout(base, ROW_MAJOR)
        buffer, root = self.buffers[base], self._owner(base)
        return self._add(_Buffer(f"{buffer.name}_view", buffer.storage, type_.shape, type_.dtype, buffer.index, view_of=root))

    def _in_layout(self, number: int, layout: Layout) -> int:
        """The buffer in a layout: itself, a constant packed now, or a copy that a kernel makes; each copy is made once."""
        buffer = self.buffers[number]
        if buffer.layout == layout:
            return number
        if layout not in buffer.copies:
            if number in self.arrays:
                buffer.copies[layout] = self._constant(self.arrays[number], layout)
            else:
                buffer.copies[layout] = self._copy(number, layout)
        return buffer.copies[layout]

    def _call(self, call: graph.Expr, params: tuple[graph.Var, ...], body: graph.Expr, args: tuple[graph.Expr, ...]) -> None:
        params, body, args = inline_scalars(params, body, args)
        given = tuple(self.values[id(arg)][0] for arg in args)
        kernel = self._kernel(params, body, tuple(self._given(number) for number in given))
        program = self.kernels[kernel.number]
        inputs = tuple(self._in_layout(number, layout) for number, layout in zip(given, kernel.layouts, strict=False))
        step = len(self.calls)
        results = [
            self._add(_Buffer(program.name, "arena", type_.shape, type_.dtype, first=step, last=step, layout=layout))
            for type_, layout in zip(result_types(call.type), kernel.layouts[len(inputs) :], strict=False)
        ]
        sizes, defines, names = self._sizes(kernel, args, call.type)
        scratch = program.outputs[len(results) : len(program.outputs) - len(program.defines)]
        spare = [
            self._add(_Buffer(item.name, "arena", _renamed(item.shape, names), item.dtype, first=step, last=step))
            for item in scratch
        ]
        self.calls.append(KernelCall(kernel.number, inputs, (*results, *spare), sizes, defines, _nodes(call, body)))
        self.values[id(call)] = tuple(results)

    def _kernel(self, params: tuple[graph.Var, ...], body: graph.Expr, given: tuple[Given, ...]) -> _Kernel:
        """The kernel for a fused function whose inputs lie as given."""
        shape = (structural_key(graph.function(params, body)), _hidden_sizes(params, body))
        key = (shape, given)
        if key not in self.known:
            if shape not in self.sources:
                self.sources[shape] = build(KernelSource(_kernel_name(body), params, body))
            source = self.sources[shape]
            layouts, program = self._schedule(source, given)
            self.known[key] = _Kernel(len(self.kernels), source, layouts)
            self.kernels.append(finish(program))
        return self.known[key]

    def _given(self, number: int) -> Given:
        """What rules may know of an input of a kernel."""
        return Given(self.buffers[number].layout, number in self.arrays)

    def _schedule(self, source: ir.LoopProgram, given: tuple[Given, ...]) -> tuple[tuple[Layout, ...], ir.LoopProgram]:
        """The first offer of a rule, carried out; without one, the program as it is, over row-major buffers."""
        for rule in self.rules:
            offer = rule.offer(source, self.context, given)
            if offer is not None:
                return offer.layouts, offer.schedule(source)
        return (ROW_MAJOR,) * len(source.params), source

    def _sizes(
        self, kernel: _Kernel, args: tuple[graph.Expr, ...], outer: Type
    ) -> tuple[tuple[arith.Expr, ...], tuple[arith.SizeVar, ...], dict[arith.Expr, arith.Expr]]:
        """The kernel's dimensions in terms of the region's: kernels that are equal up to the names of dimensions are shared."""
        source = kernel.source
        names: dict[arith.Expr, arith.Expr] = {}
        declared = [(buffer.shape, tensor_type(arg.type).shape) for buffer, arg in zip(source.inputs, args, strict=True)]
        declared += [(buffer.shape, type_.shape) for buffer, type_ in zip(source.outputs, result_types(outer), strict=False)]
        for mine, theirs in declared:
            for a, b in zip(mine, theirs, strict=True):
                if isinstance(a, arith.SizeVar):
                    names.setdefault(a, arith.wrap(b))
        defines = tuple(names[size] for size, _ in source.defines)
        if not all(isinstance(size, arith.SizeVar) for size in defines):
            raise CompileError(f"kernel {source.name} works out a dimension that the region does not name")
        sizes = tuple(names.get(size, size) for size in size_vars(self.kernels[kernel.number]))
        return sizes, tuple(size for size in defines if isinstance(size, arith.SizeVar)), names

    # --- outputs and places ---

    def _outputs(self, results: tuple[int, ...]) -> None:
        """Give every result a place with the caller, row-major: the buffer itself where it is a kernel's own, else a copy."""
        taken: set[int] = set()
        for number, result in enumerate(results):
            chosen = self._in_layout(result, ROW_MAJOR)
            owner = self._owner(chosen)
            if self.buffers[owner].storage != "arena" or owner in taken:
                owner = self._copy(chosen, ROW_MAJOR)
            taken.add(owner)
            self.buffers[owner].storage = "output"
            self.buffers[owner].index = number

    def _owner(self, number: int) -> int:
        """The buffer whose bytes a buffer shows: itself, unless it is a view."""
        root = self.buffers[number].view_of
        return number if root is None else root

    def _store_weights(self) -> None:
        """Number the constants that calls read, pack them, and tell views what they are views of."""
        numbers: dict[str, int] = {}
        for call in self.calls:
            for number in call.inputs:
                owner = self._owner(number)
                if owner in self.arrays:
                    buffer = self.buffers[owner]
                    buffer.index = numbers.setdefault(buffer.name, len(numbers))
                    if buffer.name not in self.weights:
                        self.weights[buffer.name] = buffer.layout.pack(self.arrays[owner].data)
        for view in self.buffers:
            if view.view_of is not None:
                root_buffer = self.buffers[view.view_of]
                view.storage, view.index = root_buffer.storage, root_buffer.index

    def _copy(self, source: int, layout: Layout) -> int:
        """A copy of a buffer in a layout. Equal copies share a kernel."""
        buffer, step = self.buffers[source], len(self.calls)
        key = (buffer.shape, buffer.dtype, buffer.layout, layout)
        if key not in self.movers:
            self.movers[key] = len(self.kernels)
            self.kernels.append(relayout(*key))
        program = self.kernels[self.movers[key]]
        target = self._add(_Buffer(program.name, "arena", buffer.shape, buffer.dtype, first=step, last=step, layout=layout))
        self.calls.append(KernelCall(self.movers[key], (source,), (target,), size_vars(program)))
        return target

    def _place(self) -> tuple[tuple[RegionBuffer, ...], Dim]:
        """Offsets in the arena for what is neither input, output nor constant."""
        for step, call in enumerate(self.calls):
            for number in call.inputs:
                owner = self.buffers[self._owner(number)]
                owner.last = max(owner.last, step)
        owners = [n for n, buffer in enumerate(self.buffers) if buffer.storage == "arena" and buffer.view_of is None]
        lives = [
            Lifetime(bound_bytes(buffer.layout.shape(buffer.shape), buffer.dtype.bytes), buffer.first, buffer.last)
            for buffer in (self.buffers[n] for n in owners)
        ]
        arena = plan(lives)
        offsets = dict(zip(owners, arena.offsets, strict=True))
        placed = tuple(
            RegionBuffer(
                buffer.name,
                buffer.storage,
                buffer.layout.shape(buffer.shape),
                buffer.dtype,
                buffer.index,
                offsets.get(self._owner(number), 0),
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
        needed = needed.union(*(arith.free_vars(size) for call in self.calls for size in call.sizes))
        for variable in sorted(needed, key=repr):
            if isinstance(variable, arith.SizeVar):
                dims.setdefault(variable, DimSource(variable.name))
        return Signature(inputs, outputs, tuple(dims.values()))


def _hidden_sizes(params: tuple[graph.Var, ...], body: graph.Expr) -> frozenset[arith.Expr]:
    """The dimensions of a fused function that are no whole dimension of a parameter or a result. Nothing says what they are called
    where an equal kernel is called, so kernels are shared only where they are the same."""
    types = [param.type for param in params] + list(result_types(body.type))
    every = frozenset().union(
        *map(type_vars, types), *(attr_vars(x.attrs) for x in graph.post_order(body) if isinstance(x, graph.Call))
    )
    return every.difference(*(tensor_type(type_).shape for type_ in types))


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
