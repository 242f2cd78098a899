"""What a schedule rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inlay.plugins.contract import Capabilities
from inlay.tensor.ir import LoopProgram


@dataclass(frozen=True)
class KernelContext:
    """What a rule may know: the target's capabilities and the number of threads the kernel may use."""

    capabilities: Capabilities
    threads: int = 1


class ScheduleRule(Protocol):
    """Turns an unscheduled kernel into a scheduled one, or declines with None."""

    name: str

    def apply(self, program: LoopProgram, context: KernelContext) -> LoopProgram | None: ...
