"""The schedule rules that every loop-level target shares, in the order in which they are tried."""

from __future__ import annotations

from inlay.schedules.blocked import BlockedRule
from inlay.schedules.conv import ConvRule
from inlay.schedules.dot_conv import DotConvRule
from inlay.schedules.dot_matmul import DotMatmulRule
from inlay.schedules.generic import GenericRule
from inlay.schedules.matmul import MatmulRule
from inlay.schedules.rows import RowsRule
from inlay.schedules.rule import ScheduleRule
from inlay.schedules.tile_conv import TileConvRule
from inlay.schedules.tile_matmul import TileMatmulRule
from inlay.schedules.transpose import TransposeRule
from inlay.schedules.window import WindowRule
from inlay.schedules.winograd import WinogradRule

SHARED_RULES: tuple[ScheduleRule, ...] = (
    TileMatmulRule(),
    TileConvRule(),
    DotMatmulRule(),
    DotConvRule(),
    ConvRule(),
    WinogradRule(),
    RowsRule(),
    WindowRule(),
    MatmulRule(),
    TransposeRule(),
    BlockedRule(),
    RowsRule(copies=True),
    GenericRule(),
)
