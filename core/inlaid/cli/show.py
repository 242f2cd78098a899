"""inlaid show."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from inlaid.cli.common import (
    dims_option,
    echo,
    given_or_default,
    json_option,
    model_argument,
    precision_option,
    refuse_package,
    target_option,
)
from inlaid.cli.json_output import print_json


@click.command("show")
@model_argument
@target_option()
@dims_option
@precision_option
@click.option(
    "--after", metavar="PASS", help="Show the IR after this graph pass for TARGET, after `partition`, or a region's pass."
)
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
    """Print the IR of MODEL: as it is imported, or after a pass.

    A pass that runs several times is shown after its last run; PASS:1 means its first. As JSON, the IR is a string.
    """
    import inlaid
    from inlaid.graph.text import show

    refuse_package(model)
    module = inlaid.load(model, dims)
    kernels: tuple[Any, ...] = ()
    if after is not None:
        from inlaid.driver import after_step
        from inlaid.settings import Settings

        found = after_step(module, given_or_default(targets), after, settings=Settings(precision=precision))
        kernels, module = (found, module) if isinstance(found, tuple) else ((), found)
    if kernels:
        from inlaid.tensor.text import show as show_kernel

        text = "\n".join(map(show_kernel, kernels))
    else:
        text = show(module, weights=weights)
    if as_json:
        print_json({"ir": text})
    else:
        echo(text)
