"""How to compile, apart from for what."""

from __future__ import annotations

from dataclasses import dataclass

AS_MODEL = "model"
PRIORITY, COST, MEASURED = "priority", "cost", "measured"
PLACEMENTS = (PRIORITY, COST, MEASURED)


@dataclass(frozen=True)
class Isolation:
    """What a code generator may use in a process of its own: `seconds` of time by the clock, `memory` in bytes."""

    seconds: float = 300.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class Settings:
    """`fusion`: without it every operator is a kernel of its own. `precision`: "model", what the model says, or another of
    `inlaid.driver.prepare.PRECISIONS`. `placement`: by "priority", where the first target that can takes an operator; by "cost",
    the least predicted time, transfers included; or "measured", the least time with operators timed on their targets. `lock`: the
    text of a lock (see `inlaid.partitioning.lock`) that says where operators go; "" for none. `isolation`: code generators run in
    processes of their own within these limits, and a region whose code generator fails goes to other targets. `donate`: names of
    inputs whose buffers outputs may take over."""

    fusion: bool = True
    precision: str = AS_MODEL
    placement: str = PRIORITY
    lock: str = ""
    isolation: Isolation | None = None
    donate: tuple[str, ...] = ()


DEFAULT = Settings()
