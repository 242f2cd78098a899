"""Declarations of target kinds for the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from inlaid_runtime.errors import TargetError
from inlaid_runtime.plugins.target import NoOptions
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    from inlaid.plugins.contract import Capabilities


class Level(Enum):
    """Input of a target's code generator: a closed graph, or loop programs."""

    REGION = "region"
    LOOP = "loop"


@dataclass(frozen=True)
class TargetSpec:
    """A target kind that a plugin provides. `options` is a frozen dataclass of ints, floats, bools and strings with defaults;
    `capabilities(options)` is a pure function. `surroundings(options)` is the state that generated code depends on besides the
    options and the sources, such as detected CPU features and library versions; it is part of the cache key of packages.
    `versions(options)` lists the options of the code versions in one artifact (see `Artifact.variants`), the least demanding first;
    each version is lowered and compiled with the capabilities, intrinsics and schedules of its options. `requires` are the modules
    that only compiling imports: if one is missing, the target runs packages but cannot compile. `install` is the requirement with
    which pip installs `requires`, such as "inlaid[x86]"."""

    kind: str
    description: str
    capabilities: Callable[[Any], Capabilities]
    level: Level = Level.REGION
    options: type = NoOptions
    surroundings: Callable[[Any], str] = lambda options: ""
    versions: Callable[[Any], Sequence[Any]] = lambda options: (options,)
    requires: tuple[str, ...] = ()
    install: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Required modules that are not installed."""
        return tuple(name for name in self.requires if find_spec(name) is None)

    @property
    def remedy(self) -> str:
        """Command that installs the missing modules."""
        return f'pip install "{self.install}"'

    def check_compiles(self) -> None:
        """Raise `TargetError` if a required module is not installed."""
        if self.missing:
            raise TargetError(
                f"target {self.kind} runs packages here but cannot compile: {self.missing[0]} is not installed",
                remedy=self.remedy,
            )
