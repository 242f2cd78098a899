"""Stores: values by key in files that may be damaged, shared, full or gone."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import inlaid_runtime.cache
from inlaid_runtime.cache import SWITCH, DiskCache, Hashes, MemoryCache, Usage, caches, digest, tree_digest

KEYS = [digest(str(number)) for number in range(40)]


def store(folder: Path, limit: int = 1 << 20, spread: int = 2) -> DiskCache:
    return DiskCache(folder, limit, spread)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_keys_depend_on_where_parts_end() -> None:
    assert digest("ab", "c") != digest("a", "bc") != digest("abc") and digest("a") == digest(b"a")


@pytest.mark.parametrize("spread", [0, 2])
def test_what_is_put_is_got(tmp_path: Path, spread: int) -> None:
    cache = store(tmp_path / "deep" / "down", spread=spread)
    assert cache.get(KEYS[0]) is None
    for key in KEYS:
        cache.put(key, key.encode())
    cache.put(KEYS[0], b"")
    assert cache.get(KEYS[0]) == b"" and all(cache.get(key) == key.encode() for key in KEYS[1:])
    assert cache.usage() == Usage(len(KEYS), sum(path.stat().st_size for path in files(tmp_path)))
    cache.clear()
    assert cache.usage() == Usage(0, 0) and cache.get(KEYS[1]) is None


def test_nothing_is_kept_nowhere() -> None:
    nowhere = DiskCache(None, 1 << 20)
    nowhere.put(KEYS[0], b"x")
    assert nowhere.get(KEYS[0]) is None and nowhere.find(KEYS[0]) is None
    assert nowhere.add(KEYS[0], lambda path: None) is None
    assert nowhere.usage() == Usage(0, 0)
    nowhere.clear()


def test_values_in_memory_live_as_long_as_their_store() -> None:
    cache = MemoryCache()
    cache.put(KEYS[0], b"x")
    assert cache.get(KEYS[0]) == b"x" and cache.get(KEYS[1]) is None and MemoryCache().get(KEYS[0]) is None
    assert cache.folder is None and cache.usage() == Usage(0, 0)


@pytest.mark.parametrize("damage", [b"", b"inlaid-2\n", b"x" * 60, None])
def test_damaged_values_are_ignored_and_replaced(tmp_path: Path, damage: bytes | None) -> None:
    cache = store(tmp_path)
    cache.put(KEYS[0], b"value")
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"X" if damage is None else damage)
    assert cache.get(KEYS[0]) is None and not path.exists()
    cache.put(KEYS[0], b"value")
    assert cache.get(KEYS[0]) == b"value"


def test_a_value_is_bound_to_its_key(tmp_path: Path) -> None:
    cache = store(tmp_path)
    cache.put(KEYS[0], b"value")
    (first,) = files(tmp_path)
    cache.put(KEYS[1], b"other")
    (second,) = set(files(tmp_path)) - {first}
    second.write_bytes(first.read_bytes())
    assert cache.get(KEYS[1]) is None and not second.exists() and cache.get(KEYS[0]) == b"value"


def test_files(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "files", 1 << 20, suffix=".bin")
    path = cache.add(KEYS[0], lambda path: path.write_bytes(b"content"))
    file = cache.find(KEYS[0])
    assert file is not None and file == path and file.name == f"{KEYS[0]}.bin" and file.read_bytes() == b"content"
    assert cache.add(KEYS[0], lambda path: path.write_bytes(b"new")) == path and file.read_bytes() == b"new"
    assert len(files(tmp_path)) == 1 and cache.find(KEYS[1]) is None


def test_hashes_of_files_that_settled_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    file = folder / "below" / "file"
    file.write_bytes(b"one")
    read: list[Path] = []

    def content(path: Path) -> str:
        read.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(inlaid_runtime.cache, "file_digest", content)
    hashes = Hashes(DiskCache(tmp_path / "hashes", 1 << 20))

    def both() -> tuple[str | None, str]:
        return hashes.file(file), hashes.tree(folder)

    first = both()
    assert first == (hashlib.sha256(b"one").hexdigest(), tree_digest(folder))
    assert not files(tmp_path / "hashes")  # the file is young
    monkeypatch.setattr(inlaid_runtime.cache, "SETTLED_NS", 0)
    assert both() == first == both() and len(read) == 2 and len(files(tmp_path / "hashes")) == 2
    facts = file.stat()
    while file.stat().st_ctime_ns == facts.st_ctime_ns:  # clocks of file systems tick every few milliseconds
        file.write_bytes(b"two")
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert both() == (hashlib.sha256(b"two").hexdigest(), tree_digest(folder)) != first and len(read) == 3
    file.rename(folder / "renamed")
    assert hashes.tree(folder) == tree_digest(folder) and hashes.file(file) is None


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    assert cache.add(KEYS[0], fail) is None and not files(tmp_path)
    (tmp_path / "taken").write_bytes(b"")
    blocked = DiskCache(tmp_path / "taken" / "below", 1 << 20)
    blocked.put(KEYS[0], b"x")
    assert blocked.get(KEYS[0]) is None


def test_what_was_used_last_is_kept(tmp_path: Path) -> None:
    DiskCache(tmp_path / "one", 1000).put(KEYS[0], bytes(100))
    cache = DiskCache(tmp_path, 10 * (tmp_path / "one" / KEYS[0]).stat().st_size)
    for number, key in enumerate(KEYS[:10]):
        cache.put(key, bytes(100))
        os.utime(tmp_path / key, (number, number))
    assert cache.get(KEYS[0]) is not None  # the oldest is now the youngest
    cache.put(KEYS[10], bytes(100))
    cache.put(KEYS[11], bytes(600))
    left = [key for key in KEYS if (tmp_path / key).exists()]
    assert cache.usage().bytes <= cache.limit and KEYS[0] in left and KEYS[11] in left and KEYS[1] not in left


def test_the_share_of_each_folder_bounds_all(tmp_path: Path) -> None:
    cache = store(tmp_path, limit=256 * 300)
    for number in range(600):
        cache.put(digest(str(number)), bytes(100))
    assert cache.usage().bytes <= cache.limit


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 100)
    cache.put(KEYS[0], bytes(20))
    cache.put(KEYS[1], bytes(1000))
    assert cache.add(KEYS[2], lambda path: path.write_bytes(bytes(1000))) is None
    assert cache.get(KEYS[0]) == bytes(20) and cache.usage().entries == 1


def test_many_processes_at_once(tmp_path: Path) -> None:
    """Readers see whole values only, while others write, replace, damage and trim."""
    code = textwrap.dedent("""
        import random, sys
        from pathlib import Path
        from inlaid_runtime.cache import DiskCache, digest
        kept = DiskCache(Path(sys.argv[1]), 20_000)
        rng = random.Random(int(sys.argv[2]))
        keys = [digest(str(number)) for number in range(20)]
        got = 0
        for _ in range(300):
            number = rng.randrange(20)
            path = Path(sys.argv[1]) / keys[number]
            if rng.random() < 0.02 and path.exists():
                path.write_bytes(b"damaged")
            if rng.random() < 0.5:
                kept.put(keys[number], bytes([number]) * 2000)
            value = kept.get(keys[number])
            assert value in (None, bytes([number]) * 2000)
            got += value is not None
        assert got
    """)
    processes = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code, str(tmp_path), str(seed)], stderr=subprocess.PIPE)
        for seed in range(4)
    ]
    for process in processes:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr.decode()
    assert DiskCache(tmp_path, 20_000).usage().bytes <= 20_000 + 4 * 2100
    assert not [path for path in files(tmp_path) if path.name.endswith(".tmp")]


def test_the_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    user_caches = caches()
    user_caches.objects.put(KEYS[0], b"x")
    user_caches.packages.add(KEYS[0], lambda path: path.write_bytes(b"x"))
    assert user_caches.folder == tmp_path / "inlaid" and not user_caches.reason
    assert stat.S_IMODE(user_caches.folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files(tmp_path))


def test_a_folder_that_others_may_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "inlaid").mkdir(mode=0o755)
    (tmp_path / "inlaid").chmod(0o755)
    assert caches().folder is not None
    assert stat.S_IMODE((tmp_path / "inlaid").stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["writable", "link", "file"])
def test_a_folder_that_others_may_fill_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "inlaid"
    if kind == "writable":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_bytes(b"")
    user_caches = caches()
    assert user_caches.folder is None and user_caches.reason and user_caches.objects.folder is None
    user_caches.objects.put(KEYS[0], b"x")
    assert user_caches.objects.get(KEYS[0]) is None


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caches(enabled=False).folder is None
    monkeypatch.setenv(SWITCH, "off")
    assert caches().folder is None and SWITCH in caches().reason


def test_hashes_of_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("1")
    first = tree_digest(tmp_path)
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "x.pyc").write_text("compiled")
    assert tree_digest(tmp_path) == first
    (tmp_path / "a" / "x.py").write_text("2")
    second = tree_digest(tmp_path)
    (tmp_path / "a" / "x.py").rename(tmp_path / "x.py")
    assert len({first, second, tree_digest(tmp_path)}) == 3
