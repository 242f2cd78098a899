"""Schedule rules of the microcontroller target, in order of preference."""

from __future__ import annotations

from inlaid.tensor.scheduling.rule import ScheduleRule
from inlaid_microcontroller.schedules.addition import AdditionRule
from inlaid_microcontroller.schedules.depthwise import DepthwiseRule
from inlaid_microcontroller.schedules.direct import DirectRule
from inlaid_microcontroller.schedules.scalar import ScalarRule
from inlaid_microcontroller.schedules.vector_depthwise import VectorDepthwiseRule
from inlaid_microcontroller.schedules.vector_direct import VectorDirectRule

# Vector rules make no offers without vectors; they precede the scalar rules for the same kernels. The last rule takes every kernel.
RULES: tuple[ScheduleRule, ...] = (
    VectorDirectRule(),
    VectorDepthwiseRule(),
    DirectRule(),
    DepthwiseRule(),
    AdditionRule(),
    ScalarRule(),
)
