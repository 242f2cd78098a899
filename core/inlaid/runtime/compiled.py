"""Lookup of compiled packages in the cache, before the compiler is imported.

The key of a package is a hash of the model file, the compilation options, the targets as resolved on this machine, and the sources
and libraries of the compiler. The value has the package's name, and the names and hashes of the other files that the model reads.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from inlaid.cache import Caches, digest, file_digest
from inlaid.errors import PackageError
from inlaid.plugins.frontend import version_of
from inlaid.plugins.registry import PluginRegistry
from inlaid.runtime.package import Package, write_package


@dataclass(frozen=True)
class Recipe:
    """Source of a package: the model file, and the cache key. `stamp` changes if the file changes."""

    model: Path
    key: str
    stamp: tuple[int, ...]


def recipe(model: Path, targets: Sequence[str], asked: Mapping[str, object], registry: PluginRegistry) -> Recipe | None:
    """Compute the recipe of compiling a file with the given targets, in order, and options. None if it cannot be computed: the file
    is unreadable, or a plugin does not consist of files. Raises `TargetError` for a target that is not installed."""
    sources = registry.fingerprint
    try:
        stamp = _stamp(model)
    except OSError:
        return None
    content = file_digest(model)
    if sources is None or content is None:
        return None
    resolved = [registry.target(text) for text in targets]
    request = {
        "asked": {name: asked[name] for name in sorted(asked)},
        "targets": [(str(target), registry.surroundings(target)) for target in resolved],
        "libraries": _libraries(registry),
    }
    return Recipe(model, digest(model.name, content, sources, json.dumps(request, sort_keys=True)), stamp)


def find(made: Recipe, caches: Caches) -> Path | None:
    """Return the cached package of a recipe; None if it is not cached."""
    record = caches.models.get(made.key)
    if record is None:
        return None
    try:
        facts = json.loads(record)
        package, files = facts["package"], facts["files"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(package, str) or not isinstance(files, dict):
        return None
    if any(_beside(made.model, location) != known for location, known in files.items()):
        return None
    return caches.packages.find(package)


def keep(made: Recipe, caches: Caches, package: Package, files: Iterable[str], registry: PluginRegistry) -> Path | None:
    """Cache the package of a recipe, whose model also reads `files` in its folder. Returns the cached file; None if it was not
    cached, because caching failed, or the model or the sources have changed meanwhile."""
    hashes = {location: _beside(made.model, location) for location in sorted(files)}
    try:
        changed = _stamp(made.model) != made.stamp or registry.sources() != registry.fingerprint
    except OSError:
        changed = True
    if changed or None in hashes.values():
        return None
    kept = caches.packages.add(functools.partial(_write, package))
    if kept is None:
        return None
    key, path = kept
    caches.models.put(made.key, json.dumps({"package": key, "files": hashes}).encode())
    return path


def _write(package: Package, path: Path) -> None:
    try:
        write_package(package, path)
    except PackageError as error:
        raise OSError(str(error)) from error


def _beside(model: Path, location: str) -> str | None:
    """Return the hash of a file in the model's folder; `location` is its relative path."""
    return file_digest(model.parent / location)


def _stamp(file: Path) -> tuple[int, ...]:
    status = os.stat(file)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _libraries(registry: PluginRegistry) -> list[str]:
    """List the versions of libraries that can affect packages: arithmetic libraries, and libraries that frontends import."""
    required = sorted({name for _, frontend in registry.frontends() for name in frontend.requires})
    return [np.__version__, ml_dtypes.__version__, *(version_of(name) or "" for name in required)]
