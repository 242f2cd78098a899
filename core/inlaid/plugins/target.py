"""Declarations of target kinds, and targets as text. Separate from the rest of the contract because loading a package needs only
this part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from inlaid.errors import TargetError
from inlaid.records import dataclass

if TYPE_CHECKING:
    from inlaid.plugins.contract import Capabilities

PLUGIN_API_VERSION = 2
"""Version of this contract. A plugin's module defines `PLUGIN_API_VERSION` as the version that it was written for. It must be a
literal: importing this constant would declare compatibility with every version."""


class Level(Enum):
    """Input of a target's code generator: a closed graph, or loop programs."""

    REGION = "region"
    LOOP = "loop"


@dataclass(frozen=True)
class NoOptions:
    """Options of a target without options."""


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


@dataclass(frozen=True)
class Target:
    """A target kind with options, written `x86:threads=1,cpu=x86-64-v3`."""

    kind: str
    options: Any = NoOptions()

    def __str__(self) -> str:
        changed = [
            f"{item.name}={_text(getattr(self.options, item.name))}"
            for item in dataclasses.fields(self.options)
            if getattr(self.options, item.name) != item.default
        ]
        return f"{self.kind}:{','.join(changed)}" if changed else self.kind


def parse_options(text: str, spec: TargetSpec) -> Target:
    """Parse `kind` or `kind:key=value,...`. Raises `TargetError`."""
    kind, _, rest = text.partition(":")
    fields = {item.name: item for item in dataclasses.fields(spec.options)}
    given: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in fields:
            known = ", ".join(fields) or "none"
            raise TargetError(
                f"target {kind} has no option {key!r}" if equals else f"option {key!r} of target {kind} has no value",
                remedy=f"options: {known}",
            )
        if key in given:
            raise TargetError(f"option {key} of target {kind} is given twice", remedy="give it once")
        given[key] = _parse(kind, key, value, type(fields[key].default))
    return Target(kind, spec.options(**given))


_KINDS = {int: "an integer", float: "a number", bool: "true or false"}


def _parse(kind: str, key: str, value: str, wanted: type) -> object:
    if wanted is bool:
        if value.lower() in ("true", "false", "1", "0"):
            return value.lower() in ("true", "1")
    else:
        try:
            return wanted(value)
        except ValueError:
            pass
    raise TargetError(f"option {key} of target {kind} must be {_KINDS.get(wanted, wanted.__name__)}, got {value!r}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class DeviceStatus:
    """Whether a target can run here. `detail` names the device, or gives the reason and the remedy."""

    available: bool
    detail: str = ""
