"""The schedule rules that every loop-level target shares, in the order in which they are tried."""

from __future__ import annotations

from inlaid.schedules.blocked import BlockedRule
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.dot_conv import DotConvRule
from inlaid.schedules.dot_matmul import DotMatmulRule
from inlaid.schedules.generic import GenericRule
from inlaid.schedules.matmul import MatmulRule
from inlaid.schedules.rows import RowsRule
from inlaid.schedules.rule import ScheduleRule
from inlaid.schedules.sample import SampleRule
from inlaid.schedules.transpose import TransposeRule
from inlaid.schedules.window import WindowRule
from inlaid.schedules.winograd import WinogradRule

SHARED_RULES: tuple[ScheduleRule, ...] = (
    DotMatmulRule(),
    DotConvRule(),
    ConvRule(),
    WinogradRule(),
    RowsRule(),
    WindowRule(),
    SampleRule(),
    MatmulRule(),
    TransposeRule(),
    BlockedRule(),
    RowsRule(copies=True),
    GenericRule(),
)
