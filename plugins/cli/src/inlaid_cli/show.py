"""inlaid show."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from inlaid_cli.common import (
    dims_option,
    echo,
    echo_warnings,
    json_option,
    model_argument,
    precision_option,
    refuse_package,
    resolve_targets,
    target_option,
)
from inlaid_cli.json_output import print_json

if TYPE_CHECKING:
    from inlaid.driver.observe import PassEffect

STAGES = ("partition", "borders")
"""Stages whose counts are numbers of functions of the module, since these stages cut it into regions."""


@click.command("show")
@model_argument
@target_option()
@dims_option
@precision_option
@click.option("--after", metavar="PASS", help="Show the IR after this pass, one of those that --passes lists.")
@click.option("--passes", "listed", is_flag=True, help="List all passes in order, with what each changes.")
@click.option("--weights", type=click.Choice(["elided", "hash"]), default="elided", show_default=True, help="How to show weights.")
@json_option
def show_command(
    model: Path,
    targets: tuple[str, ...],
    dims: dict[str, Any],
    precision: str,
    after: str | None,
    listed: bool,
    weights: Literal["elided", "hash"],
    as_json: bool,
) -> None:
    """Print the IR of MODEL after import, or after a pass; or list the passes.

    If a pass runs several times, its last run is shown; PASS:1 selects the first. With --json, the IR is one string.
    """
    import inlaid
    from inlaid.graph.text import show

    if listed and after is not None:
        raise click.UsageError("--after and --passes are mutually exclusive")
    refuse_package(model)
    module = inlaid.load(model, dims)
    if listed:
        from inlaid.driver import pass_effects
        from inlaid.settings import Settings

        with echo_warnings():
            effects = pass_effects(module, resolve_targets(targets), settings=Settings(precision=precision))
        if as_json:
            print_json([dataclasses.asdict(effect) for effect in effects])
        else:
            echo(_table(effects))
        return
    kernels: tuple[Any, ...] = ()
    if after is not None:
        from inlaid.driver import after_step
        from inlaid.settings import Settings

        lowered = after_step(module, resolve_targets(targets), after, settings=Settings(precision=precision))
        kernels, module = (lowered, module) if isinstance(lowered, tuple) else ((), lowered)
    if kernels:
        from inlaid.tensor.text import show as show_kernel

        text = "\n".join(map(show_kernel, kernels))
    else:
        text = show(module, weights=weights)
    if as_json:
        print_json({"ir": text})
    else:
        echo(text)


def _table(effects: Sequence[PassEffect]) -> str:
    """Print a table of passes under a title for each list."""
    width = max(len(effect.name) for effect in effects) + 2
    lines = []
    for (level, target), rows in itertools.groupby(effects, lambda effect: (effect.level, effect.target)):
        lines.append("graph" if not target else f"{level}s for {target}")
        for row in rows:
            origin = f"  (plugin {row.plugin})" if row.plugin else ""
            lines.append(f"  {row.name:<{width}}{_change(row)}{origin}")
    return "\n".join(lines)


def _change(effect: PassEffect) -> str:
    """Describe what a pass changes."""
    if not effect.changed:
        return "no change"
    count_unit = "functions" if effect.name in STAGES else "lines" if effect.level == "kernel" else "nodes"
    units = f"{effect.changed} of {effect.units} {effect.level}s, " if effect.level != "graph" else ""
    return f"{units}{effect.before} -> {effect.after} {count_unit}"
