"""inlay compile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from inlay.cli.common import dims_option, json_option, model_argument, print_json, progress_bar, target_option


@click.command("compile")
@model_argument
@target_option()
@dims_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The package; default: the model's name, .inlay.")
@json_option
def compile_command(model: Path, targets: tuple[str, ...], dims: dict[str, Any], output: Path | None, as_json: bool) -> None:
    """Compile MODEL to a package."""
    import inlay

    start = time.perf_counter()
    with progress_bar(as_json) as report:
        executable = inlay.compile(model, targets, dims=dims, progress=report)
    seconds = time.perf_counter() - start
    path = output or Path(model.name).with_suffix(".inlay")
    executable.save(path)
    facts = {
        "package": str(path),
        "bytes": path.stat().st_size,
        "weight_bytes": executable.weight_bytes,
        "seconds": round(seconds, 3),
        "regions": [{"target": region.target, "nodes": len(region.nodes)} for region in executable.regions],
    }
    if as_json:
        print_json(facts)
        return
    click.echo(f"{path}: {facts['bytes']} bytes, compiled in {seconds:.2f} s")
    for region in executable.regions:
        click.echo(f"  {region.symbol} on {region.target}: {len(region.nodes)} source nodes")
