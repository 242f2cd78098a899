"""Entry points of installed plugins, found without `importlib.metadata`.

`importlib.metadata` parses the metadata of every distribution and imports the packages for e-mail and sockets, which takes longer
than loading a package. It is used only if something other than ordinary folders provides distributions.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

_METADATA = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(-[^-]+)?\.(dist|egg)-info")
"""Matches the name of a metadata folder: name and version of the distribution, and for eggs the version of Python."""


class Distribution(Protocol):
    """Distribution that contains an entry point."""

    @property
    def name(self) -> str:
        """Name of the distribution."""

    @property
    def version(self) -> str:
        """Version of the distribution."""


class EntryPoint(Protocol):
    """Interface of the entry points that discovery uses; entry points of `importlib.metadata` have it too."""

    @property
    def name(self) -> str:
        """Name of the plugin."""

    @property
    def value(self) -> str:
        """Name of the plugin's module."""

    def load(self) -> Any:
        """Import the module."""


class InstalledDistribution(NamedTuple):
    """A distribution in a folder of `sys.path`."""

    name: str
    version: str


class InstalledEntryPoint(NamedTuple):
    """A line of `entry_points.txt`: an object named as `module` or `module:attribute`."""

    name: str
    value: str
    dist: InstalledDistribution

    def load(self) -> Any:
        """Import the module. If an attribute is named, return the attribute."""
        module, _, attributes = self.value.partition(":")
        found: Any = importlib.import_module(module.strip())
        for attribute in filter(None, attributes.partition("[")[0].strip().split(".")):
            found = getattr(found, attribute)
        return found


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the installed entry points of a group."""
    others = [finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_distributions")]
    folders = [Path(entry or os.curdir) for entry in sys.path]
    if others or any(folder.is_file() for folder in folders):
        import importlib.metadata

        return cast("tuple[EntryPoint, ...]", tuple(importlib.metadata.entry_points(group=group)))
    return tuple(_found(folders, group))


def _found(folders: list[Path], group: str) -> Iterator[InstalledEntryPoint]:
    seen: set[str] = set()
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            match = _METADATA.fullmatch(name)
            if match is None:
                continue
            # The first distribution of a name on the path is the one that is imported.
            distribution = InstalledDistribution(match["name"].replace("_", "-"), match["version"])
            key = distribution.name.lower()
            if key in seen:
                continue
            seen.add(key)
            try:
                text = (folder / name / "entry_points.txt").read_text(encoding="utf-8")
            except OSError:
                continue
            for point, value in _lines(text, group):
                yield InstalledEntryPoint(point, value, distribution)


def _lines(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a group in the text of an `entry_points.txt`."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
