"""A region of the graph as a region program: kernels, calls in order, buffers with places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inlaid import arith
from inlaid.arith import Dim
from inlaid.artifact import ALIGNMENT, Signature
from inlaid.errors import CompileError
from inlaid.graph import ir as graph
from inlaid.graph.attrs import attr_vars
from inlaid.graph.keys import structural_key
from inlaid.graph.operator import Operator
from inlaid.lowering.arrange import arrange
from inlaid.lowering.branches import Arms, in_arms, versions_of
from inlaid.lowering.calls import Part, Root
from inlaid.lowering.choice import LayoutChoice, Option
from inlaid.lowering.finish import finish
from inlaid.lowering.join import Joiner, Planned, run_starts
from inlaid.lowering.kernel import INLINE_LIMIT, KernelSource, build, result_types, tensor_type
from inlaid.lowering.signature import bound_bytes, signature_of
from inlaid.lowering.updates import Exchange, in_place_calls
from inlaid.ops.define import AxisAttrs
from inlaid.ops.shape import SliceAttrs, TransposeAttrs
from inlaid.schedules.generic import GenericRule
from inlaid.schedules.rule import Given, KernelContext, Offer, ScheduleRule
from inlaid.schedules.work import is_bound_by_reductions, predicted_seconds
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, KernelSchedule, Predicate, RegionBuffer, RegionProgram, size_vars
from inlaid.tensor.transform.layouts import relayout
from inlaid.types import ROW_MAJOR, Layout, TensorType, Type, type_vars


@dataclass(frozen=True)
class RegionSource:
    """A region to lower: a closed function whose body is made of calls (of operators and of fused functions), constants, tuples and
    branches. `exchange` says which results may take over the buffers of which parameters, where the target updates in place."""

    name: str
    function: graph.Function
    exchange: Exchange = lambda result, param: True


def lower_region(
    source: RegionSource,
    rules: Sequence[ScheduleRule],
    context: KernelContext,
    progress: Callable[[int, int], None] = lambda done, total: None,
    programs: dict[Any, ir.LoopProgram] | None = None,
    finish: Callable[[ir.LoopProgram], ir.LoopProgram] = finish,
) -> RegionProgram:
    """Lower a region. Equal kernels are built once, also those of regions that share `programs`: of the same rules, context and
    `finish`, which makes plain loops of scheduled kernels. `progress` is told how many expressions are done, and of how many.

    Raises `CompileError` naming operator and node.
    """
    return _RegionLowering(source, tuple(rules), context, {} if programs is None else programs, finish).run(progress)


def schedules_of(source: RegionSource, rules: Sequence[ScheduleRule], context: KernelContext) -> tuple[KernelSchedule, ...]:
    """By which rules a region would be scheduled, without doing so. Raises as `lower_region` does."""
    return _RegionLowering(source, tuple(rules), context).decide()


@dataclass(frozen=True)
class _Step:
    """A call whose layouts are to be chosen: its number among the steps, what is called on what, and how it can be had. `key` tells
    kernels apart, layouts aside; a step without offers is a view."""

    number: int
    args: tuple[graph.Expr, ...]
    body: graph.Expr
    key: Any
    options: tuple[Option, ...]
    offers: tuple[Offer, ...] = ()


@dataclass
class _RegionLowering:
    source: RegionSource
    rules: tuple[ScheduleRule, ...]
    context: KernelContext
    programs: dict[Any, ir.LoopProgram] = field(default_factory=dict)
    finish: Callable[[ir.LoopProgram], ir.LoopProgram] = finish
    kernels: list[ir.LoopProgram] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)
    offers: dict[Any, tuple[Offer, ...]] = field(default_factory=dict)
    steps: dict[int, _Step] = field(default_factory=dict)
    chosen: list[int] = field(default_factory=list)
    movers: dict[Any, int] = field(default_factory=dict)
    calls: list[KernelCall] = field(default_factory=list)
    buffers: list[Planned] = field(default_factory=list)
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    arrays: dict[int, graph.Constant] = field(default_factory=dict)
    values: dict[int, tuple[int, ...]] = field(default_factory=dict)
    joins: list[tuple[KernelCall, int]] = field(default_factory=list)
    predicates: tuple[Predicate, ...] = ()
    in_place: frozenset[int] = frozenset()
    aliases: dict[int, int] = field(default_factory=dict)

    def run(self, progress: Callable[[int, int], None]) -> RegionProgram:
        function = self.source.function
        schedules = self.decide()
        for number, param in enumerate(function.params):
            type_ = tensor_type(param.type)
            self.values[id(param)] = (self._add(Planned(param.name, "input", type_.shape, type_.dtype, number)),)
        exprs = in_arms(graph.in_order(function.body))
        for done, (expr, arms) in enumerate(exprs):
            progress(done, len(exprs))
            if id(expr) not in self.values:
                self.predicates = self._within(arms)
                self._visit(expr)
        self.predicates = ()
        self._outputs(self.values[id(function.body)])
        if self.joins:
            joiner = Joiner(self.kernels, self.calls, self.buffers, [self._owner(at)[0] for at in range(len(self.buffers))])
            for join in self.joins:
                joiner.join(*join)
            self.kernels, self.calls = joiner.done()
        self._store_weights()
        buffers, workspace, fast = self._place()
        return RegionProgram(
            self.source.name,
            tuple(self.kernels),
            tuple(self.calls),
            buffers,
            self._signature(),
            self.weights,
            workspace,
            fast,
            schedules,
            tuple((self.buffers[root].index, given) for root, given in self.aliases.items()),
        )

    def decide(self) -> tuple[KernelSchedule, ...]:
        """Choose how every call is had."""
        exprs = in_arms(graph.in_order(self.source.function.body))
        if self.context.capabilities.in_place:
            self.in_place = in_place_calls(self.source.function, exprs, self.source.exchange)
        self._choose(tuple(expr for expr, _ in exprs))
        return tuple(self._schedule(step) for step in self.steps.values() if step.offers)

    def _schedule(self, step: _Step) -> KernelSchedule:
        program, capabilities = self.programs[step.key[0]], self.context.capabilities
        rule, reduces = step.offers[self.chosen[step.number]].rule, is_bound_by_reductions(program, capabilities)
        return KernelSchedule(
            rule,
            tuple(_operators(step.body)),
            source_nodes(step.body, step.body),
            tuple(sorted({str(variable) for arg in step.args for variable in type_vars(arg.type)})),
            # The generic schedule reduces one element after the other.
            predicted_seconds(program, capabilities, vectors=not (reduces and rule in ("", GenericRule.name))),
            reduces,
        )

    def _add(self, buffer: Planned) -> int:
        buffer.predicates = self.predicates
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
            case graph.Call(args=args) if graph.traits_of(expr).view:
                self.values[id(expr)] = (self._view(self.values[id(args[0])][0], tensor_type(expr.type)),)
            case graph.Call():
                self._call(expr, self.steps[id(expr)])
            case graph.If():
                self.values[id(expr)] = self._branch(expr)

    def _constant(self, constant: graph.Constant, layout: Layout = ROW_MAJOR) -> int:
        """A buffer for a constant; it is stored in a layout only once a call reads it in that layout."""
        type_ = tensor_type(constant.type)
        name = ".".join([constant.digest()[:32], *(f"{axis}x{factor}" for axis, factor in layout.blocks)])
        number = self._add(Planned(name, "constant", type_.shape, type_.dtype, layout=layout))
        self.arrays[number] = constant
        return number

    def _view(self, base: int, type_: TensorType) -> int:
        """The same bytes under another shape."""
        base = self._in_layout(base, ROW_MAJOR)
        return self._alias(base, type_.shape, ROW_MAJOR)

    def _alias(self, base: int, shape: tuple[Dim, ...], layout: Layout, start: int = 0, part: bool = False) -> int:
        """A buffer that lies in another, from a byte on."""
        buffer = self.buffers[base]
        return self._add(
            Planned(f"{buffer.name}_view", buffer.storage, shape, buffer.dtype, view_of=base, start=start, part=part, layout=layout)
        )

    def _in_layout(self, number: int, layout: Layout) -> int:
        """The buffer in a layout: itself, where it lies so or in the same bytes; a constant packed now; or a copy that a kernel
        makes; each copy is made once."""
        buffer = self.buffers[number]
        if buffer.layout == layout:
            return number
        if layout not in buffer.copies or not self._there(buffer.copies[layout]):
            if number in self.arrays:
                buffer.copies[layout] = self._constant(self.arrays[number], layout)
            elif buffer.layout.canonical(buffer.shape) == layout.canonical(buffer.shape):
                buffer.copies[layout] = self._alias(number, buffer.shape, layout)
            else:
                buffer.copies[layout] = self._copy(number, layout)
        return buffer.copies[layout]

    # --- branches ---

    def _within(self, arms: Arms) -> tuple[Predicate, ...]:
        """The predicates under which what stands in arms of branches runs."""
        return tuple(Predicate(self.values[id(choice.condition)][0], holds) for choice, holds in arms)

    def _there(self, number: int) -> bool:
        """Whether a buffer is written wherever the current predicates hold."""
        written = self.buffers[number].predicates
        return self.predicates[: len(written)] == written

    def _branch(self, choice: graph.If) -> tuple[int, ...]:
        """The results of a branch: each arm writes them where its kernels can, else copies them there."""
        outer, condition = self.predicates, self.values[id(choice.condition)][0]
        results = [self._add(Planned("chosen", "arena", type_.shape, type_.dtype)) for type_ in result_types(choice.type)]
        for arm, holds in ((choice.then, True), (choice.otherwise, False)):
            self.predicates = (*outer, Predicate(condition, holds))
            for number, result in zip(self.values[id(arm)], results, strict=True):
                chosen = self._in_layout(number, ROW_MAJOR)
                owner, _, part = self._owner(chosen)
                if part or not self._movable(owner):
                    owner = self._copy(chosen, ROW_MAJOR)
                self.buffers[owner].view_of = result
        self.predicates = outer
        return tuple(results)

    # --- layouts ---

    def _choose(self, exprs: tuple[graph.Expr, ...]) -> None:
        """Choose the layouts of all calls."""
        choice = LayoutChoice(self.context.capabilities.bandwidth / max(self.context.capabilities.cores, 1))
        constant = {id(expr) for expr in exprs if isinstance(expr, graph.Constant)}
        values: dict[int, tuple[int | None, ...]] = {}
        row_major = (Option((ROW_MAJOR,)),)
        for param in self.source.function.params:
            type_ = tensor_type(param.type)
            values[id(param)] = choice.step((), ((type_.shape, type_.dtype),), row_major)
        for expr in exprs:
            match expr:
                case graph.Constant():
                    values[id(expr)] = (None,)
                case graph.Tuple(fields=fields):
                    values[id(expr)] = tuple(item for entry in fields for item in values[id(entry)])
                case graph.TupleItem(tuple=inner, index=index):
                    values[id(expr)] = (values[id(inner)][index],)
                case graph.Call(args=args, callee=graph.Function() | Operator()):
                    results = [(type_.shape, type_.dtype) for type_ in result_types(expr.type)]
                    if graph.traits_of(expr).view:
                        base = values[id(args[0])][0]
                        values[id(expr)] = (
                            (None,) if base is None else choice.step((base,), results, (Option((ROW_MAJOR, ROW_MAJOR)),))
                        )
                        continue
                    step = self._step(expr, choice, values, constant)
                    self.steps[id(expr)] = step
                    given = tuple(values[id(arg)][0] for arg in step.args)
                    values[id(expr)] = choice.step(given, results, step.options)
                case graph.If(condition=condition, then=then, otherwise=otherwise):
                    for value in (*values[id(condition)], *values[id(then)], *values[id(otherwise)]):
                        if value is not None:
                            choice.step((value,), (), row_major)
                    results = [(type_.shape, type_.dtype) for type_ in result_types(expr.type)]
                    values[id(expr)] = tuple(choice.step((), (result,), row_major)[0] for result in results)
                case _ if id(expr) not in values:
                    raise CompileError(
                        f"region {self.source.name} holds {expr!r}, which cannot be lowered", node=str(expr.span or "")
                    )
        for value in values[id(self.source.function.body)]:
            if value is not None:
                choice.step((value,), (), row_major)
        self.chosen = choice.solve()

    def _step(self, call: graph.Call, choice: LayoutChoice, values: dict[int, tuple[int | None, ...]], constant: set[int]) -> _Step:
        """How a call can be had."""
        number = choice.count
        if isinstance(call.callee, graph.Function):
            params, body, args = inline_scalars(call.callee.params, call.callee.body, call.args)
        else:
            params = tuple(graph.var(f"x{index}", arg.type) for index, arg in enumerate(call.args))
            params, body, args = inline_scalars(
                params, graph.Call(call.type, call.span, call.callee, params, call.attrs), call.args
            )
        given = [values[id(arg)][0] for arg in args]
        known = [choice.layouts(value) if value is not None else (ROW_MAJOR,) for value in given]
        viewed = given[0] if given else None  # scalars are no arguments any more
        if is_operator(call, "strided_slice") and viewed is not None:
            # A part that is one run of memory is read where it lies.
            views = tuple(Option((layout, layout)) for layout in known[0] if self._slice_start(call, layout) is not None)
            if views:
                return _Step(number, args, body, None, views)
        if is_operator(call, "transpose") and viewed is not None and self.context.capabilities.memory is not None:
            views = tuple(Option((layout, view)) for layout in known[0] if (view := transposed(call, layout)) is not None)
            if views:
                return _Step(number, args, body, None, views)
        in_place = id(call) in self.in_place
        shape = (structural_key(graph.function(params, body)), _hidden_sizes(params, body), in_place)
        if shape not in self.programs:
            self.programs[shape] = build(KernelSource(_kernel_name(body), params, body, in_place))
        # Rules are asked once for every layout in which some input may lie.
        facts = tuple(id(arg) in constant for arg in args)
        offers: dict[tuple[Layout, ...], Offer] = {}
        lie = (item for layouts, fact in zip(known, facts, strict=True) if not fact for item in layouts)
        for layout in dict.fromkeys(lie) or (ROW_MAJOR,):
            # Where some are row-major, others may have to be copied: what keeps blocks for the sake of one would copy all others.
            asked = tuple(
                Given(layout if layout in (*layouts, ROW_MAJOR) else layouts[0], fact)
                for layouts, fact in zip(known, facts, strict=True)
            )
            for offer in self._offered(shape, asked):
                best = offers.setdefault(offer.layouts, offer)
                if offer.cost < best.cost:
                    offers[offer.layouts] = offer
        if in_place:
            offers = {layouts: offer for layouts, offer in offers.items() if layouts[0] == layouts[len(args)]}
        count = len(args) + len(result_types(call.type))
        options = tuple(Option(offer.layouts[:count], offer.cost) for offer in offers.values())
        return _Step(number, args, body, (shape, facts), options, tuple(offers.values()))

    def _offered(self, shape: Any, given: tuple[Given, ...]) -> tuple[Offer, ...]:
        """What the first rule that does not decline offers; without one, the program as it is, over row-major buffers."""
        key = (shape, given)
        if key not in self.offers:
            source = self.programs[shape]
            self.offers[key] = (Offer((ROW_MAJOR,) * len(source.params), lambda program: program),)
            for rule in self.rules:
                offered = rule.offer(source, self.context, given)
                if offered:
                    every = offered if isinstance(offered, tuple) else (offered,)
                    self.offers[key] = tuple(replace(offer, rule=rule.name) for offer in every)
                    break
        return self.offers[key]

    # --- calls ---

    def _call(self, call: graph.Call, step: _Step) -> None:
        option = self.chosen[step.number]
        layouts = step.options[option].layouts
        inputs = tuple(self._in_layout(self.values[id(arg)][0], layout) for arg, layout in zip(step.args, layouts, strict=False))
        if not step.offers:
            shape = tensor_type(call.type).shape
            if is_operator(call, "transpose"):
                self.values[id(call)] = (self._alias(inputs[0], shape, layouts[1]),)
                return
            start = self._slice_start(call, layouts[0])
            assert start is not None
            self.values[id(call)] = (self._alias(inputs[0], shape, layouts[0], start, part=True),)
        elif is_operator(call, "concat") and (joined := self._join(call, inputs, layouts)) is not None:
            self.values[id(call)] = (joined,)
        else:
            self._emit(call, step, step.offers[option], inputs)
            alike = len(set(layouts)) == 1 and len(inputs) == len(call.args) and not step.offers[option].versions
            large = self.context.capabilities.memory is None  # scarce memory is planned by whole buffers
            if isinstance(call.attrs, AxisAttrs) and is_operator(call, "concat") and alike and large:
                self.joins.append((self.calls[-1], call.attrs.axis))

    def _emit(self, call: graph.Call, origin: _Step, offer: Offer, inputs: tuple[int, ...]) -> None:
        """Call a kernel on buffers: the first of its versions that suits the sizes, where it has several."""
        source = self.programs[origin.key[0]]
        types = zip(result_types(call.type), offer.layouts[len(inputs) :], strict=False)
        if id(call) in self.in_place:
            results = [self._taken_over(inputs[0], type_.shape, layout) for type_, layout in types]
        else:
            results = [self._add(Planned(source.name, "arena", type_.shape, type_.dtype, layout=layout)) for type_, layout in types]
        names, defines = self._names(source, origin.args, call.type)
        nodes = source_nodes(call, origin.body)
        for version, predicates, schedule in versions_of(source, offer, names, self.context.capabilities.branches):
            key = (origin.key, offer.layouts, offer.cost, version)
            if key not in self.known:
                self.known[key] = len(self.kernels)
                self.kernels.append(self.programs.get(key) or self.programs.setdefault(key, self.finish(schedule(source))))
            number = self.known[key]
            program = self.kernels[number]
            sizes = tuple(names.get(size, size) for size in size_vars(program))
            scratch = program.outputs[len(results) : len(program.outputs) - len(program.defines)]
            spare = [self._add(Planned(item.name, "arena", _renamed(item.shape, names), item.dtype)) for item in scratch]
            when = (*self.predicates, *predicates)
            self.calls.append(KernelCall(number, inputs, (*results, *spare), sizes, defines, nodes, when))
        self.values[id(call)] = tuple(results)

    def _taken_over(self, number: int, shape: tuple[Dim, ...], layout: Layout) -> int:
        """The result of an update in place of a buffer."""
        owner, _, _ = self._owner(number)
        if self.buffers[owner].storage == "input":
            self.aliases[owner] = self.buffers[owner].index
        return self._alias(number, shape, layout)

    def _join(self, call: graph.Call, inputs: tuple[int, ...], layouts: tuple[Layout, ...]) -> int | None:
        """The result of a concatenation whose parts kernels write where they belong in it, instead of elsewhere to be copied; None
        where its parts are no runs of memory, or none can be written so."""
        starts = run_starts(call, layouts, self._alignment)
        if starts is None:
            return None
        free = [self._movable(number) for number in inputs]
        taken: set[int] = set()
        for place, number in enumerate(inputs):
            free[place] = free[place] and number not in taken
            taken.add(number)
        if not any(free):
            return None
        type_ = tensor_type(call.type)
        result = self._add(Planned("concat", "arena", type_.shape, type_.dtype, layout=layouts[-1]))
        for number, start, moves in zip(inputs, starts, free, strict=True):
            place = number if moves else self._copy(number, layouts[-1])
            item = self.buffers[place]
            item.view_of, item.start, item.part = result, start, True
        return result

    def _movable(self, number: int) -> bool:
        """Whether a buffer can still be put into another: a kernel's own result, which is part of nothing else, of the same arm."""
        buffer = self.buffers[number]
        return buffer.storage == "arena" and buffer.view_of is None and buffer.predicates == self.predicates

    def _names(
        self, source: ir.LoopProgram, args: tuple[graph.Expr, ...], outer: Type
    ) -> tuple[dict[arith.Expr, arith.Expr], tuple[arith.SizeVar, ...]]:
        """The dimensions of an unscheduled kernel in terms of the region's, and those of the region that it defines: kernels that
        are equal up to the names of dimensions are shared."""
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
        return names, tuple(size for size in defines if isinstance(size, arith.SizeVar))

    # --- outputs and places ---

    def _outputs(self, results: tuple[int, ...]) -> None:
        """Give every result a place with the caller, row-major: the buffer itself where it is a kernel's own, else a copy."""
        taken: set[int] = set()
        for number, result in enumerate(results):
            chosen = self._in_layout(result, ROW_MAJOR)
            owner, _, part = self._owner(chosen)
            own = self.buffers[owner].storage == "arena" or owner in self.aliases
            if not own or owner in taken or part:
                owner = self._copy(chosen, ROW_MAJOR)
            taken.add(owner)
            self.buffers[owner].storage = "output"
            self.buffers[owner].index = number
        assert taken.issuperset(self.aliases), "an input is updated in place that no output takes over"

    def _owner(self, number: int) -> tuple[int, int, bool]:
        """The buffer in which a buffer lies in the end, from which byte on, and whether it is only a part of that."""
        path = []
        while (root := self.buffers[number].view_of) is not None:
            path.append(number)
            number = root
        start, part = 0, False
        for item in reversed(path):
            # Ways are shortened as they are walked, so that long chains of concatenations are walked once.
            buffer = self.buffers[item]
            start, part = start + buffer.start, part or buffer.part
            buffer.view_of, buffer.start, buffer.part = number, start, part
        return number, start, part

    def _store_weights(self) -> None:
        """Number the constants that calls read, pack them, and tell views what they are views of."""
        numbers: dict[str, int] = {}
        for call in self.calls:
            for number in call.inputs:
                owner = self._owner(number)[0]
                if owner in self.arrays:
                    buffer = self.buffers[owner]
                    buffer.index = numbers.setdefault(buffer.name, len(numbers))
                    if buffer.name not in self.weights:
                        self.weights[buffer.name] = buffer.layout.pack(self.arrays[owner].data)
        for number, view in enumerate(self.buffers):
            if view.view_of is not None:
                root_buffer = self.buffers[self._owner(number)[0]]
                view.storage, view.index = root_buffer.storage, root_buffer.index

    def _copy(self, source: int, layout: Layout) -> int:
        """A copy of a buffer in a layout. Equal copies share a kernel."""
        buffer = self.buffers[source]
        key = (buffer.shape, buffer.dtype, buffer.layout, layout)
        if key not in self.movers:
            self.movers[key] = len(self.kernels)
            self.kernels.append(relayout(*key, self.context.threads))
        program = self.kernels[self.movers[key]]
        target = self._add(Planned(program.name, "arena", buffer.shape, buffer.dtype, layout=layout))
        self.calls.append(KernelCall(self.movers[key], (source,), (target,), size_vars(program), predicates=self.predicates))
        return target

    @property
    def _alignment(self) -> int:
        """Of buffers, in bytes."""
        memory = self.context.capabilities.memory
        return ALIGNMENT if memory is None else memory.alignment

    def _slice_start(self, call: graph.Call, layout: Layout) -> int | None:
        return _slice_start(call, layout, self._alignment)

    def _place(self) -> tuple[tuple[RegionBuffer, ...], Dim, int]:
        """Put calls in order, and give buffers places in the arena."""
        places = [self._owner(number) for number in range(len(self.buffers))]
        roots = {
            number: Root(buffer.storage, bound_bytes(buffer.layout.shape(buffer.shape), buffer.dtype.bytes))
            for number, buffer in enumerate(self.buffers)
            if buffer.view_of is None
        }
        inside = [
            Part(owner, start, bound_bytes(buffer.layout.shape(buffer.shape), buffer.dtype.bytes))
            for buffer, (owner, start, _) in zip(self.buffers, places, strict=True)
        ]
        arrangement = arrange(self.kernels, self.calls, inside, roots, self.context.capabilities.memory)
        self.kernels, self.calls = list(arrangement.region.kernels), list(arrangement.region.calls)
        for buffer, (owner, _, _) in zip(self.buffers, places, strict=True):
            if owner in arrangement.region.windows:
                buffer.shape, buffer.layout = arrangement.region.windows[owner].shape, ROW_MAJOR
        placed = tuple(
            RegionBuffer(
                buffer.name,
                buffer.storage,
                buffer.layout.shape(buffer.shape),
                buffer.dtype,
                buffer.index,
                arith.unwrap(arith.add(arrangement.offsets.get(owner, 0), start)),
                owner in arrangement.quick,
            )
            for buffer, (owner, start, _) in zip(self.buffers, places, strict=True)
        )
        return placed, arrangement.size, arrangement.fast

    def _signature(self) -> Signature:
        defined = [size for call in self.calls for size in call.defines]
        read = [size for call in self.calls for size in call.sizes]
        read += [item.condition for call in self.calls for item in call.predicates if isinstance(item.condition, arith.Expr)]
        needed = frozenset().union(*map(arith.free_vars, read))
        return signature_of(self.source.function, defined, needed)


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


def is_operator(call: graph.Call, name: str) -> bool:
    """Whether a call is one of an operator of a name."""
    return isinstance(call.callee, Operator) and call.callee.name == name


def transposed(call: graph.Call, layout: Layout) -> Layout | None:
    """The layout in which the result of a transposition of what lies in a layout is the same bytes; None where none is found."""
    attrs, source = call.attrs, tensor_type(call.args[0].type)
    assert isinstance(attrs, TransposeAttrs)
    order = layout.order(source.shape)
    if order is None:
        return None
    shape = tensor_type(call.type).shape
    if 0 in shape:
        return ROW_MAJOR
    wanted = [attrs.perm.index(axis) for axis in order]
    # As few blocks as will do: the axes that follow in another order than that of the shape.
    for start in range(len(wanted), -1, -1):
        blocks = [(axis, shape[axis]) for axis in wanted[start:]]
        found = Layout(tuple((axis, size) for axis, size in blocks if isinstance(size, int)))
        if found.order(shape) == wanted:
            return found
    return None


def _slice_start(call: graph.Call, layout: Layout, alignment: int) -> int | None:
    """From which byte of its operand on the result of a slice lies there in one run; None where it does not, or not aligned."""
    attrs = call.attrs
    assert isinstance(attrs, SliceAttrs)
    source = tensor_type(call.args[0].type)
    cut = [axis for axis, (dim, size) in enumerate(zip(source.shape, tensor_type(call.type).shape, strict=True)) if dim != size]
    if any(stride != 1 for stride in attrs.strides) or len(cut) != 1:
        return None
    axis = cut[0]
    begin, extent = attrs.begin[axis], tensor_type(call.type).shape[axis]
    if not isinstance(begin, int) or not isinstance(extent, int):
        return None
    start = layout.part(source.shape, axis, begin, extent)
    return None if start is None or start * source.dtype.bytes % alignment else start * source.dtype.bytes


def _renamed(shape: tuple[Dim, ...], names: dict[arith.Expr, arith.Expr]) -> tuple[Dim, ...]:
    return tuple(dim if isinstance(dim, int) else arith.unwrap(arith.substitute(dim, names)) for dim in shape)


def _operators(body: graph.Expr) -> list[str]:
    """The names of the operators of a kernel, operands first."""
    return [e.callee.name for e in graph.post_order(body) if isinstance(e, graph.Call) and isinstance(e.callee, Operator)]


def _kernel_name(body: graph.Expr) -> str:
    return "_".join(_operators(body))[:60] or "empty"


def source_nodes(call: graph.Expr, body: graph.Expr) -> tuple[str, ...]:
    """The names of the source nodes that a call of a function with this body computes."""
    spans = [expr.span for expr in graph.post_order(body) if isinstance(expr, graph.Call)] + [call.span]
    return tuple(dict.fromkeys(span.node for span in spans if span is not None and span.node))
