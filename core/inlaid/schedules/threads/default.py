"""The shared schedule rules of targets with blocks of threads, in the order in which they are tried."""

from __future__ import annotations

from inlaid.schedules.threads.each import EachRule
from inlaid.schedules.threads.elementwise import ElementwiseRule
from inlaid.schedules.threads.product import ProductRule
from inlaid.schedules.threads.reduce import ReduceRule
from inlaid.schedules.threads.rows import ThreadRowsRule
from inlaid.schedules.threads.serial import SerialRule
from inlaid.schedules.threads.tiles import TILE_PRODUCT
from inlaid.schedules.threads.transpose import ThreadTransposeRule
from inlaid.tensor.schedule import Transform
from inlaid.tensor.scheduling.rule import ScheduleRule

THREAD_RULES: tuple[ScheduleRule, ...] = (
    ProductRule(),
    ThreadTransposeRule(),
    ElementwiseRule(),
    ThreadRowsRule(),
    ReduceRule(),
    EachRule(),
    SerialRule(),
)
"""Rules for grids of blocks of threads."""

THREAD_TRANSFORMS: tuple[Transform, ...] = (TILE_PRODUCT,)
"""Program transforms that the rules' traces apply, besides those of all targets."""
