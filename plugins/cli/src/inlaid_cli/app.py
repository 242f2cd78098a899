"""The `inlaid` command. Its subcommands are entry points, imported when they are used: most need few modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from inlaid import __version__
from inlaid_runtime.errors import NotInstalled
from inlaid_runtime.plugins.entry_points import installed

GROUP = "inlaid.commands"
"""Group of the entry points. A name is that of the subcommand, a value the module and the `click.Command`."""
DISTRIBUTIONS = {"bench": "inlaid-bench", "conformance": "inlaid-conformance"}
"""The distributions of subcommands that an installation may lack."""
FIRST = ("targets", "formats", "compile", "run", "bench", "export", "partition", "show", "conformance", "new-plugin", "cache")
"""The order of subcommands in the help. Others follow."""


class _Commands(Mapping[str, click.Command]):
    """The subcommands by name."""

    def __init__(self) -> None:
        self._points = {point.name: point for point in installed(GROUP)}

    def __getitem__(self, name: str) -> click.Command:
        if name in DISTRIBUTIONS and name not in self._points:
            distribution = DISTRIBUTIONS[name]
            raise NotInstalled(
                f"inlaid {name} is provided by {distribution}, not installed here", remedy=f"pip install {distribution}"
            )
        command: click.Command = self._points[name].load()
        return command

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in FIRST if name in self._points)
        yield from (name for name in self._points if name not in FIRST)

    def __len__(self) -> int:
        return len(self._points)


@click.group(commands=_Commands(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="inlaid")
@click.option("--debug", is_flag=True, help="Show a traceback for errors.")
@click.pass_context
def app(context: click.Context, debug: bool) -> None:
    """Compile deep-learning models for the hardware whose plugins are installed.

    \b
    A first try:
        inlaid targets
        inlaid compile model.onnx --target x86 -o model.inlaid
        inlaid run model.inlaid
    """
    context.obj = debug
