"""Cases of the suite, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid_conformance.target_under_test import TargetUnderTest

LEVELS = ("plugin", "annotations", "codegen", "operators", "runtime", "devices", "models", "package")
"""Levels, in the order in which a plugin has to pass them."""
BINDING = LEVELS[:3]
"""Levels whose cases cannot be expected to fail."""
ON_DEVICE = LEVELS[3:]
"""Levels whose cases run code, and so need the device, driver or simulator."""


class Failed(Exception):
    """Raised if a check failed; the message is for the plugin's author."""


class Skipped(Exception):
    """Raised if a check does not apply to the target."""


class Undefined(Exception):
    """Raised if the reference has no result for an example, because a value of its data is out of range, such as an index."""


class NotClaimed(Skipped):
    """Raised if the target does not accept the operator or feature that a check covers."""


class Unexercised(Skipped):
    """Raised if a check found no example of an operator or feature that the target accepts. The message names it, with a remedy."""


Check = Callable[["TargetUnderTest"], Sequence[str] | None]
"""A check passes if it returns. Its result names parts that the target accepts but for which the check has no example. Raises
`Failed` or `Skipped`; any other exception is a failure too."""


@dataclass(frozen=True)
class Case:
    """A check, and the operator, composite or model that it covers. Its id is "level/name[subject]"."""

    level: str
    name: str
    check: Check
    subject: str = ""

    @property
    def id(self) -> str:
        """The id used in reports, in expected failures and on the command line."""
        return f"{self.level}/{self.name}[{self.subject}]" if self.subject else f"{self.level}/{self.name}"


class Outcome(StrEnum):
    """Outcome of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    EXPECTED = "expected failure"


@dataclass(frozen=True)
class Result:
    """Result of a case, with a reason unless it passed. `claimed` is False if the target does not accept what the case covers;
    `unexercised` lists accepted parts for which no example was found; `trace` is the traceback of an exception, which is not part
    of reports."""

    id: str
    level: str
    outcome: Outcome
    reason: str = ""
    claimed: bool = True
    unexercised: tuple[str, ...] = ()
    trace: str = field(default="", compare=False)

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Result:
        """Create a result from JSON."""
        return cls(**{**item, "outcome": Outcome(item["outcome"]), "unexercised": tuple(item.get("unexercised", ()))})
