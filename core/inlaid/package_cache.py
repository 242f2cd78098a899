"""Lookup of compiled packages in the cache, before the compiler or numpy is imported.

The key of a package is a hash of the model file, the compilation options, the targets as resolved on this machine, and the sources
and libraries of the compiler. A record under the same key has the package's size and checksum, the names and hashes of the other
files that the model reads, and the facts that commands report. A second, empty record states that such a package may exist: its key
covers all of this except the model's content, and so is cheap to compute.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.cache import Caches, Hashes, digest, is_intact
from inlaid_runtime.cores import in_background
from inlaid_runtime.errors import PackageError
from inlaid_runtime.execution.output import check_output, replacing
from inlaid_runtime.plugins.entry_points import installed_version
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    from inlaid_runtime.execution.package import Package

ARITHMETIC = ("numpy", "ml_dtypes")
"""Distributions that evaluate constants."""

_COPIED_BYTES = 1 << 20
"""Bytes that are copied at a time. A write of the whole mapping, whose pages may not be present, takes twice as long."""


@dataclass(frozen=True)
class Recipe:
    """Source of a package: the model file, and the cache key. `stamp` changes if the file changes. `lookup_key` is a key of all
    except the content of the file; `content` returns the hash of the content, or None if the file cannot be read."""

    model: Path
    lookup_key: str
    stamp: tuple[int, ...]
    content: Callable[[], str | None]

    @property
    def key(self) -> str | None:
        """The cache key; None if the file cannot be read. Waits until the file is hashed."""
        content = self.content()
        return None if content is None else digest(self.lookup_key, content)


class RegionFacts(NamedTuple):
    """Facts about a region of a package: name, target, and number of source nodes."""

    symbol: str
    target: str
    nodes: int


@dataclass(frozen=True)
class CachedPackage:
    """A cached package: its file and the mapped content, whose checksum is verified, and facts about the package."""

    file: Path
    content: mmap.mmap
    weight_bytes: int
    regions: tuple[RegionFacts, ...]

    def save(self, path: Path) -> None:
        """Write the package to `path`, atomically. Raises as `write_package` does."""
        check_output(path)
        with replacing(path) as file:
            for start in range(0, len(self.content), _COPIED_BYTES):
                file.write(self.content[start : start + _COPIED_BYTES])


def recipe(
    model: Path, targets: Sequence[str], options: Mapping[str, object], registry: PluginRegistry, caches: Caches
) -> Recipe | None:
    """Compute the recipe of compiling a file with the given targets, in order, and options. None if it cannot be computed: the file
    is missing, or a plugin does not consist of files. A thread hashes the file if no package of a file of this name and size
    is cached. Raises `TargetError` for a target that is not installed."""
    sources = registry.fingerprint
    try:
        stamp = _stamp(model)
    except OSError:
        return None
    if sources is None:
        return None
    resolved = [registry.target(text) for text in targets]
    request = {
        "asked": {name: options[name] for name in sorted(options)},
        "targets": [(str(target), registry.surroundings(target)) for target in resolved],
        "libraries": _libraries(registry),
    }
    lookup_key = digest(model.name, str(stamp[1]), sources, json.dumps(request, sort_keys=True))
    hashed = functools.cache(functools.partial(Hashes(caches.hashes).file, model))
    return Recipe(model, lookup_key, stamp, in_background(hashed) if caches.hashes.get(lookup_key) is None else hashed)


def find(recipe: Recipe, caches: Caches) -> CachedPackage | None:
    """Return the cached package of a recipe; None if it is missing or damaged."""
    if caches.hashes.get(recipe.lookup_key) is None or (key := recipe.key) is None:
        return None
    record, path = caches.models.get(key), caches.packages.find(key)
    if record is None or path is None:
        return None
    try:
        facts = json.loads(record)
        if any(_hash_beside(recipe.model, location, caches) != file_hash for location, file_hash in facts["files"].items()):
            return None
        regions = tuple(RegionFacts(*region) for region in facts["regions"])
        content = _map_file(path)
        return CachedPackage(path, content, facts["weight_bytes"], regions) if is_intact(content, facts["checksums"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def keep(recipe: Recipe, caches: Caches, package: Package, files: Iterable[str], registry: PluginRegistry) -> CachedPackage | None:
    """Cache the package of a recipe, whose model also reads `files` in its folder. Returns None if it was not cached, because
    caching failed, or the model or the sources have changed meanwhile."""
    key, hashes = recipe.key, {location: _hash_beside(recipe.model, location, caches) for location in sorted(files)}
    try:
        changed = _stamp(recipe.model) != recipe.stamp or registry.sources() != registry.fingerprint
    except OSError:
        changed = True
    if changed or key is None or None in hashes.values():
        return None
    path = caches.packages.add(key, functools.partial(_write, package))
    try:
        content = None if path is None else _map_file(path)
    except (OSError, ValueError):
        content = None  # another process has removed it
    if path is None or content is None:
        return None
    regions = region_facts(package)
    facts = {"files": hashes, "checksums": _checksums(content), "weight_bytes": package.weight_bytes, "regions": regions}
    caches.models.put(key, json.dumps(facts).encode())
    caches.hashes.put(recipe.lookup_key, b"")
    return CachedPackage(path, content, package.weight_bytes, regions)


def _checksums(content: mmap.mmap) -> list[tuple[int, int]]:
    """Return the checksums of consecutive pieces of a package, as (end, CRC-32). That of the weights is in the zip directory."""
    import zipfile

    with zipfile.ZipFile(content) as archive, memoryview(content) as data:  # type: ignore[call-overload] # it ignores what seek returns
        weights, stop = archive.infolist()[-1], archive.start_dir
        start = stop - weights.file_size
        return [(start, zlib.crc32(data[:start])), (stop, weights.CRC), (len(data), zlib.crc32(data[stop:]))]


def region_facts(package: Package) -> tuple[RegionFacts, ...]:
    """Return facts about the regions of a package."""
    return tuple(RegionFacts(info.symbol, info.target, len(info.nodes)) for info in package.program.regions)


def _write(package: Package, path: Path) -> None:
    from inlaid_runtime.execution.package import write_package

    try:
        write_package(package, path)
    except PackageError as error:
        raise OSError(str(error)) from error


def _map_file(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _hash_beside(model: Path, location: str, caches: Caches) -> str | None:
    """Return the hash of a file in the model's folder; `location` is its relative path."""
    return Hashes(caches.hashes).file(model.parent / location)


def _stamp(file: Path) -> tuple[int, ...]:
    status = os.stat(file)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _libraries(registry: PluginRegistry) -> list[str]:
    """List the versions of libraries that can affect packages: arithmetic libraries, and libraries that frontends import."""
    required = sorted({name for _, frontend in registry.frontends() for name in frontend.requires})
    return [installed_version(name) or "" for name in (*ARITHMETIC, *required)]
