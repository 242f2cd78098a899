"""Images in memory: checked before they are mapped, given back with their kernels, mapped another way where a host forbids one."""

from __future__ import annotations

import dataclasses
import gc
import io
import os
import struct
import subprocess
import sys
import textwrap
from ctypes import CDLL, CFUNCTYPE, c_int32, c_void_p
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.artifact.image import read_image
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution import mapped
from inlaid_runtime.execution.mapped import map_image
from inlaid_x86 import pool_text
from inlaid_x86_runtime.pool import IMAGE, MACHINE
from inlaid_x86_runtime.runtime import X86Runtime

from .native import PLAIN, compile_region, make_region
from .test_compilers import adding

CODE = compile_region(make_region([adding(1)]), PLAIN).code
PROGRAM_HEADERS = 64


def patched(at: int, form: str, value: int) -> bytes:
    code = bytearray(CODE)
    struct.pack_into(form, code, at, value)
    return bytes(code)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (b"", "it has 0 bytes"),
        (CODE[:63], "fewer than an ELF header"),
        (b"!<arch>\n" + CODE, "not a 64-bit little-endian ELF file"),
        (patched(16, "<H", 1), "expected ELF type 3 .*got 1"),
        (patched(18, "<H", 183), "expected ELF machine 62, got 183"),
        (patched(32, "<Q", len(CODE)), "program headers exceed the file"),
        (patched(56, "<H", 0xFFFF), "program headers exceed the file"),
        (patched(56, "<H", 0), "nothing to load"),
        (CODE[:600], "program header . exceeds the file"),
        (patched(PROGRAM_HEADERS + 4, "<I", 7), "both writable and executable"),
        (patched(PROGRAM_HEADERS + 32, "<Q", 1 << 40), "program header 0 exceeds the file"),
        (patched(PROGRAM_HEADERS + 40, "<Q", 1 << 40), "program header 0 ends beyond"),
        (patched(PROGRAM_HEADERS + 40, "<Q", 1 << 20), "overlaps the one before"),
        (patched(PROGRAM_HEADERS + 56 + 4, "<I", 4), "is not in an executable segment"),
    ],
)
def test_damage_is_found(code: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_image(code, MACHINE)
    with pytest.raises(KernelFault, match="is damaged"):
        map_image(code, MACHINE, "region0")


@settings(deadline=None, max_examples=400)
@given(st.integers(0, len(CODE) - 1), st.binary(min_size=1, max_size=8))
def test_no_damage_escapes_the_image(at: int, noise: bytes) -> None:
    """An image with any bytes changed is refused, or all of its parts lie inside of it."""
    code = (CODE[:at] + noise + CODE[at + len(noise) :])[: len(CODE)]
    try:
        image = read_image(code, MACHINE)
    except ValueError:
        return
    for segment in image.segments:
        assert segment.address >= 0 and len(segment.content) <= segment.size and segment.address + segment.size <= image.size
    for address, _ in image.relative:
        assert 0 <= address <= image.size - 8


def test_code_without_the_function_is_refused() -> None:
    artifact = compile_region(make_region([adding(1)]), PLAIN)
    with pytest.raises(KernelFault, match="expected code that defines another"):
        X86Runtime(PLAIN).load(dataclasses.replace(artifact, symbol="another"), {})
    old = dataclasses.replace(artifact, format_version=2)
    assert "version 2" in (X86Runtime(PLAIN).check(old) or "")


def test_memory_is_given_back() -> None:
    """The code of a kernel is unmapped with the kernel, and not before."""
    artifact = compile_region(make_region([adding(1)]), PLAIN)
    kernel = X86Runtime(PLAIN).load(artifact, {}).kernel
    address = kernel._owner[0][0].addresses[artifact.symbol]
    gc.collect()
    assert find_mapping(address)
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    kernel.invoke([x], [y], np.empty(0, np.uint8), np.empty(0, np.int64))
    np.testing.assert_array_equal(y, x + 1)
    del kernel
    gc.collect()
    assert not find_mapping(address)


def find_mapping(address: int) -> str:
    """The line of /proc/self/maps that an address is in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return line
    return ""


@pytest.mark.parametrize("way", [mapped._copied, mapped._opened_in_memory, mapped._opened_on_disk])
def test_every_way_runs_the_code(way: object) -> None:
    assert callable(way)
    image = way(read_image(CODE, MACHINE), CODE)
    assert find_mapping(image.addresses["region"]).split()[1] == "r-xp"
    region = CFUNCTYPE(c_int32, *[c_void_p] * 6)(image.addresses["region"])
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    context = np.zeros(34, np.int64)
    inputs, outputs = (np.array([array.ctypes.data], np.int64) for array in (x, y))
    assert region(inputs.ctypes.data, outputs.ctypes.data, None, None, None, context.ctypes.data) == 0
    np.testing.assert_array_equal(y, x + 1)


def test_a_host_that_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(image: object, code: object) -> object:
        raise PermissionError(13, "Permission denied")

    for name in ("_copied", "_opened_in_memory", "_opened_on_disk"):
        monkeypatch.setattr(mapped, name, refuse)
    with pytest.raises(KernelFault, match=r"into executable memory: anonymous memory: .*memfd_create: .*; allow this process"):
        map_image(CODE, MACHINE, "region0")


@pytest.mark.skipif("OLDER_HOST" in os.environ, reason="`make test-avx2` writes into code as it is loaded")
def test_a_process_whose_memory_never_becomes_executable(tmp_path: Path) -> None:
    """PR_SET_MDWE, as systemd's MemoryDenyWriteExecute sets it: code is opened from a file in memory."""
    if CDLL(None).prctl(66, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel has no PR_SET_MDWE")
    (tmp_path / "code").write_bytes(CODE)
    script = """
        import ctypes, sys
        from pathlib import Path
        assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0
        from inlaid_runtime.execution import mapped
        from inlaid_x86_runtime.pool import MACHINE
        code = Path(sys.argv[1]).read_bytes()
        try:
            mapped._copied(mapped.read_image(code, MACHINE), code)
        except OSError as error:
            assert "mprotect" in str(error), error
        else:
            raise AssertionError("the kernel let memory become executable")
        kept = mapped.map_image(code, MACHINE, "region")
        assert "memfd" in Path("/proc/self/maps").read_text()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "code")], check=True, timeout=60)


def test_the_pool_ships_as_it_is_written() -> None:
    """Whoever changes the text makes the image anew. Another LLVM may make other code of it."""
    (name,) = ELFFile(io.BytesIO(IMAGE.read_bytes())).get_section_by_name(".dynamic").iter_tags("DT_SONAME")
    if name.soname != pool_text.name():
        pytest.skip(f"the image was made by another LLVM: {name.soname}")
    assert IMAGE.read_bytes() == pool_text.build(), "run python -m inlaid_x86.pool_text"
