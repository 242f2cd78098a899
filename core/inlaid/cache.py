"""What was worked out before, kept in files of the user's cache folder.

A `Store` maps keys, which are hashes of everything that a value was made from, to values. Nothing that it does can make a compiler
fail: a value that cannot be read, is damaged or is gone is one that was never kept, and one that cannot be written is not kept.
Files are written under other names and renamed, so that a reader sees all of a value or none, however many processes write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SWITCH = "INLAID_CACHE"
"""Environment variable: "off" switches every cache off."""
LAYOUT = "v1"
"""The folder of what this layout of files keeps; another layout takes another name."""

OBJECT_BYTES = 1 << 30
MODEL_BYTES = 1 << 24
PACKAGE_BYTES = 1 << 32
"""Bytes that the stores of `caches` may take."""

_MAGIC = b"inlaid-1\n"
_DIGEST = 32
_KEY = re.compile(r"[0-9a-f]{64}")


def digest(*parts: str | bytes) -> str:
    """A key: the SHA-256 of parts, each with its length, in hexadecimal."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def tree_digest(folder: Path) -> str:
    """The SHA-256 of the names and contents of all files below a folder but compiled Python, in hexadecimal."""
    found = hashlib.sha256()
    stack = [str(folder)]
    while stack:
        here = stack.pop()
        with os.scandir(here) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    stack.append(entry.path)
            elif not entry.name.endswith(".pyc"):
                content = Path(entry.path).read_bytes()
                found.update(digest(os.path.relpath(entry.path, folder), content).encode())
    return found.hexdigest()


@dataclass(frozen=True)
class Usage:
    """What a store holds."""

    entries: int
    bytes: int


@dataclass(frozen=True)
class Store:
    """Values by key below a folder; None: nothing is kept.

    limit
        Bytes that the files may take. What was used last is kept longest.
    spread
        Hexadecimal digits of a key that choose one of the folders among which many small values are spread. Each holds its share of
        the limit, so that keeping a value looks through one folder only.
    suffix
        What names of files end with.
    """

    folder: Path | None
    limit: int
    spread: int = 0
    suffix: str = ""

    def get(self, key: str) -> bytes | None:
        """The value of a key, as it was kept; None where there is none."""
        path = self._path(key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        value = data[start:]
        if data[:start] != _MAGIC + hashlib.sha256(value).digest():
            _remove(path)
            return None
        _touch(path)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keep the value of a key."""
        path = self._path(key)
        if path is None or len(value) > self._share:
            return
        temporary = self._temporary(path.parent)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(_MAGIC + hashlib.sha256(value).digest() + value)
            os.replace(temporary, path)
        except OSError:
            _remove(temporary)
            return
        self._trim(path.parent)

    def find(self, key: str) -> Path | None:
        """The file of a value whose key is the SHA-256 of its bytes, in hexadecimal; None where there is none, or another's."""
        path = self._path(key) if _KEY.fullmatch(key) else None
        found = None if path is None else file_digest(path)
        if path is None or found is None:
            return None
        if found != key:
            _remove(path)
            return None
        _touch(path)
        return path

    def add(self, write: Callable[[Path], None]) -> tuple[str, Path] | None:
        """Keep a file, which is to be written to the path that `write` is given, for `find`. Its key and where it is, None where it
        is not kept."""
        if self.folder is None:
            return None
        temporary = self._temporary(self.folder)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write(temporary)
            temporary.chmod(0o600)
            key = file_digest(temporary)
            path = None if key is None else self._path(key)
            if key is None or path is None or temporary.stat().st_size > self._share:
                return None
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.replace(temporary, path)
        except OSError:
            return None
        finally:
            _remove(temporary)
        self._trim(path.parent)
        return key, path

    def usage(self) -> Usage:
        """How many files there are, and their bytes."""
        sizes = [] if self.folder is None else [entry.stat().st_size for entry in _files(self.folder, self.spread)]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> None:
        """Remove every value."""
        if self.folder is not None:
            for entry in _files(self.folder, self.spread):
                _remove(Path(entry.path))

    def _path(self, key: str) -> Path | None:
        assert _KEY.fullmatch(key), f"{key!r} is no key"
        if self.folder is None:
            return None
        return self.folder / key[: self.spread] / (key + self.suffix)

    @property
    def _share(self) -> int:
        """Bytes that the files of one folder may take."""
        return self.limit >> 4 * self.spread

    @staticmethod
    def _temporary(folder: Path) -> Path:
        """A name that nobody else writes under. Files of such names that were left behind go as values do."""
        return folder / f".{os.urandom(8).hex()}.tmp"

    def _trim(self, folder: Path) -> None:
        """Remove what was used longest ago until the rest fits. Files that others are still writing are the youngest."""
        facts = []
        for entry in _files(folder, 0):
            with contextlib.suppress(OSError):
                status = entry.stat()
                facts.append((status.st_mtime_ns, status.st_size, entry.path))
        excess = sum(size for _, size, _ in facts) - self._share
        for _, size, path in sorted(facts):
            if excess <= 0:
                return
            _remove(Path(path))
            excess -= size


@dataclass(frozen=True)
class MemoryStore(Store):
    """Values that live as long as the store, in this process."""

    folder: None = None
    limit: int = 0
    values: dict[str, bytes] = field(default_factory=dict, compare=False)

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value


@dataclass(frozen=True)
class Caches:
    """Every cache of a user. `folder` is None where nothing is kept, and `reason` says why.

    objects
        Object code by what it was compiled from: small and many.
    models
        By what a model is compiled from, what it became: names of packages.
    packages
        Package files by their own hash.
    """

    folder: Path | None
    reason: str
    objects: Store
    models: Store
    packages: Store

    def stores(self) -> dict[str, Store]:
        """The stores by name."""
        return {"objects": self.objects, "models": self.models, "packages": self.packages}


def caches(enabled: bool = True) -> Caches:
    """The caches of this user, in the folder `inlaid` of XDG_CACHE_HOME, else of ~/.cache. They keep nothing where switched off, or
    where others could write to the folder, since code is run as it lies there."""
    folder, reason = _locate() if enabled else (None, "switched off")
    below = None if folder is None else folder / LAYOUT
    return Caches(
        folder,
        reason,
        Store(_below(below, "objects"), OBJECT_BYTES, spread=2),
        Store(_below(below, "models"), MODEL_BYTES),
        Store(_below(below, "packages"), PACKAGE_BYTES, suffix=".inlaid"),
    )


def _below(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _locate() -> tuple[Path | None, str]:
    """The cache folder, made where it is missing; or None and the reason."""
    if os.environ.get(SWITCH, "").lower() == "off":
        return None, f"switched off by {SWITCH}"
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "inlaid"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return None, f"{folder} is not a folder"
        if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            return None, f"{folder} is another user's, or others may write to it"
        if status.st_mode & 0o077:
            folder.chmod(0o700)
    except (OSError, RuntimeError) as error:
        return None, f"there is no cache folder: {error}"
    return folder, ""


def _files(folder: Path, spread: int) -> list[os.DirEntry[str]]:
    """The files of a folder; of the folders in it, where values are spread."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:
        return []
    if spread:
        return [entry for below in found if below.is_dir(follow_symlinks=False) for entry in _files(Path(below.path), 0)]
    return [entry for entry in found if entry.is_file(follow_symlinks=False)]


def file_digest(path: Path) -> str | None:
    """The SHA-256 of a file, None where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _touch(path: Path) -> None:
    """Note that a value was used."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
