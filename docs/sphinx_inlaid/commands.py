"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from inlaid_cli.app import app

_DEFAULT = re.compile(r"(?:(?P<before>[;,.]) )?[Dd]efault: (?P<value>.+?)\.?$")
"""A default that a help text states at its end, since it depends on the machine or on another option."""


def render() -> str:
    """A section in Markdown for each command."""
    return "\n\n".join(_section(name, command) for name, command in commands())


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands, those of groups included, by the words that call them."""
    for name, command in app.commands.items():
        yield f"inlaid {name}", command
        if isinstance(command, click.Group):
            yield from ((f"inlaid {name} {inner}", each) for inner, each in command.commands.items())


def _section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"### {name}", _prose(command.help or ""), f"```text\n{usage}\n```"]
    rows = [_row(item, context) for item in command.params if isinstance(item, click.Option)]
    if rows:
        parts.append("\n".join(["| option | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """Help as paragraphs of Markdown."""
    return "\n\n".join(" ".join(_escaped(part).split()) for part in inspect.cleandoc(text).split("\n\n"))


def _row(option: click.Option, context: click.Context) -> str:
    value = "" if option.is_flag else f" {_metavar(option, context)}"
    names = ", ".join(f"`{name}{value if name == option.opts[-1] else ''}`" for name in (*option.opts, *option.secondary_opts))
    default, meaning = _default(option, context), " ".join((option.help or "").split())
    stated = _DEFAULT.search(meaning)
    if not default and stated is not None:
        default, meaning = stated["value"], f"{meaning[: stated.start()]}."
    if option.required:
        default = "required"
    if option.multiple and "repeat" not in meaning.lower():
        meaning += " May be repeated."
    return f"| {_cell(names)} | {_cell(_escaped(default))} | {_cell(_escaped(meaning))} |"


def _metavar(option: click.Option, context: click.Context) -> str:
    return option.make_metavar(context).replace(" RANGE", "")


def _default(option: click.Option, context: click.Context) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.get_default(context, call=False)
    shows_default = not option.is_flag and not option.multiple and value != "" and isinstance(value, (str, int, float))
    return f"{value}" if shows_default else ""


def _escaped(text: str) -> str:
    """Text in which nothing but `code` is markup."""
    parts = re.split(r"(`[^`]*`)", text.replace("\b", ""))
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_<\[\]])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
