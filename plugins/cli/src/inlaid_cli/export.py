"""inlaid export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from inlaid_cli.common import dims_option, echo, json_option, load_or_compile, model_argument, refuse_package_options, target_option
from inlaid_cli.json_output import print_json
from inlaid_runtime.execution.output import check_output


@click.command("export")
@model_argument
@target_option()
@dims_option
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The library, such as libmodel.so.")
@json_option
def export_command(model: Path, targets: tuple[str, ...], dims: dict[str, Any], output: Path, as_json: bool) -> None:
    """Export MODEL as a shared library with a C header.

    Symbolic dimensions need an upper bound (--dim batch=1:64) and become parameters of the function.
    """
    from inlaid.driver.export import export_library

    check_output(output, [model])
    refuse_package_options(model, "dims")
    library = export_library(load_or_compile(model, targets, dims, as_json), output)
    if as_json:
        paths = {"library": str(library.library), "header": str(library.header)}
        sizes = {name: list(bounds) for name, bounds in library.sizes.items()}
        print_json({**paths, "workspace_bytes": library.workspace, "sizes": sizes, "threads": library.threads})
        return
    echo(f"{library.library} and {library.header}; a run needs {library.workspace} bytes of workspace")
    for name, (lower, upper) in library.sizes.items():
        echo(f"parameter {name}: {lower} to {upper}")
