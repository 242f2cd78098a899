"""What a case of the suite is, and what can come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid.conformance.target_under_test import TargetUnderTest

LEVELS = ("plugin", "annotations", "codegen", "operators", "runtime", "devices", "models", "package")
"""From the first that a plugin has to pass to the last."""
BINDING = LEVELS[:3]
"""Levels whose cases cannot be expected to fail."""
ON_DEVICE = LEVELS[3:]
"""Levels whose cases run code, and so need the device, driver or simulator."""


class Failed(Exception):
    """What a check found to be wrong, in words for the plugin's author."""


class Skipped(Exception):
    """Why a check does not apply to a target."""


class NotClaimed(Skipped):
    """The target does not claim what the check is about."""


class Unexercised(Skipped):
    """What the target claims and the check found no example of. The text names the claim, and a remedy."""


Check = Callable[["TargetUnderTest"], Sequence[str] | None]
"""Passes where it returns; what it returns are claims that it found no example of. Raises
`Failed` or `Skipped`; any other exception is a failure too."""


@dataclass(frozen=True)
class Case:
    """A check, and what it is applied to: its id is "level/name[of]"."""

    level: str
    name: str
    check: Check
    of: str = ""

    @property
    def id(self) -> str:
        """The name in reports, in expected failures and on the command line."""
        return f"{self.level}/{self.name}[{self.of}]" if self.of else f"{self.level}/{self.name}"


class Outcome(StrEnum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPECTED = "expected failure"


@dataclass(frozen=True)
class Result:
    """What came of a case, and why, unless it passed. `claimed` is False where the target does not claim what it is about;
    `unexercised` is what it claims of it that no example was found of."""

    id: str
    level: str
    outcome: Outcome
    reason: str = ""
    claimed: bool = True
    unexercised: tuple[str, ...] = ()

    @classmethod
    def of(cls, item: dict[str, Any]) -> Result:
        """A result from JSON."""
        return cls(**{**item, "outcome": Outcome(item["outcome"]), "unexercised": tuple(item.get("unexercised", ()))})
