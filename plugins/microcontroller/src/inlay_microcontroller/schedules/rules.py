"""The schedule rules of the microcontroller target, in the order in which they are tried."""

from __future__ import annotations

from inlay.schedules.rule import ScheduleRule
from inlay_microcontroller.schedules.addition import AdditionRule
from inlay_microcontroller.schedules.depthwise import DepthwiseRule
from inlay_microcontroller.schedules.direct import DirectRule
from inlay_microcontroller.schedules.scalar import ScalarRule
from inlay_microcontroller.schedules.vector_depthwise import VectorDepthwiseRule
from inlay_microcontroller.schedules.vector_direct import VectorDirectRule

# Those with vectors decline where there are none; they stand before those that take the same kernels. The last takes every kernel.
RULES: tuple[ScheduleRule, ...] = (
    VectorDirectRule(),
    VectorDepthwiseRule(),
    DirectRule(),
    DepthwiseRule(),
    AdditionRule(),
    ScalarRule(),
)
