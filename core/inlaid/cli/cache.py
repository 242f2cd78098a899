"""inlaid cache."""

from __future__ import annotations

import click

from inlaid.cache import caches
from inlaid.cli.common import json_option, print_json


@click.group("cache")
def cache_command() -> None:
    """What is kept of earlier compilations, to be quick the next time.

    INLAID_CACHE=off switches it off; XDG_CACHE_HOME says where it is, else ~/.cache.
    """


@cache_command.command("info")
@json_option
def info_command(as_json: bool) -> None:
    """Say where the cache is and what it holds."""
    kept = caches()
    facts = [(name, store.usage(), store.limit) for name, store in kept.stores().items()]
    if as_json:
        held = {name: {"entries": usage.entries, "bytes": usage.bytes, "limit": limit} for name, usage, limit in facts}
        print_json({"folder": None if kept.folder is None else str(kept.folder), "reason": kept.reason, **held})
        return
    click.echo(f"no cache: {kept.reason}" if kept.folder is None else str(kept.folder))
    for name, usage, limit in facts if kept.folder is not None else ():
        click.echo(f"  {name:<10} {usage.entries:>7} entries {usage.bytes / 2**20:>9.1f} of at most {limit / 2**20:.0f} MiB")


@cache_command.command("clear")
def clear_command() -> None:
    """Remove everything that is kept."""
    for store in caches().stores().values():
        store.clear()
