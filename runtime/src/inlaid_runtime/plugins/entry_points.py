"""Entry points and versions of installed distributions, found without `importlib.metadata`.

`importlib.metadata` parses the metadata of every distribution and imports the packages for e-mail and sockets, which takes longer
than loading a package. It is used only if something other than ordinary folders provides distributions.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
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

    @property
    def group(self) -> str:
        """Group of the entry point: that of compile modules, or that of run modules."""

    def load(self) -> Any:
        """Import the module."""


class InstalledDistribution(NamedTuple):
    """A distribution in a folder of `sys.path`."""

    name: str
    version: str

    @property
    def key(self) -> str:
        """Normalized name."""
        return re.sub(r"[-_.]+", "-", self.name).lower()


class InstalledEntryPoint(NamedTuple):
    """A line of `entry_points.txt`: an object named as `module` or `module:attribute`."""

    name: str
    value: str
    group: str
    dist: InstalledDistribution | None = None

    def load(self) -> Any:
        """Import the module. If an attribute is named, return the attribute."""
        module, _, attributes = self.value.partition(":")
        entry: Any = importlib.import_module(module.strip())
        for attribute in filter(None, attributes.partition("[")[0].strip().split(".")):
            entry = getattr(entry, attribute)
        return entry


def installed(*groups: str) -> tuple[EntryPoint, ...]:
    """Return the installed entry points of groups."""
    folders = _folders()
    if folders is None:
        import importlib.metadata

        points = (point for group in groups for point in importlib.metadata.entry_points(group=group))
        return cast("tuple[EntryPoint, ...]", tuple(points))
    return tuple(_scan_entry_points(folders, groups))


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    folders = _folders()
    if folders is None:
        import importlib.metadata

        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None
    key = InstalledDistribution(name, "").key
    return next((distribution.version for _, distribution in _distributions(folders) if distribution.key == key), None)


def _folders() -> list[Path] | None:
    """Return the folders that provide distributions; None if something else does too."""
    other_finders = [finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_distributions")]
    folders = [Path(entry or os.curdir) for entry in sys.path]
    return None if other_finders or any(folder.is_file() for folder in folders) else folders


def _distributions(folders: list[Path]) -> Iterator[tuple[Path, InstalledDistribution]]:
    """Yield the distributions in folders with their metadata folders. The first one of a name is the one that is imported."""
    distribution_keys: set[str] = set()
    for folder in folders:
        try:
            status = os.stat(folder)
            listing = _listing(folder, (status.st_dev, status.st_ino, status.st_mtime_ns))
        except OSError:
            continue
        for name, key, distribution in listing:
            if key not in distribution_keys:
                distribution_keys.add(key)
                yield folder / name, distribution


@functools.lru_cache(maxsize=64)
def _listing(folder: Path, _version: tuple[int, int, int]) -> tuple[tuple[str, str, InstalledDistribution], ...]:
    """Return the metadata folders in a folder, each with the distribution's key and the distribution. Cached, since a process asks
    for several groups and versions; an installation changes `_version`, which has the time of the
    folder. A relative folder is another one after a change of the working directory."""
    matches = filter(None, map(_METADATA.fullmatch, sorted(os.listdir(folder))))
    distributions = ((match[0], InstalledDistribution(match["name"].replace("_", "-"), match["version"])) for match in matches)
    return tuple((name, distribution.key, distribution) for name, distribution in distributions)


def _scan_entry_points(folders: list[Path], groups: Sequence[str]) -> Iterator[InstalledEntryPoint]:
    for metadata, distribution in _distributions(folders):
        try:
            text = (metadata / "entry_points.txt").read_text(encoding="utf-8")
        except OSError:
            continue
        for group, point, value in _lines(text, groups):
            yield InstalledEntryPoint(point, value, group, distribution)


def _lines(text: str, groups: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield group, name and value of each line of the groups in the text of an `entry_points.txt`."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section in groups and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield section, name.strip(), value.strip()
