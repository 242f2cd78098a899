"""The interface of schedule rules: decisions, context, and offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from inlaid.plugins.contract import Capabilities
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.region import Utilization
from inlaid.tensor.schedule import Schedule
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import Layout

DecisionValue = int | str | tuple[int, ...]
"""Value of a decision. Booleans are represented as integers."""


@dataclass(frozen=True)
class Decision:
    """A tunable choice of a rule among `legal` values, each of which gives a correct kernel. `default` is the value with the best
    prediction, `value` the chosen value."""

    name: str
    legal: tuple[DecisionValue, ...]
    default: DecisionValue
    value: DecisionValue

    @property
    def number(self) -> int:
        """The value of a decision whose values are integers."""
        assert isinstance(self.value, int)
        return self.value

    @property
    def numbers(self) -> tuple[int, ...]:
        """The value of a decision whose values are tuples of integers."""
        assert isinstance(self.value, tuple)
        return self.value

    def chosen(self, value: DecisionValue) -> Decision:
        """Return the decision with another value. Raises `ScheduleError` if the value is not legal."""
        if value not in self.legal:
            expected = ", ".join(map(str, self.legal))
            raise ScheduleError(f"decision {self.name}: expected one of {expected}, found {value}", remedy="choose a legal value")
        return replace(self, value=value)


@dataclass(frozen=True)
class KernelContext:
    """Information for schedule rules: the target's capabilities, the number of threads per kernel (0: unknown), the target's tensor
    intrinsics, and the fixed values of decisions by name (`decided`)."""

    capabilities: Capabilities
    threads: int = 1
    intrinsics: tuple[TensorIntrin, ...] = ()
    decided: tuple[tuple[str, DecisionValue], ...] = ()

    def decide(self, name: str, legal: Iterable[DecisionValue], default: DecisionValue) -> Decision:
        """Create a decision with the fixed value, if any, else the default. Raises `ScheduleError` if the fixed value is not
        legal."""
        decision = Decision(name, tuple(dict.fromkeys((*legal, default))), default, default)
        return next((decision.chosen(value) for decision_name, value in self.decided if decision_name == name), decision)


@dataclass(frozen=True)
class InputInfo:
    """Information about a kernel input: its current layout, and whether it is constant."""

    layout: Layout
    constant: bool = False


@dataclass(frozen=True)
class Traced:
    """A schedule function that records its steps in the trace of a `Schedule`. Other schedule functions record no trace."""

    make: Callable[[], Schedule]

    def __call__(self, source: LoopProgram) -> LoopProgram:
        return self.make().program


@dataclass(frozen=True)
class Version:
    """A schedule for sizes at which a `condition` over the unscheduled kernel's dimensions holds, such as `arith.compare("==",
    rows, 1)`. Its parameters have the layouts of its offer."""

    condition: arith.Expr
    schedule: Callable[[LoopProgram], LoopProgram]
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Offer:
    """A way to schedule a kernel, proposed by a rule.

    `layouts` are the layouts of the program's parameters in order. `schedule` transforms the program into a scheduled one whose
    parameters have these layouts. `cost` is predicted seconds without copies of inputs; only differences between offers for one
    kernel matter. Schedule and layouts are determined by the program and the `decisions`. `utilization` is for predictions of
    time and for warnings. Lowering sets `rule` ("" for an unscheduled kernel), `inputs`, and `number`, the position among the
    rule's offers for the kernel.

    If the best schedule depends on symbolic dimensions, the region runs the first of the `versions` whose condition holds, or
    `schedule` if no condition holds. Each version is one more kernel to compile, so rules should offer few versions, and no version
    for a small gain. A version whose condition is decided at compile time costs nothing.
    """

    layouts: tuple[Layout, ...]
    schedule: Callable[[LoopProgram], LoopProgram]
    cost: float = 0.0
    versions: tuple[Version, ...] = ()
    decisions: tuple[Decision, ...] = ()
    utilization: Utilization = Utilization.FULL
    rule: str = ""
    inputs: tuple[InputInfo, ...] = ()
    number: int = 0

    @property
    def schedules(self) -> tuple[Callable[[LoopProgram], LoopProgram], ...]:
        """The schedules of the versions, then the schedule for all other sizes."""
        return (*(version.schedule for version in self.versions), self.schedule)


class ScheduleRule(Protocol):
    """Schedules one kind of kernel for targets with certain capabilities."""

    @property
    def name(self) -> str:
        """Name in reports and traces."""

    def offer(
        self, program: LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]
    ) -> Offer | tuple[Offer, ...] | None:
        """Enumerate schedule offers for an unscheduled kernel; None or an empty tuple to decline. Among several offers, lowering
        takes the offer that minimizes the cost of kernels and copies over the region.

        `inputs` describes the inputs in order, in one possible combination of layouts. Requesting another layout for an input costs
        a copy, except for constants, which are packed at compile time.
        """
