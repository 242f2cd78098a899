"""Modules to objects: each distinct one once, in processes of their own or here, known ones from the store."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from inlay.cache import Store
from inlay.errors import CompileError
from inlay_x86 import compilers, emit
from inlay_x86.compilers import Compilers
from inlay_x86.loader import link

NOTHING = Store(None, 0)


def module(number: int) -> str:
    """A kernel that gives a number."""
    return f'target triple = "{emit.TRIPLE}"\ndefine i32 @{emit.KERNEL}() {{\n  ret i32 {number}\n}}\n'


def value_of(objects: dict[str, bytes], symbol: str) -> int:
    linked = link([objects[symbol]], symbol, (symbol,))
    return int(ctypes.CFUNCTYPE(ctypes.c_int32)(linked.addresses[symbol])())


@pytest.fixture(params=["here", "processes"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compile in this process, or in others however small the work."""
    if request.param == "processes":
        monkeypatch.setattr(compilers, "SHARE", 1)
        monkeypatch.setattr(compilers, "_cores", lambda: 2)
    return str(request.param)


def test_equal_modules_are_compiled_once(where: str) -> None:
    with Compilers((), NOTHING) as work:
        symbols = [work.kernel(module(number)) for number in (7, 8, 7, 9)]
        objects = work.finish()
    assert symbols[0] == symbols[2] and len(set(symbols)) == len(objects) == 3
    assert [value_of(objects, symbol) for symbol in symbols] == [7, 8, 7, 9]


def test_symbols_depend_on_all_that_objects_do() -> None:
    with Compilers((), NOTHING) as plain, Compilers(("avx2",), NOTHING) as fast:
        assert plain.kernel(module(1)) != fast.kernel(module(1)) != fast.kernel(module(2))
        assert plain.finish() and fast.finish()


def test_what_is_known_is_not_compiled(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, 1 << 20, spread=2)
    found = []
    for _ in range(2):
        with Compilers((), store) as work:
            work.kernel(module(3))
            work.entry(module(4).replace(emit.KERNEL, "entry"), "entry")
            found.append(work.finish())
        monkeypatch.setattr(compilers, "compile_text", None)
        monkeypatch.setattr(compilers, "_Worker", None)
    assert found[0] == found[1] and value_of(found[1], "entry") == 4
    assert store.usage().entries == 2


def test_damaged_objects_are_compiled_anew(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 20)
    for _ in range(2):
        with Compilers((), store) as work:
            symbol = work.kernel(module(5))
            assert value_of(work.finish(), symbol) == 5
        (kept,) = tmp_path.iterdir()
        kept.write_bytes(kept.read_bytes()[:-3])


def test_what_llvm_rejects(where: str) -> None:
    with Compilers((), NOTHING) as work:
        work.kernel(module(1))
        work.kernel(module(2).replace("ret i32", "ret i64"))
        with pytest.raises(CompileError, match="LLVM rejects the generated code") as failed:
            work.finish()
    assert failed.value.plugin == "x86"


def test_a_process_that_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LLVM ends a process at some of its own failures: that is an error like another, with what LLVM said last."""
    dying = tmp_path / "emit.py"
    dying.write_text("import sys\nsys.stdin.buffer.read(1)\nsys.exit('LLVM ERROR: out of luck')\n")
    monkeypatch.setattr(compilers, "SHARE", 1)
    monkeypatch.setattr(compilers.emit, "__file__", str(dying))
    with Compilers((), NOTHING) as work:
        for number in range(5):
            work.kernel(module(number))
        with pytest.raises(CompileError, match="LLVM failed: LLVM ERROR: out of luck"):
            work.finish()


def test_leaving_early_ends_the_processes(where: str) -> None:
    work = Compilers((), NOTHING)

    def stop() -> None:
        with work:
            for number in range(20):
                work.kernel(module(number))
            raise KeyError

    with pytest.raises(KeyError):
        stop()
    assert all(worker._process.poll() is not None and not worker._thread.is_alive() for worker in work._workers)
