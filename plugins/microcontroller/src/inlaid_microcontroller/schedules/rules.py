"""The schedule rules of the microcontroller target, in the order in which they are tried."""

from __future__ import annotations

from inlaid.schedules.rule import ScheduleRule
from inlaid_microcontroller.schedules.addition import AdditionRule
from inlaid_microcontroller.schedules.depthwise import DepthwiseRule
from inlaid_microcontroller.schedules.direct import DirectRule
from inlaid_microcontroller.schedules.scalar import ScalarRule
from inlaid_microcontroller.schedules.vector_depthwise import VectorDepthwiseRule
from inlaid_microcontroller.schedules.vector_direct import VectorDirectRule

# Those with vectors decline where there are none; they stand before those that take the same kernels. The last takes every kernel.
RULES: tuple[ScheduleRule, ...] = (
    VectorDirectRule(),
    VectorDepthwiseRule(),
    DirectRule(),
    DepthwiseRule(),
    AdditionRule(),
    ScalarRule(),
)
