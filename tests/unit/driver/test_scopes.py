"""What a target's memory scopes refuse of the loop programs that its code generator would be given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inlaid import ops
from inlaid.driver.context import DriverContext
from inlaid.graph import ir as graph
from inlaid.passes.manager import UnitPass
from inlaid.plugins import Capabilities, Phase, Region, Target
from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import MemoryScope, TensorType, dtype


class Registry:
    """One target, whose loop pass puts a buffer of 4096 bytes around every kernel."""

    def __init__(self, *scopes: MemoryScope) -> None:
        self._scopes = scopes

    def capabilities(self, target: Target) -> Capabilities:
        return Capabilities(("float32",), scopes=self._scopes)

    def nothing(self, target: Target) -> tuple[()]:
        return ()

    schedules = intrinsics = nothing

    def passes(self, target: Target, phase: Any) -> tuple[tuple[str, UnitPass[ir.LoopProgram]], ...]:
        def staged(program: ir.LoopProgram) -> ir.LoopProgram:
            stage = ir.Buffer("stage", (1024,), dtype("float32"), "shared")
            store = ir.Store(stage, (arith.ZERO,), ir.const(0, "float32"))
            return replace(program, body=ir.Alloc(stage, ir.Seq((store, program.body))))

        return (("test", UnitPass("stage", staged)),) if phase is Phase.LOOP else ()


def lower(*scopes: MemoryScope) -> None:
    x = graph.var("x", TensorType((8, 8), "float32"))
    registry: Any = Registry(*scopes)
    context = DriverContext(Target("test"), registry, ops.TABLE)
    context.lower(Region("region0", graph.function([x], ops.exp(x)), Target("test")))


def test_buffers_fit_the_scopes_of_the_target() -> None:
    lower(MemoryScope("shared", "block", 4096))


@pytest.mark.parametrize("scopes", [(), (MemoryScope("shared", "block", 4095),), (MemoryScope("local", "thread", 4096),)])
def test_buffers_without_room_are_refused(scopes: tuple[MemoryScope, ...]) -> None:
    with pytest.raises(ScheduleError, match="buffer stage in scope 'shared'"):
        lower(*scopes)
