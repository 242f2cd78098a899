"""JSON on standard output, for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def print_json(value: object) -> None:
    """Print a value as strict JSON. Numbers stay numbers; those that JSON lacks are "NaN", "Infinity" and "-Infinity", the strings
    that Protocol Buffers uses (protobuf.dev, "ProtoJSON Format")."""
    import click

    click.echo(json.dumps(strict(value), indent=2, allow_nan=False))


def strict(value: Any) -> Any:
    """The value with non-finite floats as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value


def error_json(error: BaseException, message: str, code: int, kind: str) -> dict[str, Any]:
    """An error as `--json` prints it: its kind and exit code, its class, the `message` for the command line, and what is known of
    its place. `None` stands for what is not known."""
    from inlaid.errors import InlaidError, Remedy

    facts: dict[str, Any] = {"kind": kind, "code": code, "type": type(error).__name__, "message": message}
    if isinstance(error, InlaidError):
        remedy = error.remedy.command if isinstance(error.remedy, Remedy) else error.remedy
        places = {"operator": error.operator, "node": error.node, "region": error.region, "plugin": error.plugin}
        facts |= {"message": error.message, **{name: value or None for name, value in places.items()}, "remedy": remedy or None}
    return {"error": facts}
