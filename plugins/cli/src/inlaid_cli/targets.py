"""inlaid targets and inlaid formats: list the targets and model formats of plugins."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inlaid.plugins.registry import compile_half_remedy, default_registry
from inlaid_cli.common import json_option
from inlaid_cli.json_output import print_json

WIDTH_OF_PIPES = 200
"""Table width in columns when output is not a terminal, wide enough to keep each row on one line."""


@click.command("targets")
@json_option
def targets_command(as_json: bool) -> None:
    """List plugins and their targets, and whether each target can run here."""
    registry = default_registry()
    rows = []
    for plugin in registry.plugins():
        for kind in plugin.kinds or (() if plugin.formats else ("",)):
            status = registry.probe(registry.target(kind)) if kind and plugin.problem is None else None
            spec = registry.spec(kind) if status else None
            detail = status.detail if status else plugin.status
            if spec and spec.missing:
                detail = f"{detail}; runs packages only, to compile: {spec.remedy}"
            rows.append(
                {
                    "plugin": plugin.name,
                    "version": plugin.version,
                    "target": kind,
                    "available": bool(status and status.available),
                    "compiles": bool(spec and not spec.missing),
                    "detail": detail,
                }
            )
    runtimes = registry.runtimes
    for plugin in runtimes.plugins():
        for kind in set(plugin.kinds) - set(registry.kinds()):
            status = runtimes.probe(runtimes.target(kind))
            detail = f"{status.detail}; runs packages only, to compile: {compile_half_remedy(kind)}"
            facts = {"plugin": plugin.name, "version": plugin.version, "target": kind, "available": status.available}
            rows.append({**facts, "compiles": False, "detail": detail})
    _print(sorted(rows, key=lambda row: (row["plugin"], row["target"])), ("plugin", "version", "target"), as_json)


@click.command("formats")
@json_option
def formats_command(as_json: bool) -> None:
    """List model formats, and whether each can be imported here."""
    rows = []
    for plugin, frontend in default_registry().frontends():
        missing = ", ".join(frontend.missing)
        facts = {"format": frontend.description, "files": ", ".join(frontend.suffixes), "plugin": plugin}
        rows.append({**facts, "available": not missing, "detail": f"{missing} is missing; {frontend.remedy}" if missing else ""})
    _print(rows, ("format", "files", "plugin"), as_json)


def _print(rows: list[dict[str, object]], columns: Iterable[str], as_json: bool) -> None:
    """Print rows as JSON, or as a table of `columns` and a status."""
    if as_json:
        print_json(rows)
        return
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_OF_PIPES
    table = Table(*columns, "status")
    for row in rows:
        word = "ready" if row["available"] else "unusable"
        text = f"{word}: {row['detail']}" if row["detail"] else word
        table.add_row(*(escape(str(row[column])) for column in columns), escape(text))
    console.print(table)
