"""inlaid export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from inlaid.cli.common import dims_option, echo, executable_of, model_argument, refuse_given, target_option
from inlaid.runtime.output import check_output


@click.command("export")
@model_argument
@target_option()
@dims_option
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The library, such as libmodel.so.")
def export_command(model: Path, targets: tuple[str, ...], dims: dict[str, Any], output: Path) -> None:
    """Write MODEL as a shared library and a C header."""
    from inlaid.driver.export import export_library

    check_output(output, [model])
    refuse_given(model, "dims")
    done = export_library(executable_of(model, targets, dims), output)
    echo(f"{done.library} and {done.header}; a run needs {done.workspace} bytes of workspace")
