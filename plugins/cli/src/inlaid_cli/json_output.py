"""JSON output of the commands."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def print_json(value: object) -> None:
    """Print a value as strict JSON. Non-finite numbers become the strings "NaN", "Infinity" and "-Infinity", as in Protocol Buffers
    (protobuf.dev, "ProtoJSON Format")."""
    import click

    click.echo(json.dumps(strict(value), indent=2, allow_nan=False))


def strict(value: Any) -> Any:
    """Replace non-finite floats by strings, recursively."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value


def error_json(error: BaseException, message: str, code: int, kind: str) -> dict[str, Any]:
    """Return the object that `--json` prints for an error: kind, exit code, exception class, `message`, location and remedy,
    None where unknown."""
    from inlaid_runtime.errors import InlaidError, Remedy

    facts: dict[str, Any] = {"kind": kind, "code": code, "type": type(error).__name__, "message": message}
    if isinstance(error, InlaidError):
        remedy = error.remedy.command if isinstance(error.remedy, Remedy) else error.remedy
        location = {"operator": error.operator, "node": error.node, "region": error.region, "plugin": error.plugin}
        facts |= {"message": error.message, **{name: value or None for name, value in location.items()}, "remedy": remedy or None}
    return {"error": facts}
