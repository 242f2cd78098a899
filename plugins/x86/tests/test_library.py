"""Exported libraries check the processor when they are loaded."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from inlaid.codegen.elf import link
from inlaid.codegen.library import UNSUPPORTED_PROCESSOR, CopyStep, LibraryFunction, MemoryAddress
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_x86 import library
from inlaid_x86.linking import X86_64
from inlaid_x86_runtime.cpu import TILE, host_features
from inlaid_x86_runtime.instruction_sets import CPUINFO, EAX, FEATURES, Feature

FLAGS = next(line for line in CPUINFO.read_text().splitlines() if line.startswith("flags")).split()
COPY = CopyStep(MemoryAddress("argument", 1), MemoryAddress("argument", 0), 8)


def run(folder: Path, *requires: str) -> tuple[int, str, bool]:
    """What a library that copies eight bytes returns, what it says, and whether it has copied."""
    function = LibraryFunction("copy", 2, (COPY,), 0, requires)
    path = folder / f"{'-'.join(requires)}.so"
    path.write_bytes(b"".join(link(library.library_objects(function), ["copy_run"], X86_64, name=path.name)))
    source, target, message = ctypes.c_int64(7), ctypes.c_int64(), ctypes.create_string_buffer(256)
    loaded = ctypes.CDLL(str(path))
    addresses = [ctypes.c_void_p(ctypes.addressof(item)) for item in (source, target)]
    assert loaded.copy_run(*addresses, None, None) == loaded.copy_run(*addresses, None, message)
    return loaded.copy_run(*addresses, None, None), message.value.decode(), target.value == 7


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_features_are_what_the_kernel_reports(tmp_path: Path, feature: Feature) -> None:
    present = feature.flag in FLAGS and (feature.name != TILE or TILE in host_features())
    text = "" if present else f"expected a processor with {feature.name}, found one without; export for its cpu"
    assert run(tmp_path, feature.name) == (0 if present else UNSUPPORTED_PROCESSOR, text, present)


def test_the_first_missing_feature_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imaginary = [Feature(name, "", 0x4FFFFFFF, 0, EAX, 3) for name in ("warp", "tachyons")]
    unsaved = Feature("unsaved", "sse2", 1, 0, 3, 26, 1 << 30)
    monkeypatch.setattr(library, "FEATURES", (*FEATURES, *imaginary, unsaved))
    status, message, copied = run(tmp_path, "tachyons", "warp")
    assert (status, copied) == (UNSUPPORTED_PROCESSOR, False) and "with tachyons," in message
    assert run(tmp_path, "unsaved")[0] == UNSUPPORTED_PROCESSOR
    assert run(tmp_path)[0] == 0


def test_what_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match="cannot check for CPU features warp"):
        run(tmp_path, "warp")
    monkeypatch.setattr(library.platform, "machine", lambda: "aarch64")
    with pytest.raises(Unsupported, match=r"expected an x86_64 host.*found aarch64"):
        run(tmp_path, "sse3")
