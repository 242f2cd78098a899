"""Kernel traces: the kernel, the target, the rule that scheduled it, its decisions, and the schedule steps, as text.

    kernel("matmul_add", "5d41402abc4b2a76b9719d911017c592", "9e107d9d372bb682")
    rule("matmul", 0, 0)
    given((), False)
    given((), True)
    layouts((), ((0, 64), (1, 16)), ())
    decide("tile", ((2, 1), (2, 2), (1, 1), (1, 2)), (2, 2))
    steps((2, 2))
    collapse()
    ...

`kernel` holds the structural key of the unscheduled program and the key of the target; `rule` the numbers of the chosen offer and
version; `given` the layout of each input and whether it is constant; `layouts` the layouts of the scheduled kernel's parameters.
`decide` holds the legal values, the default, and the chosen value if that is not the default. `steps` holds the decision values for
which the steps were recorded. If the chosen values are the same, the steps are replayed; otherwise, or if the rule recorded no
steps, the rule schedules the kernel again with its decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from inlaid.tensor.analysis.keys import structural_key
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import Utilization
from inlaid.tensor.schedule import Argument, Trace, TraceStep, Transform, parse_trace, replay
from inlaid.tensor.scheduling.rule import Decision, DecisionValue, InputInfo, KernelContext, Offer, ScheduleRule, Traced
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import ROW_MAJOR, Layout

_HEAD = ("kernel", "rule", "given", "layouts", "decide", "steps")


@dataclass(frozen=True)
class KernelTrace:
    """A kernel's trace (see the module). `offer` and `version` are numbers. A `version` equal to the number of versions selects the
    offer's `schedule`."""

    name: str
    kernel: str
    target: str
    rule: str
    offer: int
    version: int
    inputs: tuple[InputInfo, ...]
    layouts: tuple[Layout, ...]
    decisions: tuple[Decision, ...]
    steps: Trace | None = None
    values: tuple[DecisionValue, ...] = ()

    def __str__(self) -> str:
        head = [
            TraceStep("kernel", (self.name, self.kernel, self.target)),
            TraceStep("rule", (self.rule, self.offer, self.version)),
        ]
        head += [TraceStep("given", (item.layout.blocks, item.constant)) for item in self.inputs]
        head.append(TraceStep("layouts", tuple(layout.blocks for layout in self.layouts)))
        for item in self.decisions:
            value_args = () if item.value == item.default else (item.value,)
            head.append(TraceStep("decide", (item.name, item.legal, item.default, *value_args)))
        steps = () if self.steps is None else (TraceStep("steps", self.values), *self.steps.steps)
        return str(Trace((*head, *steps)))

    def choose(self, name: str, value: DecisionValue) -> KernelTrace:
        """Return the trace with another value of a decision. Raises `ScheduleError` for an unknown decision or an illegal value."""
        if name not in [item.name for item in self.decisions]:
            decision_names = ", ".join(item.name for item in self.decisions) or "none"
            raise ScheduleError(f"unknown decision {name}", remedy=f"the decisions of kernel {self.name} are {decision_names}")
        return replace(self, decisions=tuple(item.chosen(value) if item.name == name else item for item in self.decisions))

    @property
    def is_current(self) -> bool:
        """Whether the trace has steps that were recorded for the chosen values."""
        return self.steps is not None and self.values == tuple(item.value for item in self.decisions)


@dataclass(frozen=True)
class Scheduled:
    """A kernel's unscheduled `source`, its scheduled `program`, and the trace."""

    source: LoopProgram
    program: LoopProgram
    trace: KernelTrace


def parse_kernel_trace(text: str, transforms: Sequence[Transform]) -> KernelTrace:
    """Parse a trace printed by `str`. Raises `ParseError` for malformed text, `ScheduleError` for an illegal value."""
    steps = parse_trace(text, (*_HEAD, *(transform.name for transform in transforms))).steps
    inputs: list[InputInfo] = []
    decisions: list[Decision] = []
    names: tuple[Argument, ...] = ()
    rule: tuple[Argument, ...] = ()
    values: tuple[Argument, ...] = ()
    layouts: tuple[Layout, ...] = ()
    rest: Trace | None = None
    for position, step in enumerate(steps):
        match step:
            case TraceStep("kernel", (str(), str(), str())):
                names = step.args
            case TraceStep("rule", (str(), int(), int())):
                rule = step.args
            case TraceStep("given", (tuple(blocks), bool(constant))):
                inputs.append(InputInfo(Layout(blocks), constant))  # type: ignore[arg-type]
            case TraceStep("layouts"):
                layouts = tuple(map(Layout, step.args))  # type: ignore[arg-type]
            case TraceStep("decide", (str(name), tuple(legal), default, *value_args)) if len(value_args) < 2:
                decision = Decision(name, legal, default, default)  # type: ignore[arg-type]
                decisions.append(decision.chosen(*value_args) if value_args else decision)  # type: ignore[arg-type]
            case TraceStep("steps"):
                values, rest = step.args, Trace(steps[position + 1 :])
                break
            case _:
                raise ScheduleError(f"expected kernel, rule, given, layouts, decide or steps in the head of a trace, found {step}")
    if not names or not rule:
        raise ScheduleError("a trace must have a kernel and a rule line, found at most one of them", remedy="pass the whole text")
    return KernelTrace(*names, *rule, tuple(inputs), layouts, tuple(decisions), rest, values)  # type: ignore[arg-type, call-arg]


def target_key(context: KernelContext) -> str:
    """Return a hexadecimal hash of the target information that rules can use."""
    target_info = (context.capabilities, context.threads, sorted(intrinsic.name for intrinsic in context.intrinsics))
    return hashlib.sha256(repr(target_info).encode()).hexdigest()[:16]


def scheduled(source: LoopProgram, offer: Offer, version: int, context: KernelContext) -> Scheduled:
    """Schedule a kernel by version number `version` of an offer (see `Offer.schedules`), and record the trace."""
    schedule = offer.schedules[version]
    decisions = (*(item.decisions for item in offer.versions), offer.decisions)[version]
    steps: Trace | None = None
    if isinstance(schedule, Traced):
        traced_schedule = schedule.make()
        program, steps = traced_schedule.program, traced_schedule.trace
    else:
        program = schedule(source)
    values = () if steps is None else tuple(item.value for item in decisions)
    header = (source.name, structural_key(source)[:32], target_key(context), offer.rule, offer.number, version)
    return Scheduled(source, program, KernelTrace(*header, offer.inputs, offer.layouts, decisions, steps, values))


def replay_kernel(
    source: LoopProgram,
    trace: KernelTrace | str,
    rules: Sequence[ScheduleRule],
    transforms: Sequence[Transform],
    context: KernelContext,
) -> Scheduled:
    """Schedule a kernel by a trace: by its steps, or by its rule if it has no steps or they were recorded for other values of the
    decisions.

    Raises `ScheduleError` for a trace of another kernel or target, if the rule no longer makes the offer, and for an illegal value
    of a decision.
    """
    trace = parse_kernel_trace(trace, transforms) if isinstance(trace, str) else trace
    for label, expected, actual in (
        ("kernel", trace.kernel, structural_key(source)[:32]),
        ("target", trace.target, target_key(context)),
    ):
        if expected != actual:
            raise ScheduleError(f"the trace is for {label} {expected}, found {label} {actual}", remedy=f"replay it on that {label}")
    if trace.steps is not None and trace.is_current:
        program = replay(source, trace.steps, context.intrinsics, (REMAINDERS,), tuple(transforms)).program
        return Scheduled(source, program, trace)
    return scheduled(source, _offered(source, trace, rules, context), trace.version, context)


def _offered(source: LoopProgram, trace: KernelTrace, rules: Sequence[ScheduleRule], context: KernelContext) -> Offer:
    """Find the offer that a trace names, made for the values that the trace chose."""
    decided_context = replace(
        context, decided=tuple((item.name, item.value) for item in trace.decisions if item.value != item.default)
    )
    if not trace.rule:
        return unscheduled(source, trace.inputs)
    for rule in rules:
        if rule.name == trace.rule:
            offers = collect_offers(rule, source, decided_context, trace.inputs)
            if trace.offer < len(offers) and trace.version <= len(offers[trace.offer].versions):
                return offers[trace.offer]
    raise ScheduleError(f"rule {trace.rule} does not offer schedule {trace.offer}.{trace.version} for kernel {trace.name}")


def collect_offers(
    rule: ScheduleRule, source: LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]
) -> tuple[Offer, ...]:
    """Return the numbered offers of a rule for a kernel; empty if the rule declines."""
    offered = rule.offer(source, context, inputs)
    offers = offered if isinstance(offered, tuple) else (offered,) if offered else ()
    return tuple(replace(offer, rule=rule.name, inputs=inputs, number=number) for number, offer in enumerate(offers))


def unscheduled(source: LoopProgram, inputs: tuple[InputInfo, ...]) -> Offer:
    """Return the offer for a kernel that no rule accepts: the unscheduled program with row-major parameters."""
    layouts = (ROW_MAJOR,) * len(source.params)
    return Offer(layouts, lambda program: program, utilization=Utilization.SCALAR, inputs=inputs)
