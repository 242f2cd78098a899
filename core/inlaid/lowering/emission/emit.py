"""Second stage of lowering a region: create kernels, their calls in order, and the buffers that the calls read and write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlaid.graph import ir as graph
from inlaid.lowering.emission.buffers import Buffers, Emitted, Planned
from inlaid.lowering.emission.join import Joiner, run_starts
from inlaid.lowering.kernels.bodies import is_operator, source_nodes
from inlaid.lowering.kernels.finish import copy_passes
from inlaid.lowering.kernels.kernel import result_types, tensor_type
from inlaid.lowering.selection.branches import Arms, applicable_versions
from inlaid.lowering.selection.choose import Programs, ScheduleChoice, ScheduleChoices, buffer_alignment
from inlaid.lowering.selection.views import slice_start
from inlaid.ops.define import AxisAttrs
from inlaid.passes.manager import RunPasses, run_passes
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, Predicate, size_vars
from inlaid.tensor.scheduling.rule import KernelContext, Offer
from inlaid.tensor.scheduling.trace import Scheduled, scheduled
from inlaid.tensor.scheduling.work import operations
from inlaid.tensor.transform.layouts import relayout
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.distinct import DistinctArrays
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, DType, Layout, TensorType, Type

Finish = Callable[[ir.LoopProgram], ir.LoopProgram]
"""Lowers a scheduled kernel to plain loops."""
Watch = Callable[[Scheduled], None]
"""Callback for each scheduled kernel with its trace."""
Begin = Callable[[ir.LoopProgram], object]
"""Callback for each finished kernel, before the next kernel is scheduled."""


@dataclass(frozen=True)
class Emission:
    """The kernels of a region, their calls, the buffers that calls refer to by number, the packed constants by name, and the pairs
    (output, input) that share a buffer."""

    kernels: tuple[ir.LoopProgram, ...]
    calls: tuple[KernelCall, ...]
    buffers: tuple[Emitted, ...]
    weights: Mapping[str, np.ndarray[Any, Any]]
    aliases: tuple[tuple[int, int], ...]


def emit(
    function: graph.Function,
    decisions: ScheduleChoices,
    context: KernelContext,
    programs: Programs,
    finish: Finish,
    progress: Callable[[int, int], None],
    watch: Watch | None = None,
    begin: Begin | None = None,
    run: RunPasses[ir.LoopProgram] = run_passes,
) -> Emission:
    """Emit the calls of a region. Finished kernels are cached in `programs`. `progress` is called with the number of expressions
    done and the total, `watch` with each scheduled kernel, `begin` once with each finished kernel. `begin` is not
    called with kernels of calls that write or read a part of a strided concatenation, since `Joiner` may rewrite them. `run` runs
    the passes over copies and joined kernels."""
    emitter = _Emitter(decisions, context, programs, finish, watch, begin, run)
    for number, param in enumerate(function.params):
        emitter.input(param, number)
    for index, (expr, arms) in enumerate(decisions.exprs):
        progress(index, len(decisions.exprs))
        emitter.add(expr, arms)
    return emitter.result(function.body)


class _Emitter:
    """Emits one expression at a time. `_values` maps expressions by id to buffer numbers, `_arrays` buffers to constants,
    `_numbers` kernel keys to kernel numbers, `_operations` kernel keys to arithmetic operations; `_joins` are the concatenations
    that may be eliminated, with their axes."""

    def __init__(
        self,
        decisions: ScheduleChoices,
        context: KernelContext,
        programs: Programs,
        finish: Finish,
        watch: Watch | None,
        begin: Begin | None,
        run: RunPasses[ir.LoopProgram],
    ) -> None:
        self._decisions = decisions
        self._context = context
        self._programs = programs
        self._finish = finish
        self._watch = watch
        self._begin = begin
        self._run = run
        self._begun: set[int] = set()
        self._movable = _movable_calls(decisions, context)
        self._buffers = Buffers()
        self._values: dict[int, tuple[int, ...]] = {}
        self._arrays: dict[int, graph.Constant] = {}
        self._contents = DistinctArrays()
        self._kernels: list[ir.LoopProgram] = []
        self._numbers: dict[Any, int] = {}
        self._calls: list[KernelCall] = []
        self._joins: list[tuple[KernelCall, int]] = []
        self._aliases: dict[int, int] = {}
        self._operations: dict[Any, Dim] = {}

    def input(self, param: graph.Var, number: int) -> None:
        """Add a parameter of the region."""
        type_ = tensor_type(param.type)
        self._values[id(param)] = (self._buffers.add(Planned(param.name, "input", type_.shape, type_.dtype, number)),)

    def add(self, expr: graph.Expr, arms: Arms) -> None:
        """Emit an expression whose operands have been emitted."""
        if id(expr) in self._values:
            return
        self._buffers.predicates = tuple(Predicate(self._values[id(choice.condition)][0], holds) for choice, holds in arms)
        self._values[id(expr)] = self._value(expr)

    def result(self, body: graph.Expr) -> Emission:
        """Put the results of the body into output buffers and return the emission."""
        self._buffers.predicates = ()
        self._outputs(self._values[id(body)])
        kernels, calls = self._kernels, self._calls
        if self._joins:
            buffers = self._buffers
            joiner = Joiner(kernels, calls, buffers.planned, [buffers.owner(number)[0] for number in range(len(buffers.planned))])
            for join in self._joins:
                joiner.join(*join)
            kernels, calls = joiner.rewrite_kernels(self._run)
        weights = self._weights(calls)
        aliases = tuple((self._buffers[root].index, input_index) for root, input_index in self._aliases.items())
        return Emission(tuple(kernels), tuple(calls), self._buffers.settled(), weights, aliases)

    def _value(self, expr: graph.Expr) -> tuple[int, ...]:
        match expr:
            case graph.Tuple(fields=fields):
                return tuple(item for entry in fields for item in self._values[id(entry)])
            case graph.TupleItem(tuple=inner, index=index):
                return (self._values[id(inner)][index],)
            case graph.Constant():
                return (self._constant(expr),)
            case graph.Call(args=args) if graph.operator_traits(expr).view:
                return (self._view(self._values[id(args[0])][0], tensor_type(expr.type)),)
            case graph.Call():
                return self._call(expr, self._decisions.calls[id(expr)])
            case graph.If():
                return self._branch(expr)
        raise AssertionError(f"unexpected {expr!r}: `choose` rejects it")

    def _constant(self, constant: graph.Constant, layout: Layout = ROW_MAJOR) -> int:
        """Add a buffer for a constant in a layout. It is packed only if a call reads it."""
        type_ = tensor_type(constant.type)
        name = ".".join([f"weights{self._contents.add(constant.data)}", *(f"{axis}x{factor}" for axis, factor in layout.blocks)])
        number = self._buffers.add(Planned(name, "constant", type_.shape, type_.dtype, layout=layout))
        self._arrays[number] = constant
        return number

    def _view(self, base: int, type_: TensorType) -> int:
        """Alias a buffer under another shape."""
        return self._buffers.alias(self._in_layout(base, ROW_MAJOR), type_.shape, ROW_MAJOR)

    def _in_layout(self, number: int, layout: Layout) -> int:
        """Return a buffer's contents in a layout: the buffer or an alias if the bytes are the same, a repacked constant, or a copy
        by a kernel. Each copy is made once."""
        buffer = self._buffers[number]
        if buffer.layout == layout:
            return number
        if layout not in buffer.copies or not self._buffers.written(buffer.copies[layout]):
            if number in self._arrays:
                buffer.copies[layout] = self._constant(self._arrays[number], layout)
            elif buffer.layout.canonical(buffer.shape) == layout.canonical(buffer.shape):
                buffer.copies[layout] = self._buffers.alias(number, buffer.shape, layout)
            else:
                buffer.copies[layout] = self._copy(number, layout)
        return buffer.copies[layout]

    def _copy(self, source: int, layout: Layout) -> int:
        """Copy a buffer to a layout. Equal copies share a kernel."""
        buffer = self._buffers[source]
        key = (buffer.shape, buffer.dtype, buffer.layout, layout)
        number = self._kernel(key, lambda: self._relayout(*key))
        program = self._kernels[number]
        target = self._buffers.add(Planned(program.name, "arena", buffer.shape, buffer.dtype, layout=layout))
        self._calls.append(KernelCall(number, (source,), (target,), size_vars(program), predicates=self._buffers.predicates))
        return target

    def _relayout(self, shape: tuple[Dim, ...], dtype: DType, source: Layout, target: Layout) -> ir.LoopProgram:
        """Build a kernel that copies between layouts."""
        program = relayout(shape, dtype, source, target, self._context.threads)
        return self._run(copy_passes(self._context.capabilities), program)

    def _kernel(self, key: Any, make: Callable[[], ir.LoopProgram], settled: bool = True) -> int:
        """Return the number of the kernel with a key; `make` builds it on first use. If `settled`, no later step rewrites the
        kernel, and it begins to compile."""
        if key not in self._numbers:
            self._numbers[key] = len(self._kernels)
            self._kernels.append(make())
        number = self._numbers[key]
        if settled and self._begin is not None and number not in self._begun:
            self._begun.add(number)
            self._begin(self._kernels[number])
        return number

    def _branch(self, choice: graph.If) -> tuple[int, ...]:
        """Emit the results of an `If`: each arm's kernels write them directly if possible; otherwise they are copied."""
        buffers, condition = self._buffers, self._values[id(choice.condition)][0]
        outer = buffers.predicates
        results = [buffers.add(Planned("chosen", "arena", type_.shape, type_.dtype)) for type_ in result_types(choice.type)]
        for arm, holds in ((choice.then, True), (choice.otherwise, False)):
            buffers.predicates = (*outer, Predicate(condition, holds))
            for number, result in zip(self._values[id(arm)], results, strict=True):
                row_major = self._in_layout(number, ROW_MAJOR)
                owner, _, part = buffers.owner(row_major)
                if part or not buffers.movable(owner):
                    owner = self._copy(row_major, ROW_MAJOR)
                buffers[owner].base_buffer = result
        buffers.predicates = outer
        return tuple(results)

    def _call(self, call: graph.Call, decision: ScheduleChoice) -> tuple[int, ...]:
        """Emit a call: as a view of its first argument, as a concatenation whose parts are written in place, or as a kernel."""
        layouts = decision.layouts
        operands = (self._values[id(arg)][0] for arg in decision.args)
        inputs = tuple(map(self._in_layout, operands, layouts))
        if decision.offer is None:
            shape = tensor_type(call.type).shape
            if is_operator(call, "transpose"):
                return (self._buffers.alias(inputs[0], shape, layouts[1]),)
            start = slice_start(call, layouts[0], buffer_alignment(self._context.capabilities))
            assert start is not None
            return (self._buffers.alias(inputs[0], shape, layouts[0], start, part=True),)
        if is_operator(call, "concat") and (joined := self._join(call, inputs, layouts)) is not None:
            return (joined,)
        results = self._emit(call, decision, decision.offer, inputs)
        is_uniform = len(set(layouts)) == 1 and len(inputs) == len(call.args) and not decision.offer.versions
        allows_parts = self._context.capabilities.memory is None  # static memory is planned by whole buffers
        if isinstance(call.attrs, AxisAttrs) and is_operator(call, "concat") and is_uniform and allows_parts:
            self._joins.append((self._calls[-1], call.attrs.axis))
        return results

    def _emit(self, call: graph.Call, decision: ScheduleChoice, offer: Offer, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Emit a kernel call, with one predicated call per version; returns the result buffers."""
        source, buffers = self._programs[decision.program], self._buffers
        types = zip(result_types(call.type), offer.layouts[len(inputs) :], strict=False)
        if id(call) in self._decisions.in_place:
            results = [self._alias_in_place(inputs[0], type_.shape, layout) for type_, layout in types]
        else:
            result_buffers = (Planned(source.name, "arena", type_.shape, type_.dtype, layout=layout) for type_, layout in types)
            results = list(map(buffers.add, result_buffers))
        names, defines = _names(source, decision.args, call.type)
        nodes = source_nodes(call, decision.body)
        work = arith.unwrap(arith.substitute(arith.wrap(self._work(decision.program, source)), names))
        capabilities = self._context.capabilities
        for version, predicates, assumed in applicable_versions(
            source, offer, names, capabilities.branches or capabilities.threads is not None
        ):
            key = (decision.key, offer.rule, offer.layouts, offer.decisions, version)
            number = self._kernel(
                key,
                lambda: self._finished(key, offer, version, source),  # noqa: B023 - called immediately
                id(call) not in self._movable,
            )
            program = self._kernels[number]
            sizes = tuple(names.get(size, size) for size in size_vars(program))
            scratch = program.outputs[len(results) : len(program.outputs) - len(program.defines)]
            scratch_buffers = [
                buffers.add(Planned(item.name, "arena", _renamed(item.shape, names), item.dtype)) for item in scratch
            ]
            call_predicates = (*buffers.predicates, *predicates)
            self._calls.append(
                KernelCall(
                    number, inputs, (*results, *scratch_buffers), sizes, defines, nodes, call_predicates, work, assumed=assumed
                )
            )
        return tuple(results)

    def _finished(self, key: Any, offer: Offer, version: int, source: ir.LoopProgram) -> ir.LoopProgram:
        if key not in self._programs:
            self._programs[key] = self._finish(self._scheduled(offer, version, source))
        return self._programs[key]

    def _scheduled(self, offer: Offer, version: int, source: ir.LoopProgram) -> ir.LoopProgram:
        if self._watch is None:
            return offer.schedules[version](source)
        kernel = scheduled(source, offer, version, self._context)
        self._watch(kernel)
        return kernel.program

    def _work(self, key: Any, source: ir.LoopProgram) -> Dim:
        """Return the number of arithmetic operations of an unscheduled kernel, memoized."""
        if key not in self._operations:
            self._operations[key] = operations(source)
        return self._operations[key]

    def _alias_in_place(self, number: int, shape: tuple[Dim, ...], layout: Layout) -> int:
        """Alias a buffer as the result of an in-place update."""
        owner, _, _ = self._buffers.owner(number)
        if self._buffers[owner].storage == "input":
            self._aliases[owner] = self._buffers[owner].index
        return self._buffers.alias(number, shape, layout)

    def _join(self, call: graph.Call, inputs: tuple[int, ...], layouts: tuple[Layout, ...]) -> int | None:
        """Emit a concatenation whose parts are views of the result, so that their kernels write into it. None if a part is not
        contiguous in the result, or no part can be a view."""
        starts = run_starts(call, layouts, buffer_alignment(self._context.capabilities))
        if starts is None:
            return None
        can_be_view = [self._buffers.movable(number) for number in inputs]
        earlier_inputs: set[int] = set()
        for index, number in enumerate(inputs):
            can_be_view[index] = can_be_view[index] and number not in earlier_inputs
            earlier_inputs.add(number)
        if not any(can_be_view):
            return None
        type_ = tensor_type(call.type)
        result = self._buffers.add(Planned("concat", "arena", type_.shape, type_.dtype, layout=layouts[-1]))
        for number, start, moves in zip(inputs, starts, can_be_view, strict=True):
            item = self._buffers[number if moves else self._copy(number, layouts[-1])]
            item.base_buffer, item.start, item.part = result, start, True
        return result

    def _outputs(self, results: tuple[int, ...]) -> None:
        """Make every result a row-major output buffer: the buffer that the result has if the region owns it, else a copy."""
        output_owners: set[int] = set()
        for number, result in enumerate(results):
            row_major = self._in_layout(result, ROW_MAJOR)
            owner, _, part = self._buffers.owner(row_major)
            is_owned = self._buffers[owner].storage == "arena" or owner in self._aliases
            if not is_owned or owner in output_owners or part:
                owner = self._copy(row_major, ROW_MAJOR)
            output_owners.add(owner)
            self._buffers[owner].storage = "output"
            self._buffers[owner].index = number
        assert output_owners.issuperset(self._aliases), "every input updated in place must alias an output"

    def _weights(self, calls: list[KernelCall]) -> dict[str, np.ndarray[Any, Any]]:
        """Number and pack the constants that calls read."""
        weights: dict[str, np.ndarray[Any, Any]] = {}
        numbers: dict[str, int] = {}
        for call in calls:
            for number in call.inputs:
                owner = self._buffers.owner(number)[0]
                if owner in self._arrays:
                    buffer = self._buffers[owner]
                    buffer.index = numbers.setdefault(buffer.name, len(numbers))
                    if buffer.name not in weights:
                        weights[buffer.name] = buffer.layout.pack(self._arrays[owner].data)
        return weights


def _movable_calls(decisions: ScheduleChoices, context: KernelContext) -> frozenset[int]:
    """Return the ids of calls that write or read a part of a concatenation whose parts are not contiguous in its result."""
    alignment = buffer_alignment(context.capabilities)
    calls = [expr for expr, _ in decisions.exprs if isinstance(expr, graph.Call) and id(expr) in decisions.calls]
    concats = (call for call in calls if is_operator(call, "concat"))
    strided_concats = (call for call in concats if run_starts(call, decisions.calls[id(call)].layouts, alignment) is None)
    parts = {id(_producer(part)) for call in strided_concats for part in call.args}
    return frozenset(id(call) for call in calls if not parts.isdisjoint(id(_producer(item)) for item in (call, *call.args)))


def _producer(expr: graph.Expr) -> graph.Expr:
    """Return the expression that computes a value, which may be an item of its results."""
    return expr.tuple if isinstance(expr, graph.TupleItem) else expr


def _names(
    source: ir.LoopProgram, args: tuple[graph.Expr, ...], result_type: Type
) -> tuple[dict[arith.Expr, arith.Expr], tuple[arith.SizeVar, ...]]:
    """Map an unscheduled kernel's dimensions to the region's, and list the region's dimensions that the kernel defines. Kernels
    that differ only in the names of dimensions are shared."""
    names: dict[arith.Expr, arith.Expr] = {}
    shape_pairs = [(buffer.shape, tensor_type(arg.type).shape) for buffer, arg in zip(source.inputs, args, strict=True)]
    shape_pairs += [(buffer.shape, type_.shape) for buffer, type_ in zip(source.outputs, result_types(result_type), strict=False)]
    for kernel_shape, region_shape in shape_pairs:
        for a, b in zip(kernel_shape, region_shape, strict=True):
            if isinstance(a, arith.SizeVar):
                names.setdefault(a, arith.wrap(b))
    defines = tuple(names[size] for size, _ in source.defines)
    if not all(isinstance(size, arith.SizeVar) for size in defines):
        defined_sizes = ", ".join(map(repr, defines))
        raise CompileError(f"kernel {source.name} must define size variables of the region, found {defined_sizes}")
    return names, tuple(size for size in defines if isinstance(size, arith.SizeVar))


def _renamed(shape: tuple[Dim, ...], names: dict[arith.Expr, arith.Expr]) -> tuple[Dim, ...]:
    return tuple(dim if isinstance(dim, int) else arith.unwrap(arith.substitute(dim, names)) for dim in shape)
