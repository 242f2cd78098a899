"""How to compile, apart from for what."""

from __future__ import annotations

from dataclasses import dataclass

AS_MODEL = "model"
PRIORITY, COST = "priority", "cost"
PLACEMENTS = (PRIORITY, COST)


@dataclass(frozen=True)
class Settings:
    """`fusion`: without it every operator is a kernel of its own. `precision`: "model", what the model says, or another of
    `inlay.driver.prepare.PRECISIONS`. `placement`: by "priority", where the first target that can takes an operator, or by "cost",
    the least predicted time, transfers included."""

    fusion: bool = True
    precision: str = AS_MODEL
    placement: str = PRIORITY


DEFAULT = Settings()
