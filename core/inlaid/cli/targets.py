"""inlaid targets."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from inlaid.cli.common import json_option, print_json
from inlaid.plugins.registry import default_registry

WIDTH_OF_PIPES = 200
"""Columns of the table where no terminal says how many there are: enough for every line to stay one."""


@click.command("targets")
@json_option
def targets_command(as_json: bool) -> None:
    """List plugins, their targets, and whether each can run here."""
    registry = default_registry()
    rows = []
    for plugin in registry.plugins():
        for kind in plugin.kinds or ("",):
            status = registry.probe(registry.target(kind)) if kind and plugin.problem is None else None
            rows.append(
                {
                    "plugin": plugin.name,
                    "version": plugin.version,
                    "target": kind,
                    "available": bool(status and status.available),
                    "detail": status.detail if status else plugin.status,
                }
            )
    if as_json:
        print_json(rows)
        return
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_OF_PIPES
    table = Table("plugin", "version", "target", "status")
    for row in rows:
        word = "ready" if row["available"] else "unusable"
        text = f"{word}: {row['detail']}" if row["detail"] else word
        table.add_row(str(row["plugin"]), str(row["version"]), str(row["target"]), text)
    console.print(table)
