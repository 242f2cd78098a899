"""What the compile side and the run side share: the target's options and the format of its artifacts."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = "elf-x86_64"
FORMAT_VERSION = 1
"""Of artifacts: an ELF object with one C-ABI function. The version counts changes of what code expects of its context."""


@dataclass(frozen=True)
class X86Options:
    """threads: how many threads a kernel may use, 0 for as many as the process may run on. cpu: the instruction set to compile
    for: `native` (the host's), or a level of the x86-64 psABI: `x86-64-v2`, `x86-64-v3` (AVX2), `x86-64-v4` (AVX-512)."""

    threads: int = 0
    cpu: str = "native"
