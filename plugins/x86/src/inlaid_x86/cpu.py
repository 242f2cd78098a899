"""Instruction sets: those to compile for and those of this machine."""

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
"""The memory scope of AMX tiles."""
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18

CORES_ASSUMED = 4
"""Cores that cost estimates assume if `threads` is 0, since the package may run on another machine."""

CORE = Core(
    latency=4, units=2, loop_entry=30, l1_bytes=32 << 10, l1_ways=12, alias_bytes=2048, alias_cycles=0.1, l2_bytes=1 << 20,
    l2_load=2, load_stall=0.2, l3_load=2.75, llc_bytes=8 << 20, llc_rate=12,
)  # fmt: skip
"""Core model of the cost estimates. FMA latency: 4 cycles from Skylake to Golden Cove and from Zen 3 to Zen 5 (uops.info). The L1
cache of the latter has 12 ways (for 1024 to 2048 rows, tiles of 14 are 5 % slower than of 12). L2: 1 MiB on Zen 4 and 5, half of
Sapphire Rapids', 32 bytes per cycle. Measured: loads from beyond L2 (3072 rows of 96 columns); slowdown of additions by L2 loads
(tiles of 24 and 25 sums, 12 x 2 to 4 x 6, 768 rows); alias_cycles (12 rows of 512 to 3072 columns are 2 to 4 % slower than 6); L3
bandwidth (Zen 5). No value is detected at run time, so that code for a processor does not depend on the compiling machine."""
RECENT, OLDER = (4e9, 3e10), (3e9, 1.2e10)
"""Clock in Hz, and memory bandwidth of one core in bytes/s: of cores with bfloat16 (since 2021: Zen 4 and 5, Sapphire Rapids) and
of older ones. Zen 5 measures 4.4e9 and 4.1e10."""


@functools.cache
def processor_features() -> frozenset[str]:
    """Return this processor's features by LLVM's names. All code asks here, at compile time and at load time, so a test can
    replace this function to simulate a processor with fewer features (see plugins/x86/README.md, Testing)."""
    return reported()


def host_features() -> frozenset[str]:
    """Return the features of this processor that this process may use."""
    present = processor_features()
    return (
        present if TILE not in present or tile_refusal() is None else present - {name for name in present if name.startswith("amx")}
    )


def refusal(required: Collection[str]) -> str | None:
    """Return why this process may not use features that the processor has; None if it may."""
    return tile_refusal() if TILE in required and TILE in processor_features() else None


def remedy() -> str:
    """Return the remedy for errors about missing features: options to compile with for this processor."""
    fitting = [name for name in LEVELS if name.startswith("x86-64") and host_features().issuperset(LEVELS[name])]
    return (
        f"compile with --target x86:cpu={fitting[-1]}, or cpu=portable" if fitting else "compile on this machine, with cpu=native"
    )


@functools.cache
def tile_refusal() -> str | None:
    """Request the operating system's permission to use tiles. Returns None if granted, else the reason."""
    number = request_permission()
    return None if number == 0 else f"the operating system refuses this process AMX tiles: {os.strerror(number)}"


def request_permission() -> int:
    """Call arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) (Linux, Documentation/arch/x86/xstate.rst). Returns 0 or errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed: int = libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return ctypes.get_errno() if failed else 0


def features(options: X86Options) -> tuple[str, ...]:
    """Return the sorted features to compile for; for several versions, those common to all."""
    cpu = versions(options)[0].cpu
    return tuple(sorted(host_features() if cpu == "native" else LEVELS[cpu]))


def vector_bits(options: X86Options) -> int:
    """Return the width of the widest float vector in bits."""
    present = features(options)
    return 512 if "avx512f" in present else 256 if "avx2" in present else 128


def capabilities(options: X86Options) -> Capabilities:
    """Return the capabilities of an x86-64 CPU under these options. Peak assumes two FMA units per core; bandwidth is per core."""
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


def surroundings(options: X86Options) -> str:
    """Return the part of the cache key that is not in the options: features compiled for and LLVM's version."""
    import llvmlite

    return f"{llvmlite.__version__} {' '.join(features(options))}"


def threads(options: X86Options) -> int:
    """Return the number of threads that a kernel may use on this machine."""
    return options.threads or len(os.sched_getaffinity(0))


def probe() -> DeviceStatus:
    """Report whether x86 code can run on this machine."""
    machine, system = platform.machine(), platform.system()
    if machine not in ("x86_64", "AMD64") or system != "Linux":
        return DeviceStatus(False, f"expected Linux on x86_64, found {system} on {machine}; choose another target")
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError as error:
        return DeviceStatus(False, f"llvmlite cannot be loaded: {error}; pip install llvmlite")
    return DeviceStatus(
        True, f"{len(os.sched_getaffinity(0))} cores, {vector_bits(X86Options())}-bit vectors; cpu=portable for any x86-64 machine"
    )
