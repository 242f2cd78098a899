"""The trace of a kernel: what it is, which rule scheduled it for which target, what was decided, and the steps.

    kernel("matmul_add", "5d41402abc4b2a76b9719d911017c592", "9e107d9d372bb682")
    rule("matmul", 0, 0)
    given((), False)
    given((), True)
    layouts((), ((0, 64), (1, 16)), ())
    decide("tile", ((2, 1), (2, 2), (1, 1), (1, 2)), (2, 2))
    steps((2, 2))
    collapse()
    ...

`kernel` has the structural key of the unscheduled program and the key of the target, `rule` the number of the offer that was taken
and of its version; `given` says of each input in which blocks it lies and whether it is constant, `layouts` how the parameters of
the scheduled kernel lie. A decision has its legal values,
the default, and behind that the value that was chosen where it is another. `steps` repeats the values that the steps were made for.
They are replayed as they stand; where other values are chosen, and where a rule builds its nest itself and leaves no steps, the
rule makes the kernel anew from its decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inlaid.errors import ScheduleError
from inlaid.schedules.rule import Decision, InputInfo, KernelContext, Offer, ScheduleRule, Traced, Value
from inlaid.tensor.analysis.keys import structural_key
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.schedule import Argument, Step, Trace, Transform, parse_trace, replay
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid.types import ROW_MAJOR, Layout

_HEAD = ("kernel", "rule", "given", "layouts", "decide", "steps")


@dataclass(frozen=True)
class KernelTrace:
    """See above. `offer` and `version` are numbers; a version of the number of all versions is the schedule besides them."""

    name: str
    kernel: str
    target: str
    rule: str
    offer: int
    version: int
    given: tuple[InputInfo, ...]
    layouts: tuple[Layout, ...]
    decisions: tuple[Decision, ...]
    steps: Trace | None = None
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        head = [Step("kernel", (self.name, self.kernel, self.target)), Step("rule", (self.rule, self.offer, self.version))]
        head += [Step("given", (item.layout.blocks, item.constant)) for item in self.given]
        head.append(Step("layouts", tuple(layout.blocks for layout in self.layouts)))
        for item in self.decisions:
            chosen = () if item.value == item.default else (item.value,)
            head.append(Step("decide", (item.name, item.legal, item.default, *chosen)))
        steps = () if self.steps is None else (Step("steps", self.values), *self.steps.steps)
        return str(Trace((*head, *steps)))

    def choose(self, name: str, value: Value) -> KernelTrace:
        """The trace with another value of a decision. Raises `ScheduleError` for an unknown one, and for a value not legal."""
        if name not in [item.name for item in self.decisions]:
            known = ", ".join(item.name for item in self.decisions) or "none"
            raise ScheduleError(f"unknown decision {name}", remedy=f"the decisions of kernel {self.name} are {known}")
        return replace(self, decisions=tuple(item.chosen(value) if item.name == name else item for item in self.decisions))

    @property
    def is_current(self) -> bool:
        """Whether there are steps, made for the values that are chosen."""
        return self.steps is not None and self.values == tuple(item.value for item in self.decisions)


@dataclass(frozen=True)
class Scheduled:
    """A kernel's unscheduled `source`, the scheduled `program`, and the trace from the one to the other."""

    source: LoopProgram
    program: LoopProgram
    trace: KernelTrace


def parse_kernel_trace(text: str, transforms: Sequence[Transform]) -> KernelTrace:
    """The trace that `str` printed. Raises `ParseError` for a text that is none, `ScheduleError` for a value not legal."""
    steps = parse_trace(text, (*_HEAD, *(transform.name for transform in transforms))).steps
    given: list[InputInfo] = []
    decisions: list[Decision] = []
    names: tuple[Argument, ...] = ()
    rule: tuple[Argument, ...] = ()
    values: tuple[Argument, ...] = ()
    layouts: tuple[Layout, ...] = ()
    rest: Trace | None = None
    for place, step in enumerate(steps):
        match step:
            case Step("kernel", (str(), str(), str())):
                names = step.args
            case Step("rule", (str(), int(), int())):
                rule = step.args
            case Step("given", (tuple(blocks), bool(constant))):
                given.append(InputInfo(Layout(blocks), constant))  # type: ignore[arg-type]
            case Step("layouts"):
                layouts = tuple(map(Layout, step.args))  # type: ignore[arg-type]
            case Step("decide", (str(name), tuple(legal), default, *chosen)) if len(chosen) < 2:
                known = Decision(name, legal, default, default)  # type: ignore[arg-type]
                decisions.append(known.chosen(*chosen) if chosen else known)  # type: ignore[arg-type]
            case Step("steps"):
                values, rest = step.args, Trace(steps[place + 1 :])
                break
            case _:
                raise ScheduleError(f"expected a line of the head of a kernel's trace, found {step}")
    if not names or not rule:
        raise ScheduleError("expected the kernel and the rule of a trace, found neither or one", remedy="pass the whole text")
    return KernelTrace(*names, *rule, tuple(given), layouts, tuple(decisions), rest, values)  # type: ignore[arg-type, call-arg]


def target_key(context: KernelContext) -> str:
    """A hash in hexadecimal of all that rules know of a target."""
    known = (context.capabilities, context.threads, sorted(intrinsic.name for intrinsic in context.intrinsics))
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def scheduled(source: LoopProgram, offer: Offer, version: int, context: KernelContext) -> Scheduled:
    """A kernel by a version of an offer for it, with its trace."""
    schedule = offer.schedules[version]
    decisions = (*(item.decisions for item in offer.versions), offer.decisions)[version]
    steps: Trace | None = None
    if isinstance(schedule, Traced):
        made = schedule.make()
        program, steps = made.program, made.trace
    else:
        program = schedule(source)
    values = () if steps is None else tuple(item.value for item in decisions)
    own = (source.name, structural_key(source)[:32], target_key(context), offer.rule, offer.number, version)
    return Scheduled(source, program, KernelTrace(*own, offer.given, offer.layouts, decisions, steps, values))


def replay_kernel(
    source: LoopProgram,
    trace: KernelTrace | str,
    rules: Sequence[ScheduleRule],
    transforms: Sequence[Transform],
    context: KernelContext,
) -> Scheduled:
    """The kernel that a trace makes of an unscheduled program: by its steps, or by its rule where they are not there or were made
    for other values of the decisions.

    Raises `ScheduleError` for a trace of another kernel or target, for a rule that does not offer what was taken, and for a value
    of a decision that is not legal.
    """
    trace = parse_kernel_trace(trace, transforms) if isinstance(trace, str) else trace
    for what, wanted, found in (
        ("kernel", trace.kernel, structural_key(source)[:32]),
        ("target", trace.target, target_key(context)),
    ):
        if wanted != found:
            raise ScheduleError(f"the trace is of {what} {wanted}, found {found}", remedy="replay it on what it was made of")
    if trace.steps is not None and trace.is_current:
        program = replay(source, trace.steps, context.intrinsics, (REMAINDERS,), tuple(transforms)).program
        return Scheduled(source, program, trace)
    return scheduled(source, _offered(source, trace, rules, context), trace.version, context)


def _offered(source: LoopProgram, trace: KernelTrace, rules: Sequence[ScheduleRule], context: KernelContext) -> Offer:
    """The offer that a trace took, with its decisions as they are chosen."""
    chosen = replace(context, decided=tuple((item.name, item.value) for item in trace.decisions if item.value != item.default))
    if not trace.rule:
        return unscheduled(source, trace.given)
    for rule in rules:
        if rule.name == trace.rule:
            every = offers_of(rule, source, chosen, trace.given)
            if trace.offer < len(every) and trace.version <= len(every[trace.offer].versions):
                return every[trace.offer]
    raise ScheduleError(f"rule {trace.rule} does not offer schedule {trace.offer}.{trace.version} for kernel {trace.name}")


def offers_of(rule: ScheduleRule, source: LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> tuple[Offer, ...]:
    """What a rule offers for a kernel, none where it declines."""
    offered = rule.offer(source, context, given)
    every = offered if isinstance(offered, tuple) else (offered,) if offered else ()
    return tuple(replace(offer, rule=rule.name, given=given, number=number) for number, offer in enumerate(every))


def unscheduled(source: LoopProgram, given: tuple[InputInfo, ...]) -> Offer:
    """A kernel as it is, over row-major buffers, for want of a rule."""
    return Offer((ROW_MAJOR,) * len(source.params), lambda program: program, given=given)
