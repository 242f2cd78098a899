"""The user's compilation cache on disk.

A `DiskCache` maps keys to values; a key is a hash of everything from which the value was made. It never makes a compilation fail: a
missing, unreadable or damaged value is a cache miss, and a value that cannot be written is dropped. Files are written under a
temporary name and renamed, so that concurrent readers see a whole value or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from inlaid_runtime.records import dataclass, field

SWITCH = "INLAID_CACHE"
"""Environment variable that disables all caches if set to "off"."""
LAYOUT = "v1"
"""Folder name of this version of the file layout."""

OBJECT_BYTES = 1 << 30
MODEL_BYTES = 1 << 24
PACKAGE_BYTES = 1 << 32
HASH_BYTES = 1 << 18
"""Size limits of the stores of `caches`, in bytes."""
SETTLED_NS = 2_000_000_000
"""Age in nanoseconds from which the times of a file identify its content. A younger file can change again without a new time."""

_HASHED_BYTES = 1 << 22
"""Bytes of a file that are hashed at a time. Each piece waits for the interpreter lock, if other threads hold it."""
_MAGIC = b"inlaid-2\n"
_DIGEST = 32
_KEY = re.compile(r"[0-9a-f]{64}")


def digest(*parts: str | bytes) -> str:
    """Compute a key: the hexadecimal SHA-256 of the parts, each prefixed by its length."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def tree_digest(folder: Path) -> str:
    """Compute the hexadecimal SHA-256 of the names and contents of all files below a folder, except compiled Python."""
    hasher = hashlib.sha256()
    for entry in _tree(folder):
        with open(entry.path, "rb", buffering=0) as file:
            data = file.read()
        hasher.update(f"{_name(entry, folder)}\0{len(data)}\0".encode())
        hasher.update(data)
    return hasher.hexdigest()


def _name(entry: os.DirEntry[str], folder: Path) -> str:
    return entry.path.removeprefix(f"{folder}{os.sep}")


def _tree(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all files below a folder, except compiled Python, in an order that depends on their names alone."""
    stack = [str(folder)]
    while stack:
        directory = stack.pop()
        with os.scandir(directory) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
        for entry in children:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    stack.append(entry.path)
            elif not entry.name.endswith(".pyc"):
                yield entry


@dataclass(frozen=True)
class Usage:
    """Size of a store: number of files, and their bytes."""

    entries: int
    bytes: int


@dataclass(frozen=True)
class DiskCache:
    """Values by key below `folder`, evicted in least-recently-used order. Without a folder, nothing is stored.

    limit
        Greatest total size of the files, in bytes.
    spread
        Number of leading hexadecimal digits of the key that name a subfolder. Each subfolder has an equal share of the limit, so
        that storing a value scans one subfolder only.
    suffix
        Suffix of file names.
    """

    folder: Path | None
    limit: int
    spread: int = 0
    suffix: str = ""

    def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if it is missing, damaged, or stored under another key."""
        path = self._path(key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        value = data[start:]
        if data[:start] != _header(key, value):
            _remove(path)
            return None
        _touch(path)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Store the value of a key."""
        path = self._path(key)
        if path is None or len(value) > self._share:
            return
        temporary = self._temporary(path.parent)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(_header(key, value) + value)
            os.replace(temporary, path)
        except OSError:
            _remove(temporary)
            return
        self._trim(path.parent)

    def find(self, key: str) -> Path | None:
        """Return the file that `add` stored under a key; None if it is missing. Its content is not verified."""
        path = self._path(key)
        if path is None or not path.is_file():
            return None
        _touch(path)
        return path

    def add(self, key: str, write: Callable[[Path], None]) -> Path | None:
        """Store a file under a key, for `find`. `write` creates the file at a temporary path. Returns None on failure."""
        path = self._path(key)
        if path is None:
            return None
        temporary = self._temporary(path.parent)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write(temporary)
            temporary.chmod(0o600)
            if temporary.stat().st_size > self._share:
                return None
            os.replace(temporary, path)
        except OSError:
            return None
        finally:
            _remove(temporary)
        self._trim(path.parent)
        return path

    def usage(self) -> Usage:
        """Return the number of files and their bytes."""
        sizes = [] if self.folder is None else [entry.stat().st_size for entry in _files(self.folder, self.spread)]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> None:
        """Remove all values."""
        if self.folder is not None:
            for entry in _files(self.folder, self.spread):
                _remove(Path(entry.path))

    def _path(self, key: str) -> Path | None:
        assert _KEY.fullmatch(key), f"{key!r} is not a key"
        if self.folder is None:
            return None
        return self.folder / key[: self.spread] / (key + self.suffix)

    @property
    def _share(self) -> int:
        """Size limit of one subfolder, in bytes."""
        return self.limit >> 4 * self.spread

    @staticmethod
    def _temporary(folder: Path) -> Path:
        """Return an unused temporary path. Abandoned temporary files are evicted like values."""
        return folder / f".{os.urandom(8).hex()}.tmp"

    def _trim(self, folder: Path) -> None:
        """Evict the least recently used files until the rest fits. Files being written count as most recent."""
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
class MemoryCache(DiskCache):
    """Values in memory of this process, for the lifetime of the store."""

    folder: None = None
    limit: int = 0
    values: dict[str, bytes] = field(default_factory=dict, compare=False)

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value


@dataclass(frozen=True)
class Hashes:
    """Computes SHA-256 hashes of files and folders, in hexadecimal, and remembers them in a store.

    A file with the same device, inode, size, and times of modification and of status change is not read again. Unlike the time of
    modification, the time of status change cannot be set, so restoring old times does not hide a change. A file that changed less
    than `SETTLED_NS` ago is always read.
    """

    store: DiskCache

    def file(self, path: Path) -> str | None:
        """Return the hash of a file; None if it cannot be read."""
        try:
            facts = os.stat(path)
        except OSError:
            return None
        return self._cached_hash("file", [facts], lambda: file_digest(path))

    def tree(self, folder: Path) -> str:
        """Return the `tree_digest` of a folder."""
        entries = list(_tree(folder))
        names = [_name(entry, folder) for entry in entries]
        return self._cached_hash("\n".join(names), [entry.stat() for entry in entries], lambda: tree_digest(folder)) or ""

    def _cached_hash(self, names: str, files: list[os.stat_result], compute: Callable[[], str | None]) -> str | None:
        """Return the remembered hash of files, or else compute and remember it."""
        stamps = [(file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns) for file in files]
        now = time.time_ns()
        if any(now - max(stamp[3:]) < SETTLED_NS for stamp in stamps):
            return compute()
        key = digest(names, repr(stamps))
        cached = self.store.get(key)
        if cached is not None:
            return cached.decode()
        computed = compute()
        if computed is not None:
            self.store.put(key, computed.encode())
        return computed


@dataclass(frozen=True)
class Caches:
    """All caches of a user. `folder` is None if caching is disabled, for `reason`.

    objects
        Object code, by a hash of its source: many small values.
    models
        Facts about packages, by a hash of the model, options and compiler.
    packages
        Package files, by the keys of `models`.
    hashes
        Hashes of files and folders, by the identity, sizes and times of the files (see `Hashes`); and empty records of packages, by
        the same hash as in `models`, but without the model's content.
    """

    folder: Path | None
    reason: str
    objects: DiskCache
    models: DiskCache
    packages: DiskCache
    hashes: DiskCache

    def stores(self) -> dict[str, DiskCache]:
        """Return the stores, by name."""
        return {"objects": self.objects, "models": self.models, "packages": self.packages, "hashes": self.hashes}


def caches(enabled: bool = True) -> Caches:
    """Return the caches of this user, below $XDG_CACHE_HOME/inlaid or ~/.cache/inlaid. The caches store nothing if disabled, or if
    other users could write to the folder, since cached code is executed."""
    folder, reason = _locate() if enabled else (None, "disabled")
    stores = None if folder is None else folder / LAYOUT
    return Caches(
        folder,
        reason,
        DiskCache(_below(stores, "objects"), OBJECT_BYTES, spread=2),
        DiskCache(_below(stores, "models"), MODEL_BYTES),
        DiskCache(_below(stores, "packages"), PACKAGE_BYTES, suffix=".inlaid"),
        DiskCache(_below(stores, "hashes"), HASH_BYTES),
    )


def _below(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _locate() -> tuple[Path | None, str]:
    """Locate the cache folder and create it if missing. Returns None and the reason if caching is impossible."""
    if os.environ.get(SWITCH, "").lower() == "off":
        return None, f"disabled by {SWITCH}"
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "inlaid"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return None, f"{folder} is not a directory"
        if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            return None, f"{folder} is owned or writable by another user"
        if status.st_mode & 0o077:
            folder.chmod(0o700)
    except (OSError, RuntimeError) as error:
        return None, f"no usable cache folder: {error}"
    return folder, ""


def _files(folder: Path, spread: int) -> list[os.DirEntry[str]]:
    """Return the files of a folder, or of its subfolders if `spread` is nonzero."""
    try:
        with os.scandir(folder) as entries:
            children = list(entries)
    except OSError:
        return []
    if spread:
        return [entry for child in children if child.is_dir(follow_symlinks=False) for entry in _files(Path(child.path), 0)]
    return [entry for entry in children if entry.is_file(follow_symlinks=False)]


def file_digest(path: Path) -> str | None:
    """Return the hexadecimal SHA-256 of a file; None if it cannot be read."""
    hasher = hashlib.sha256()
    try:
        # Not from the heap: after freeing a block of this size, glibc no longer returns weights of that size to the system.
        with open(path, "rb", buffering=0) as file, mmap.mmap(-1, _HASHED_BYTES) as buffer, memoryview(buffer) as piece:
            while size := file.readinto(piece):
                hasher.update(piece[:size])
    except OSError:
        return None
    return hasher.hexdigest()


def is_intact(content: mmap.mmap, checksums: Sequence[tuple[int, int]]) -> bool:
    """Test whether consecutive pieces of a file have the `checksums`, given as (end, CRC-32)."""
    ends = [end for end, _ in checksums]
    with memoryview(content) as data:
        actual = [(end, zlib.crc32(data[start:end])) for start, end in zip([0, *ends], ends, strict=False)]
    return ends[-1:] == [len(content)] and actual == list(map(tuple, checksums))


def _header(key: str, value: bytes) -> bytes:
    """Return the bytes before a value in its file: a digest of the key and the value, so that no file is taken for that of another
    key."""
    return _MAGIC + hashlib.sha256(key.encode() + value).digest()


def _touch(path: Path) -> None:
    """Mark a value as used just now."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
