"""What a schedule rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from inlaid import arith
from inlaid.errors import ScheduleError
from inlaid.plugins.contract import Capabilities
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.types import Layout

Value = int | str | tuple[int, ...]
"""Of a decision. Booleans are integers."""


@dataclass(frozen=True)
class Decision:
    """A choice of a rule between `legal` values, each of which gives a correct kernel. The `default` is predicted to be best;
    `value` was chosen."""

    name: str
    legal: tuple[Value, ...]
    default: Value
    value: Value

    @property
    def number(self) -> int:
        """The value, of a decision between numbers."""
        assert isinstance(self.value, int)
        return self.value

    @property
    def numbers(self) -> tuple[int, ...]:
        """The value, of a decision between several numbers."""
        assert isinstance(self.value, tuple)
        return self.value

    def chosen(self, value: Value) -> Decision:
        """The decision for a value. Raises `ScheduleError` for one that is not legal."""
        if value not in self.legal:
            expected = ", ".join(map(str, self.legal))
            raise ScheduleError(f"decision {self.name}: expected one of {expected}, found {value}", remedy="choose a legal value")
        return replace(self, value=value)


@dataclass(frozen=True)
class KernelContext:
    """What a rule may know: the target's capabilities, the number of threads a kernel may use (0: not known), and the tensor
    intrinsics that the target's code generator prints; and the values that are `decided`, by names of decisions."""

    capabilities: Capabilities
    threads: int = 1
    intrinsics: tuple[TensorIntrin, ...] = ()
    decided: tuple[tuple[str, Value], ...] = ()

    def decide(self, name: str, legal: Iterable[Value], default: Value) -> Decision:
        """A decision: for the default, where nothing is decided. Raises `ScheduleError` for a decided value that is not legal."""
        decision = Decision(name, tuple(dict.fromkeys((*legal, default))), default, default)
        return next((decision.chosen(value) for known, value in self.decided if known == name), decision)


@dataclass(frozen=True)
class InputInfo:
    """What is known of an input of a kernel: the layout in which it lies now, and whether it is constant."""

    layout: Layout
    constant: bool = False


@dataclass(frozen=True)
class Traced:
    """Schedules a kernel by the steps of a `Schedule`, which its trace keeps. Any other function leaves none."""

    make: Callable[[], Schedule]

    def __call__(self, source: LoopProgram) -> LoopProgram:
        return self.make().program


@dataclass(frozen=True)
class Version:
    """A schedule for those sizes at which a `condition` over the dimensions of the unscheduled kernel holds, such as
    `arith.compare("==", rows, 1)`. Its parameters lie as those of the offer that it belongs to."""

    condition: arith.Expr
    schedule: Callable[[LoopProgram], LoopProgram]
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Offer:
    """How a rule would have a kernel: the `layouts` of its inputs and outputs, in the order of the program's parameters, and
    `schedule`, which turns the program into a scheduled one whose parameters lie so. `cost` is the seconds that it takes, copies of
    its inputs left out; only differences between the offers for one kernel matter. The schedule, and the layouts, follow from the
    program and the `decisions`. Lowering fills in the name of the `rule`, "" where no rule took the kernel, what was `given`, and
    the `number` of the offer among those for it.

    Where symbolic dimensions decide which schedule is best, the region runs the first of the `versions` whose condition holds, and
    `schedule` where none does. Each version is a kernel more to compile, so that a rule offers few, and none for a size that would
    be only somewhat faster. Versions whose condition is known at compile time cost nothing.
    """

    layouts: tuple[Layout, ...]
    schedule: Callable[[LoopProgram], LoopProgram]
    cost: float = 0.0
    versions: tuple[Version, ...] = ()
    decisions: tuple[Decision, ...] = ()
    rule: str = ""
    given: tuple[InputInfo, ...] = ()
    number: int = 0

    @property
    def schedules(self) -> tuple[Callable[[LoopProgram], LoopProgram], ...]:
        """Those of the versions, then its own."""
        return (*(version.schedule for version in self.versions), self.schedule)


class ScheduleRule(Protocol):
    """Knows how to compute one kind of kernel well on targets of some capabilities."""

    @property
    def name(self) -> str:
        """For reports and traces."""

    def offer(self, program: LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> Offer | tuple[Offer, ...] | None:
        """How the rule would schedule an unscheduled kernel, whose blocks are those of its computes; None to decline. Of several
        offers lowering takes the one that makes kernels and copies cheapest over the whole region.

        `given` tells of the inputs, in order: one of the ways in which they may lie. Asking for other layouts costs a copy, except
        for constants, which are packed at compile time.
        """
