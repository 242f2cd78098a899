"""The shared schedule rules of loop-level targets, in the order in which they are tried."""

from __future__ import annotations

from inlaid.plugins.contract import Capabilities
from inlaid.schedules.blocked import BlockedRule
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.collapse import COLLAPSE, WITHOUT_EMPTY
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.fill import FILL
from inlaid.schedules.flat_conv import FLATTEN, JOIN_PIXELS, SKIP_PADDING, STORE_WHOLE_TILES
from inlaid.schedules.float_sums import FLOAT_SUMS
from inlaid.schedules.generic import GenericRule
from inlaid.schedules.groups import GroupsRule
from inlaid.schedules.last_tile import SHIFT_LAST_TILE, SUM_WHOLE_VECTORS
from inlaid.schedules.matmul import MatmulRule
from inlaid.schedules.rows import IN_PLACE, RowsRule
from inlaid.schedules.sample import SampleRule
from inlaid.schedules.split_groups import SPLIT_GROUPS
from inlaid.schedules.transpose import TransposeRule
from inlaid.schedules.window import WindowRule
from inlaid.schedules.winograd import WinogradRule
from inlaid.tensor.schedule import Transform
from inlaid.tensor.scheduling.rule import ScheduleRule

SHARED_RULES: tuple[ScheduleRule, ...] = (
    ConvRule(),
    WinogradRule(),
    RowsRule(),
    WindowRule(),
    GroupsRule(),
    SampleRule(),
    MatmulRule(),
    TransposeRule(),
    BlockedRule(),
    RowsRule(copies=True),
    GenericRule(),
)
"""Rules for CPU cores, with or without vectors."""


def shared_rules(capabilities: Capabilities) -> tuple[ScheduleRule, ...]:
    """Return the shared rules for a target. For a target with one thread per block these are the CPU rules, and an iteration of a
    parallel loop becomes a block."""
    if not _blocks(capabilities):
        return SHARED_RULES
    from inlaid.schedules.threads.default import THREAD_RULES  # on use: most targets have no blocks of threads

    return THREAD_RULES


def shared_transforms(capabilities: Capabilities) -> tuple[Transform, ...]:
    """Return the program transforms that the traces of a target's shared rules apply."""
    if not _blocks(capabilities):
        return SHARED_TRANSFORMS
    from inlaid.schedules.threads.default import THREAD_TRANSFORMS

    return SHARED_TRANSFORMS + THREAD_TRANSFORMS


def _blocks(capabilities: Capabilities) -> bool:
    """Test whether a target has blocks of several threads."""
    return capabilities.threads is not None and capabilities.threads.block != 1


SHARED_TRANSFORMS: tuple[Transform, ...] = (
    WITHOUT_EMPTY,
    COLLAPSE,
    SPLIT_GROUPS,
    FILL,
    FLOAT_SUMS,
    SHIFT_LAST_TILE,
    SUM_WHOLE_VECTORS,
    SPLIT_BORDERS,
    FLATTEN,
    JOIN_PIXELS,
    SKIP_PADDING,
    STORE_WHOLE_TILES,
    IN_PLACE,
)
"""Program transforms that the traces of `SHARED_RULES` apply, in addition to schedule primitives."""
