"""inlaid cache."""

from __future__ import annotations

import click

from inlaid_cli.common import json_option
from inlaid_cli.json_output import print_json
from inlaid_runtime.cache import caches


@click.group("cache")
def cache_command() -> None:
    """Manage the compilation cache.

    The cache is stored in $XDG_CACHE_HOME/inlaid, by default ~/.cache/inlaid. INLAID_CACHE=off disables it.
    """


@cache_command.command("info")
@json_option
def info_command(as_json: bool) -> None:
    """Print the location, size and limits of the cache."""
    disk_caches = caches()
    facts = [(name, store.usage(), store.limit) for name, store in disk_caches.stores().items()]
    if as_json:
        entries_by_store = {name: {"entries": usage.entries, "bytes": usage.bytes, "limit": limit} for name, usage, limit in facts}
        print_json(
            {
                "folder": None if disk_caches.folder is None else str(disk_caches.folder),
                "reason": disk_caches.reason,
                **entries_by_store,
            }
        )
        return
    click.echo(f"no cache: {disk_caches.reason}" if disk_caches.folder is None else str(disk_caches.folder))
    for name, usage, limit in facts if disk_caches.folder is not None else ():
        click.echo(f"  {name:<10} {usage.entries:>7} entries {usage.bytes / 2**20:>9.1f} of at most {limit / 2**20:.0f} MiB")


@cache_command.command("clear")
@json_option
def clear_command(as_json: bool) -> None:
    """Remove all cached objects, models and packages."""
    removed = {}
    for name, store in caches().stores().items():
        removed[name] = store.usage().entries
        store.clear()
    if as_json:
        print_json({"removed": removed})
