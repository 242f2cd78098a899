"""Target options and artifact format, shared by compiler and runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlaid_runtime.errors import TargetError

FORMAT = "elf-x86_64"
FORMAT_VERSION = 3
"""Artifact format version. The code is an image (`inlaid_runtime.artifact.image`) that exports the C-ABI function under the
artifact's symbol. The version changes with the format and with the layout of the context that code expects."""

PORTABLE = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "cascadelake")
"""Instruction sets that `cpu=portable` compiles for, from the smallest to the largest."""
CPUS = ("native", "portable", "x86-64-v2", "x86-64-v3", "x86-64-v4", "alderlake", "cascadelake", "sapphirerapids")
"""Values of option `cpu`: the host's instruction set, several versions of which one is chosen at load, the levels of the x86-64
psABI, and named processors."""


MAX_THREADS = 1024
"""Largest value of option `threads`; large machines have about this many processors."""


@dataclass(frozen=True)
class X86Options:
    """Options of target x86. Raises `TargetError` for illegal values. threads: maximum threads of a kernel, 0 for all processors
    available to the process. cpu: the instruction set to compile for: `native` (the host's); `portable` (a version for each of
    `PORTABLE`, the best chosen at load); a level of the x86-64 psABI: `x86-64-v2`, `x86-64-v3` (AVX2), `x86-64-v4` (AVX-512);
    `alderlake` (AVX2 with VNNI); `cascadelake` (AVX-512 with VNNI); or `sapphirerapids` (AVX-512 with VNNI and bfloat16, AMX).
    check: check every access against its buffer and every buffer against its memory, and fail instead of accessing memory out of
    bounds. Checked code is for tests; it is several times slower."""

    threads: int = 0
    cpu: str = "native"
    check: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.threads <= MAX_THREADS:
            raise TargetError(
                f"option threads of target x86 must be 0 to {MAX_THREADS}, got {self.threads}",
                remedy="use 0 for all processors available to the process",
            )
        if self.cpu not in CPUS:
            raise TargetError(f"unknown cpu {self.cpu!r} of target x86", remedy=f"choose one of {', '.join(CPUS)}")


def versions(options: X86Options) -> tuple[X86Options, ...]:
    """Return the options of each version of a region, from the smallest instruction set to the largest."""
    return tuple(replace(options, cpu=cpu) for cpu in PORTABLE) if options.cpu == "portable" else (options,)
