"""First stage of lowering a region: choose a schedule offer and layouts for each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inlaid.graph import ir as graph
from inlaid.graph.keys import structural_key
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.bodies import hidden_sizes, inlined_body, is_operator, kernel_name, operator_names, source_nodes
from inlaid.lowering.kernels.kernel import KernelSource, build, result_types, tensor_type, thread_grid
from inlaid.lowering.kernels.kernel_sizes import parametrize_sizes
from inlaid.lowering.kernels.scalars import varying_scalars
from inlaid.lowering.selection.branches import Arms, in_arms
from inlaid.lowering.selection.layouts import LayoutChoice, Option
from inlaid.lowering.selection.updates import Exchange, in_place_calls
from inlaid.lowering.selection.views import slice_start, transposed
from inlaid.ops.shape import transpose
from inlaid.passes.supported import Supports, supports_everything
from inlaid.plugins.contract import Capabilities
from inlaid.tensor import ir
from inlaid.tensor.region import KernelSchedule, Utilization
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, ScheduleRule
from inlaid.tensor.scheduling.trace import collect_offers, unscheduled
from inlaid.tensor.scheduling.work import is_bound_by_reductions, predicted_seconds
from inlaid_runtime.arith import Constraint
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import CompileError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import ROW_MAJOR, Layout, TensorType, type_vars

Programs = dict[Any, ir.LoopProgram]
"""Cache of loop programs. Unscheduled kernels are keyed by their graph body, finished kernels by that key and their schedule."""

_ROW_MAJOR = (Option((ROW_MAJOR,)),)


@dataclass(frozen=True)
class RegionSource:
    """A region to lower: a closed function whose body consists of calls (of operators and fused functions), constants, tuples and
    branches. `exchange(result, parameter)` returns whether a result may reuse a parameter's buffer, for targets that update in
    place. `supports` returns whether the target supports an operator call. `conditions` are the preconditions of the region's
    operators that are not proved; the region checks those on sizes that it computes."""

    name: str
    function: graph.Function
    exchange: Exchange = lambda result, param: True
    supports: Supports = supports_everything
    conditions: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class ScheduleChoice:
    """An implementation of a call: `body` applied to `args`, with `layouts` of the arguments, then results. `program` is the cache
    key of the unscheduled kernel; `key` is the cache key of its scheduled kernels, layouts excluded. If `offer` is None, the result
    is a view of the first argument.
    """

    args: tuple[graph.Expr, ...]
    body: graph.Expr
    layouts: tuple[Layout, ...]
    program: Any = None
    key: Any = None
    offer: Offer | None = None

    @property
    def option(self) -> Option:
        """The decision as an option for `LayoutChoice`."""
        return Option(self.layouts, 0.0 if self.offer is None else self.offer.cost)


@dataclass(frozen=True)
class ScheduleChoices:
    """The expressions of a region in execution order with their enclosing arms; the decision for each call that is not a view, by
    id; and the ids of calls that update in place."""

    exprs: Sequence[tuple[graph.Expr, Arms]]
    calls: Mapping[int, ScheduleChoice]
    in_place: frozenset[int]


def choose(
    source: RegionSource,
    rules: Sequence[ScheduleRule],
    context: KernelContext,
    programs: Programs,
    shared: Sequence[ScheduleRule] = (),
) -> ScheduleChoices:
    """Choose an implementation of every call to minimize the total time of kernels and layout copies. Offers of the rules that are
    `shared` by targets are dropped if the target does not support the copies to their layouts. Adds unscheduled kernels to
    `programs`. Raises `CompileError` naming operator and node."""
    exprs = in_arms(graph.in_order(source.function.body))
    in_place: frozenset[int] = frozenset()
    if context.capabilities.in_place:
        in_place = in_place_calls(source.function, exprs, source.exchange)
    steps = _Steps(source, rules, context, programs, shared, in_place)
    steps.read(tuple(expr for expr, _ in exprs))
    return ScheduleChoices(exprs, steps.decided(), in_place)


def schedules(decisions: ScheduleChoices, programs: Programs, capabilities: Capabilities) -> tuple[KernelSchedule, ...]:
    """Report the schedule rule and predicted time of each kernel."""
    return tuple(
        _schedule(decision, decision.offer, programs[decision.program], capabilities)
        for decision in decisions.calls.values()
        if decision.offer is not None
    )


def buffer_alignment(capabilities: Capabilities) -> int:
    """Return the alignment of buffers in bytes."""
    return ALIGNMENT if capabilities.memory is None else capabilities.memory.alignment


def _schedule(decision: ScheduleChoice, offer: Offer, program: ir.LoopProgram, capabilities: Capabilities) -> KernelSchedule:
    reduces = is_bound_by_reductions(program, capabilities)
    return KernelSchedule(
        offer.rule,
        tuple(operator_names(decision.body)),
        source_nodes(decision.body, decision.body),
        tuple(sorted({str(variable) for arg in decision.args for variable in type_vars(arg.type)})),
        predicted_seconds(program, capabilities, _share(offer.utilization, reduces, capabilities)),
        reduces,
        offer.utilization,
    )


def _share(utilization: Utilization, reduces: bool, capabilities: Capabilities) -> int:
    """Return n for a schedule that reaches 1/n of peak arithmetic, since it uses one of n resident threads or, for reductions, one
    of n vector lanes; 1 for any other schedule."""
    if utilization is Utilization.SERIAL and capabilities.threads is not None:
        return capabilities.threads.resident
    return max(1, capabilities.vector_bits // 32) if reduces and utilization is Utilization.SCALAR else 1


class _Steps:
    """Collects the steps of a region for `LayoutChoice`. `_values` maps expressions by id to their value numbers, None for
    constants. `_calls` maps calls by id to their step number and candidate decisions."""

    def __init__(
        self,
        source: RegionSource,
        rules: Sequence[ScheduleRule],
        context: KernelContext,
        programs: Programs,
        shared: Sequence[ScheduleRule],
        in_place: frozenset[int],
    ) -> None:
        self._source = source
        self._rules = rules
        self._context = context
        self._programs = programs
        self._shared = shared
        self._in_place = in_place
        capabilities = context.capabilities
        self._choice = LayoutChoice(capabilities.bandwidth / max(capabilities.cores, 1), capabilities.core.costs.call_seconds)
        self._values: dict[int, tuple[int | None, ...]] = {}
        self._calls: dict[int, tuple[int, tuple[ScheduleChoice, ...]]] = {}
        self._offers: dict[Any, tuple[Offer, ...]] = {}
        self._copyable: dict[TensorType, bool] = {}
        self._varying: dict[int, frozenset[int]] = {}

    def decided(self) -> dict[int, ScheduleChoice]:
        """Solve for the cheapest decision per call, by id."""
        chosen = self._choice.solve()
        return {call: decisions[chosen[number]] for call, (number, decisions) in self._calls.items()}

    def read(self, exprs: tuple[graph.Expr, ...]) -> None:
        """Add steps for all expressions of a region, operands first, and for the row-major uses of its results."""
        source, choice, values = self._source, self._choice, self._values
        constant = {id(expr) for expr in exprs if isinstance(expr, graph.Constant)}
        if self._context.capabilities.memory is None and self._context.capabilities.threads is None:
            self._varying = varying_scalars(expr for expr in exprs if isinstance(expr, graph.Call))
        for param in source.function.params:
            type_ = tensor_type(param.type)
            values[id(param)] = choice.step((), ((type_.shape, type_.dtype),), _ROW_MAJOR)
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
                    if graph.operator_traits(expr).view:
                        base = values[id(args[0])][0]
                        values[id(expr)] = (
                            (None,) if base is None else choice.step((base,), results, (Option((ROW_MAJOR, ROW_MAJOR)),))
                        )
                        continue
                    decisions = self._decisions(expr, constant)
                    self._calls[id(expr)] = choice.count, decisions
                    inputs = tuple(values[id(arg)][0] for arg in decisions[0].args)
                    values[id(expr)] = choice.step(inputs, results, [decision.option for decision in decisions])
                case graph.If(condition=condition, then=then, otherwise=otherwise):
                    self._take((*values[id(condition)], *values[id(then)], *values[id(otherwise)]))
                    results = [(type_.shape, type_.dtype) for type_ in result_types(expr.type)]
                    values[id(expr)] = tuple(choice.step((), (result,), _ROW_MAJOR)[0] for result in results)
                case _ if id(expr) not in values:
                    problem = f"must consist of operators, functions, constants, tuples and branches, found {expr!r}"
                    raise CompileError(f"region {source.name} {problem}", node=str(expr.span or ""))
        self._take(values[id(source.function.body)])

    def _take(self, values: tuple[int | None, ...]) -> None:
        """Add a step that reads values in row-major layout."""
        for value in values:
            if value is not None:
                self._choice.step((value,), (), _ROW_MAJOR)

    def _decisions(self, call: graph.Call, constant: set[int]) -> tuple[ScheduleChoice, ...]:
        """Enumerate the candidate decisions for a call. There is always at least one."""
        capabilities = self._context.capabilities
        params, body, args = inlined_body(call, self._varying.get(id(call), frozenset()))
        inputs = [self._values[id(arg)][0] for arg in args]
        input_layouts = [self._choice.layouts(value) if value is not None else (ROW_MAJOR,) for value in inputs]
        first_input = inputs[0] if inputs else None  # scalar constants are inlined, not arguments
        if is_operator(call, "strided_slice") and first_input is not None:
            # A contiguous slice is a view.
            alignment = buffer_alignment(capabilities)
            fitting = (layout for layout in input_layouts[0] if slice_start(call, layout, alignment) is not None)
            views = tuple(ScheduleChoice(args, body, (layout, layout)) for layout in fitting)
            if views:
                return views
        if is_operator(call, "transpose") and first_input is not None and capabilities.memory is not None:
            pairs = ((layout, transposed(call, layout)) for layout in input_layouts[0])
            views = tuple(ScheduleChoice(args, body, (layout, view)) for layout, view in pairs if view is not None)
            if views:
                return views
        in_place = id(call) in self._in_place
        kernel = parametrize_sizes(params, body)
        program = (
            structural_key(graph.function(kernel.params, kernel.body)),
            hidden_sizes(kernel.params, kernel.body),
            kernel.facts,
            in_place,
        )
        if program not in self._programs:
            source = KernelSource(kernel_name(body), kernel.params, kernel.body, in_place)
            self._programs[program] = build(source, thread_grid(capabilities))
        are_constant = tuple(id(arg) in constant for arg in args)
        offers = self._offers_for(program, input_layouts, are_constant)
        if in_place:
            offers = {layouts: offer for layouts, offer in offers.items() if layouts[0] == layouts[len(args)]}
        count = len(args) + len(result_types(call.type))
        key = (program, are_constant)
        return tuple(ScheduleChoice(args, body, offer.layouts[:count], program, key, offer) for offer in offers.values())

    def _offers_for(
        self, program: Any, input_layouts: Sequence[tuple[Layout, ...]], are_constant: Sequence[bool]
    ) -> dict[tuple[Layout, ...], Offer]:
        """Find the cheapest offer for a kernel per combination of layouts. Rules are queried once per layout that some input may
        have; `are_constant` holds whether each input is constant."""
        offers: dict[tuple[Layout, ...], Offer] = {}
        options = (
            item for layouts, is_constant in zip(input_layouts, are_constant, strict=True) if not is_constant for item in layouts
        )
        for layout in dict.fromkeys(options) or (ROW_MAJOR,):
            # Ask about row-major for all inputs together: for a single blocked input a rule would keep blocks and copy all others.
            infos = tuple(
                InputInfo(layout if layout in (*layouts, ROW_MAJOR) else layouts[0], is_constant)
                for layouts, is_constant in zip(input_layouts, are_constant, strict=True)
            )
            for offer in self._offered(program, infos):
                best = offers.setdefault(offer.layouts, offer)
                if offer.cost < best.cost:
                    offers[offer.layouts] = offer
        return offers

    def _offered(self, program: Any, infos: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
        """Return the offers of the first rule that does not decline; if all decline, the unscheduled program over row-major
        buffers. An offer of a shared rule is dropped if the target does not support the copies to its layouts."""
        key = (program, infos)
        if key not in self._offers:
            source = self._programs[program]
            self._offers[key] = (unscheduled(source, infos),)
            # An empty kernel has no iterations to schedule, and rules divide by its extents. Devices launch even empty kernels.
            empty = all(0 in buffer.shape for buffer in source.outputs) and self._context.capabilities.threads is None
            for rule in () if empty else self._rules:
                rule_offers = collect_offers(rule, source, self._context, infos)
                if rule in self._shared:
                    rule_offers = tuple(offer for offer in rule_offers if self._can_copy(source, offer, infos))
                if rule_offers:
                    self._offers[key] = rule_offers
                    break
        return self._offers[key]

    def _can_copy(self, program: ir.LoopProgram, offer: Offer, infos: tuple[InputInfo, ...]) -> bool:
        """Test whether the target supports transposes of the parameters that an offer wants in a layout other than row-major:
        layout copies are transposes. Constants are exempt, since they are packed at compile time."""
        for number, (buffer, layout) in enumerate(zip(program.params, offer.layouts, strict=True)):
            if layout == ROW_MAJOR or (number < len(infos) and infos[number].constant):
                continue
            type_ = TensorType(buffer.shape, buffer.dtype)
            if type_ not in self._copyable:
                copy = transpose(graph.var("x", type_), perm=tuple(reversed(range(type_.rank))))
                self._copyable[type_] = self._source.supports(copy)
            if not self._copyable[type_]:
                return False
        return True
