"""The `inlaid` command and its subcommands."""

from __future__ import annotations

import click

from inlaid import __version__
from inlaid.cli.bench import bench_command
from inlaid.cli.cache import cache_command
from inlaid.cli.compile import compile_command
from inlaid.cli.conformance import conformance_command
from inlaid.cli.export import export_command
from inlaid.cli.new_plugin import new_plugin_command
from inlaid.cli.partition import partition_command
from inlaid.cli.run import run_command
from inlaid.cli.show import show_command
from inlaid.cli.targets import formats_command, targets_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="inlaid")
@click.option("--debug", is_flag=True, help="Show a traceback for errors.")
def app(debug: bool) -> None:
    """Compile deep-learning models for the hardware whose plugins are installed.

    \b
    A first try:
        inlaid targets
        inlaid compile model.onnx --target x86 -o model.inlaid
        inlaid run model.inlaid
    """


for command in (
    targets_command,
    formats_command,
    compile_command,
    run_command,
    bench_command,
    export_command,
    partition_command,
    show_command,
    conformance_command,
    new_plugin_command,
    cache_command,
):
    app.add_command(command)
