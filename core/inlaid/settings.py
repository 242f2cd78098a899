"""Compilation settings that do not depend on the target."""

from __future__ import annotations

from inlaid_runtime.records import dataclass

AS_MODEL = "model"
PRIORITY, COST, MEASURED = "priority", "cost", "measured"
PLACEMENTS = (PRIORITY, COST, MEASURED)


@dataclass(frozen=True)
class Isolation:
    """Limits on an isolated code generator: `seconds` of wall-clock time, `memory` in bytes."""

    seconds: float = 300.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class Settings:
    """Compilation settings.

    fusion
        If False, every operator becomes a separate kernel.
    precision
        "model", or another of `inlaid.driver.prepare.PRECISIONS`.
    placement
        "priority", the first target that accepts an operator; "cost", the least predicted time, transfers included; "measured", the
        least time with operators timed on their targets.
    lock
        Text of a lock (`inlaid.partitioning.lock`) that fixes the placement, "" for none.
    isolation
        Run code generators in separate processes within these limits. A region whose code generator fails falls back to other
        targets.
    donate
        Names of inputs whose buffers outputs may reuse.
    """

    fusion: bool = True
    precision: str = AS_MODEL
    placement: str = PRIORITY
    lock: str = ""
    isolation: Isolation | None = None
    donate: tuple[str, ...] = ()


DEFAULT = Settings()
