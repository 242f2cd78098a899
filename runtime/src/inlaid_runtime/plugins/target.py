"""Target kinds that plugins run, and targets as text."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from inlaid_runtime.errors import TargetError
from inlaid_runtime.records import dataclass

PLUGIN_API_VERSION = 3
"""Version of this contract. A plugin's module defines `PLUGIN_API_VERSION` as the version that it was written for. It must be a
literal: importing this constant would declare compatibility with every version."""


@dataclass(frozen=True)
class NoOptions:
    """Options of a target without options."""


@dataclass(frozen=True)
class RuntimeSpec:
    """A target kind that a plugin runs. `options` is a frozen dataclass of ints, floats, bools and strings with defaults: that of
    the kind's `TargetSpec`."""

    kind: str
    options: type = NoOptions


class TargetKind(Protocol):
    """A declared target kind: a `RuntimeSpec`, or a `TargetSpec` of the compile half."""

    @property
    def kind(self) -> str:
        """Name of the kind."""

    @property
    def options(self) -> type:
        """Frozen dataclass of the options."""


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


def parse_options(text: str, spec: TargetKind) -> Target:
    """Parse `kind` or `kind:key=value,...`. Raises `TargetError`."""
    kind, _, rest = text.partition(":")
    fields = {item.name: item for item in dataclasses.fields(spec.options)}
    options: dict[str, object] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in fields:
            option_names = ", ".join(fields) or "none"
            raise TargetError(
                f"target {kind} has no option {key!r}" if equals else f"option {key!r} of target {kind} has no value",
                remedy=f"options: {option_names}",
            )
        if key in options:
            raise TargetError(f"option {key} of target {kind} is given twice", remedy="give it once")
        options[key] = _parse(kind, key, value, type(fields[key].default))
    return Target(kind, spec.options(**options))


_KINDS = {int: "an integer", float: "a number", bool: "true or false"}


def _parse(kind: str, key: str, value: str, option_type: type) -> object:
    if option_type is bool:
        if value.lower() in ("true", "false", "1", "0"):
            return value.lower() in ("true", "1")
    else:
        try:
            return option_type(value)
        except ValueError:
            pass
    raise TargetError(f"option {key} of target {kind} must be {_KINDS.get(option_type, option_type.__name__)}, got {value!r}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class DeviceStatus:
    """Whether a target can run here. `detail` names the device, or gives the reason and the remedy."""

    available: bool
    detail: str = ""
