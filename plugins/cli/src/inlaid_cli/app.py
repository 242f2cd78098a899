"""The `inlaid` command. Its subcommands are entry points, imported when they are used: most need few modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from inlaid import __version__
from inlaid_runtime.errors import NotInstalled, PluginError
from inlaid_runtime.plugins.entry_points import EntryPoint, installed

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
        point = self._points[name]
        try:
            command = point.load()
        except Exception as error:
            return _unusable_command(point, f"{type(error).__name__}: {error}", error)
        if not isinstance(command, click.Command):
            return _unusable_command(point, f"expected a click.Command, got {type(command).__name__}")
        return command

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in FIRST if name in self._points)
        yield from (name for name in self._points if name not in FIRST)

    def __len__(self) -> int:
        return len(self._points)


def _unusable_command(point: EntryPoint, problem: str, cause: Exception | None = None) -> click.Command:
    """Create a command that stands in for one that cannot be imported, so that the help and the other commands work. Running it
    raises `PluginError`."""

    def fail(arguments: tuple[str, ...]) -> None:
        raise PluginError(
            f"cannot load the command {point.name} from {point.value!r}: {problem}",
            remedy=f"correct the entry point in the group {GROUP}, or its module, and install the distribution again",
        ) from cause

    arguments = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    return click.Command(point.name, settings, fail, [arguments], f"Unusable: {problem}", add_help_option=False)


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
