"""Instruction sets: what to compile for, and what this machine has."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from collections.abc import Collection

from inlaid.plugins import Capabilities, Core, DeviceStatus, MemoryScope
from inlaid.types import DTYPES
from inlaid_x86.instruction_sets import LEVELS, reported
from inlaid_x86.options import X86Options, versions

TILE = "amx-tile"
TILES = MemoryScope("amx.tile", "thread", capacity=1024, count=8, row_bytes=64)
"""The matrix tiles of processors that have AMX."""
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18

CORES_ASSUMED = 4
"""Cores that cost estimates assume where `threads` is 0: the machine that runs the package may be another."""

CORE = Core(
    latency=4, units=2, entry=30, near_bytes=32 << 10, ways=12, alias=2048, crowding=0.1, far_bytes=1 << 20, far_load=2,
    shared_load=0.2, farther_load=2.75, last_bytes=8 << 20, last_rate=12,
)  # fmt: skip
"""Multiply-adds take 4 cycles from Skylake to Golden Cove and from Zen 3 to Zen 5 (uops.info), whose first-level cache has 12 ways
(1024 to 2048 rows: tiles of 14 are 5 % slower than of 12). 1 MiB is the second-level cache of Zen 4 and 5, and half of Sapphire
Rapids'; it gives 32 bytes a cycle. Measured: vectors from behind it (3072 rows of 96 columns); what its vectors take from additions
(tiles of 24 and 25 sums, 12 x 2 to 4 x 6, 768 rows); crowding (12 rows of 512 to 3072 columns are 2 to 4 % slower than 6); bytes a
cycle from the third-level cache (Zen 5). Nothing is detected: code for a processor is the same wherever it is compiled."""
RECENT, OLDER = (4e9, 3e10), (3e9, 1.2e10)
"""Hertz, and bytes a second that one core reads from memory, of cores with bfloat16 (2021 on: Zen 4 and 5, Sapphire Rapids) and of
those before. Zen 5 measures 4.4e9 and 4.1e10."""


@functools.cache
def processor_features() -> frozenset[str]:
    """LLVM's names of the features of this processor. The single source of what this machine has, at compile time and at load time:
    a test that replaces it runs as on a processor with fewer features (see plugins/x86/README.md, Testing)."""
    return reported()


def host_features() -> frozenset[str]:
    """The features of this processor that this process may use."""
    present = processor_features()
    return (
        present if TILE not in present or tile_refusal() is None else present - {name for name in present if name.startswith("amx")}
    )


def refusal(required: Collection[str]) -> str | None:
    """Why this process may not use what the processor has of some features, None where it may."""
    return tile_refusal() if TILE in required and TILE in processor_features() else None


def remedy() -> str:
    """What to compile with for this processor, for errors about features that it lacks."""
    fitting = [name for name in LEVELS if name.startswith("x86-64") and host_features().issuperset(LEVELS[name])]
    return (
        f"compile with --target x86:cpu={fitting[-1]}, or cpu=portable" if fitting else "compile on this machine, with cpu=native"
    )


@functools.cache
def tile_refusal() -> str | None:
    """Ask the kernel to let this process use tiles, whose state it must keep for every thread: None, or why it does not."""
    number = request_permission()
    return None if number == 0 else f"the kernel does not let this process use AMX tiles: {os.strerror(number)}"


def request_permission() -> int:
    """arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): 0, or the error number (Linux, Documentation/arch/x86/xstate.rst)."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed: int = libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return ctypes.get_errno() if failed else 0


def features(options: X86Options) -> tuple[str, ...]:
    """The features to compile for, sorted; of several versions those that all have."""
    cpu = versions(options)[0].cpu
    return tuple(sorted(host_features() if cpu == "native" else LEVELS[cpu]))


def vector_bits(options: X86Options) -> int:
    """Width of the widest float vector."""
    present = features(options)
    return 512 if "avx512f" in present else 256 if "avx2" in present else 128


def capabilities(options: X86Options) -> Capabilities:
    """What an x86-64 CPU can do under these options. Peak: two FMA units; bandwidth: what one core reads."""
    width = vector_bits(options)
    clock, read = RECENT if "avx512bf16" in features(options) else OLDER
    cores = options.threads or CORES_ASSUMED
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name != "string"),
        scopes=(TILES,) if TILE in features(options) else (),
        vector_bits=width,
        vector_registers=32 if width == 512 else 16,
        core=CORE,
        masks=width > 128,
        cores=options.threads,
        peak=cores * clock * 4 * width / 32,
        bandwidth=cores * read,
        control_flow=True,
        branches=True,
        in_place=True,
        prefetch=True,
    )


def threads(options: X86Options) -> int:
    """How many threads a kernel may use on this machine."""
    return options.threads or len(os.sched_getaffinity(0))


def probe() -> DeviceStatus:
    """Whether x86 code can run here."""
    machine, system = platform.machine(), platform.system()
    if machine not in ("x86_64", "AMD64") or system != "Linux":
        return DeviceStatus(False, f"this machine is {machine} with {system}; x86 packages run on x86_64 Linux")
    return DeviceStatus(
        True, f"{len(os.sched_getaffinity(0))} cores, {vector_bits(X86Options())}-bit vectors; cpu=portable for any x86-64 machine"
    )
