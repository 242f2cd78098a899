"""Target options and artifact format, shared by compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlaid.artifact.image import Machine
from inlaid.errors import TargetError

FORMAT = "elf-x86_64"
MACHINE = Machine(number=62, relative=8, page=4096)
"""EM_X86_64, R_X86_64_RELATIVE, and the page size of Linux on x86-64."""
FORMAT_VERSION = 3
"""Of artifacts: an image (`inlaid.artifact.image`) that exports the C-ABI function under the artifact's symbol. The version counts
changes of that, and of what code expects of its context."""

PORTABLE = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "cascadelake")
"""The instruction sets of the versions that code for `portable` holds, the least demanding first."""
CPUS = ("native", "portable", "x86-64-v2", "x86-64-v3", "x86-64-v4", "cascadelake", "sapphirerapids")
"""The instruction sets to compile for by name: the host's, several of which the best is chosen at load, the levels of the x86-64
psABI, and those of processors beyond them."""


MAX_THREADS = 1024
"""The most threads that can be asked for: as many as large machines have processors, and few enough to be started."""


@dataclass(frozen=True)
class X86Options:
    """threads: how many threads a kernel may use, 0 for as many as the process may run on. cpu: the instruction set to compile
    for: `native` (the host's); `portable` (a version for each of `PORTABLE`, the best chosen at load); a level of the x86-64 psABI:
    `x86-64-v2`, `x86-64-v3` (AVX2), `x86-64-v4` (AVX-512); `cascadelake` (AVX-512 with VNNI); or `sapphirerapids` (AVX-512 with
    VNNI and bfloat16, AMX). check: kernels check every access against its buffer, and every buffer against its memory, and fail in
    place of an access outside; for tests, since it takes several times as long. Raises `TargetError` for values that make no
    sense."""

    threads: int = 0
    cpu: str = "native"
    check: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.threads <= MAX_THREADS:
            raise TargetError(
                f"target x86 cannot use {self.threads} threads",
                remedy=f"threads is 0 to {MAX_THREADS}; 0 means as many as the process may run on",
            )
        if self.cpu not in CPUS:
            raise TargetError(f"target x86 knows no cpu {self.cpu!r}", remedy=f"choose {', '.join(CPUS)}")


def versions(options: X86Options) -> tuple[X86Options, ...]:
    """The options under which a region is compiled, once for each, the least demanding first."""
    return tuple(replace(options, cpu=cpu) for cpu in PORTABLE) if options.cpu == "portable" else (options,)
