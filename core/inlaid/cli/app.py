"""The `inlaid` command. Its subcommands are imported when they are used: most need few modules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import click

from inlaid import __version__

NAMES = ("targets", "formats", "compile", "run", "bench", "export", "partition", "show", "conformance", "new-plugin", "cache")


class _Commands(Mapping[str, click.Command]):
    """The subcommands by name."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in NAMES:
            raise KeyError(name)
        plain = name.replace("-", "_")
        module = importlib.import_module(f"inlaid.cli.{'targets' if name == 'formats' else plain}")
        command: click.Command = getattr(module, f"{plain}_command")
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


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
