"""The schedule rules of the microcontroller target, in the order in which they are tried."""

from __future__ import annotations

from inlay.schedules.rule import ScheduleRule
from inlay_microcontroller.schedules.addition import AdditionRule
from inlay_microcontroller.schedules.columns import ColumnsRule
from inlay_microcontroller.schedules.depthwise import DepthwiseRule
from inlay_microcontroller.schedules.direct import DirectRule
from inlay_microcontroller.schedules.scalar import ScalarRule
from inlay_microcontroller.schedules.vector import VectorRule
from inlay_microcontroller.schedules.window import WindowRule

RULES: tuple[ScheduleRule, ...] = (
    VectorRule(),
    WindowRule(),
    DirectRule(),
    ColumnsRule(),
    DepthwiseRule(),
    AdditionRule(),
    ScalarRule(),
)
