"""What a schedule rule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inlaid import arith
from inlaid.plugins.contract import Capabilities
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.primitives import TensorIntrin
from inlaid.types import Layout


@dataclass(frozen=True)
class KernelContext:
    """What a rule may know: the target's capabilities, the number of threads a kernel may use (0: not known), and the tensor
    intrinsics that the target's code generator prints."""

    capabilities: Capabilities
    threads: int = 1
    intrinsics: tuple[TensorIntrin, ...] = ()


@dataclass(frozen=True)
class Given:
    """What is known of an input of a kernel: the layout in which it lies now, and whether it is constant."""

    layout: Layout
    constant: bool = False


@dataclass(frozen=True)
class Version:
    """A schedule for those sizes at which a `condition` over the dimensions of the unscheduled kernel holds, such as
    `arith.compare("==", rows, 1)`. Its parameters lie as those of the offer that it belongs to."""

    condition: arith.Expr
    schedule: Callable[[LoopProgram], LoopProgram]


@dataclass(frozen=True)
class Offer:
    """How a rule would have a kernel: the `layouts` of its inputs and outputs, in the order of the program's parameters, and
    `schedule`, which turns the program into a scheduled one whose parameters lie so. `cost` is the seconds that it takes, copies of
    its inputs left out; only differences between the offers for one kernel matter. `rule` is the name of the rule, which lowering
    fills in: "" where no rule took the kernel.

    Where symbolic dimensions decide which schedule is best, the region runs the first of the `versions` whose condition holds, and
    `schedule` where none does. Each version is a kernel more to compile, so that a rule offers few, and none for a size that would
    be only somewhat faster. Versions whose condition is known at compile time cost nothing.
    """

    layouts: tuple[Layout, ...]
    schedule: Callable[[LoopProgram], LoopProgram]
    cost: float = 0.0
    versions: tuple[Version, ...] = ()
    rule: str = ""


class ScheduleRule(Protocol):
    """Knows how to compute one kind of kernel well on targets of some capabilities."""

    @property
    def name(self) -> str:
        """For reports and traces."""

    def offer(self, program: LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | tuple[Offer, ...] | None:
        """How the rule would schedule an unscheduled kernel, whose blocks are those of its computes; None to decline. Of several
        offers lowering takes the one that makes kernels and copies cheapest over the whole region.

        `given` tells of the inputs, in order: one of the ways in which they may lie. Asking for other layouts costs a copy, except
        for constants, which are packed at compile time.
        """
