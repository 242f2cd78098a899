"""inlaid show."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from inlaid_cli.common import (
    dims_option,
    echo,
    json_option,
    model_argument,
    precision_option,
    refuse_package,
    resolve_targets,
    target_option,
)
from inlaid_cli.json_output import print_json


@click.command("show")
@model_argument
@target_option()
@dims_option
@precision_option
@click.option("--after", metavar="PASS", help="Show the IR after this pass: a graph pass, `partition`, or a pass of a region.")
@click.option("--weights", type=click.Choice(["elided", "hash"]), default="elided", show_default=True, help="How to show weights.")
@json_option
def show_command(
    model: Path,
    targets: tuple[str, ...],
    dims: dict[str, Any],
    precision: str,
    after: str | None,
    weights: Literal["elided", "hash"],
    as_json: bool,
) -> None:
    """Print the IR of MODEL after import, or after a pass.

    If a pass runs several times, its last run is shown; PASS:1 selects the first. With --json, the IR is one string.
    """
    import inlaid
    from inlaid.graph.text import show

    refuse_package(model)
    module = inlaid.load(model, dims)
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
