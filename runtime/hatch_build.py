"""Collects the files of the runtime from the source trees of `inlaid` and of the plugins.

The runtime consists of the files that the builds of `inlaid` and of the plugins exclude: the table `tool.hatch.build.exclude` of
each `pyproject.toml`. A source distribution has only these files, in the same folders as a checkout.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the runtime's files to a build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to `build_data`. Called by hatchling before a build. An editable installation refers to folders instead
        (`dev-mode-dirs`)."""
        if version == "editable":
            return
        root = Path(self.root)
        checkout = root if (root / "core").is_dir() else root.parent
        paths = _sources(checkout) if checkout == root else _excluded(checkout)
        for path in paths:
            inside = path.relative_to(checkout)
            target = inside if self.target_name == "sdist" else Path(*inside.parts[_depth(inside) :])
            build_data["force_include"][str(path)] = target.as_posix()


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the packages of an unpacked source distribution."""
    yield from (folder / "core").iterdir()
    yield from folder.glob("plugins/*/src/*")


def _excluded(checkout: Path) -> Iterator[Path]:
    """Yield the files and folders of a checkout that belong to the runtime."""
    for project in (checkout, *sorted(checkout.glob("plugins/*"))):
        file = project / "pyproject.toml"
        if file.exists():
            build = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["hatch"].get("build", {})
            for path in build.get("exclude", ()):
                yield project / path.removeprefix("/")


def _depth(path: Path) -> int:
    """Count the folders above the packages: `core/`, or `plugins/<name>/src/`."""
    return 1 if path.parts[0] == "core" else 3
