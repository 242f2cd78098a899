"""The `inlay` command and its subcommands."""

from __future__ import annotations

import click

from inlay import __version__
from inlay.cli.bench import bench_command
from inlay.cli.cache import cache_command
from inlay.cli.compile import compile_command
from inlay.cli.conformance import conformance_command
from inlay.cli.export import export_command
from inlay.cli.new_plugin import new_plugin_command
from inlay.cli.partition import partition_command
from inlay.cli.run import run_command
from inlay.cli.show import show_command
from inlay.cli.targets import targets_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="inlay")
@click.option("--debug", is_flag=True, help="Show a traceback for errors.")
def app(debug: bool) -> None:
    """Compile deep-learning models for the hardware whose plugins are installed.

    \b
    A first try:
        inlay targets
        inlay compile model.onnx --target x86 -o model.inlay
        inlay run model.inlay
    """


for command in (
    targets_command,
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
