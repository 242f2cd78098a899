"""The archive of objects that an artifact carries."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.artifact.objects import MAGIC, X86_64, pack, unpack


def elf(rest: bytes = b"", machine: int = X86_64, kind: int = 1) -> bytes:
    """The beginning of an ELF file, and anything after it."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + kind.to_bytes(2, "little") + machine.to_bytes(2, "little")
    return head + rest


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5))
def test_what_is_packed_is_unpacked(rests: list[bytes]) -> None:
    objects = tuple(map(elf, rests))
    assert unpack(pack(objects), X86_64) == objects


def test_ar_reads_it(tmp_path: Path) -> None:
    program = shutil.which("ar")
    if program is None:
        pytest.skip("there is no ar")
    (tmp_path / "code.a").write_bytes(pack([elf(b"odd"), elf(b"even")]))
    listed = subprocess.run([program, "t", str(tmp_path / "code.a")], check=True, capture_output=True, text=True).stdout
    assert listed.split() == ["0.o", "1.o"]
    taken = subprocess.run([program, "p", str(tmp_path / "code.a"), "0.o"], check=True, capture_output=True).stdout
    assert taken == elf(b"odd")


GOOD = pack([elf(b"abc"), elf(b"de")])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (b"", "no archive"),
        (elf(), "no archive"),
        (MAGIC, "empty"),
        (GOOD[:-60], "header of member 1"),
        (GOOD[:-1], "beyond the end"),
        (GOOD.replace(b"`\n", b"  ", 1), "header of member 0"),
        (GOOD.replace(b"23        `", b"-3        `", 1), "header of member 0"),
        (GOOD.replace(b"23        `", b"9999999999`", 1), "beyond the end"),
        (GOOD + b"\n", "header of member 2"),
        (pack([b"not an object"]), "no relocatable"),
        (pack([elf(kind=2)]), "no relocatable"),
        (pack([elf(), elf(machine=183)]), "member 1 is for another machine"),
    ],
)
def test_what_is_no_archive_of_objects(code: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        unpack(code, X86_64)


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(GOOD)))
def test_no_bytes_do_harm(noise: bytes, at: int) -> None:
    with contextlib.suppress(ValueError):
        unpack(GOOD[:at] + noise)
