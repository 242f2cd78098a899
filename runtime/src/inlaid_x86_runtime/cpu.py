"""Instruction sets that code is compiled for, and instruction sets of this machine."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Collection

from inlaid_runtime.plugins import DeviceStatus
from inlaid_x86_runtime.instruction_sets import LEVELS, reported
from inlaid_x86_runtime.options import X86Options, versions

TILE = "amx-tile"
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@functools.cache
def processor_features() -> frozenset[str]:
    """Return this processor's features by LLVM's names. All code calls this function, at compile time and at load time. A test can
    replace it to simulate a processor with fewer features (see plugins/x86/README.md, Testing)."""
    return reported()


def host_features() -> frozenset[str]:
    """Return the features of this processor that this process may use."""
    present = processor_features()
    return (
        present if TILE not in present or tile_refusal() is None else present - {name for name in present if name.startswith("amx")}
    )


def refusal(required: Collection[str]) -> str | None:
    """Return why this process may not use the `required` features although the processor has them; None if it may."""
    return tile_refusal() if TILE in required and TILE in processor_features() else None


def remedy() -> str:
    """Return the remedy for errors about missing features: the target options with which to compile for this processor."""
    levels = [name for name in LEVELS if name.startswith("x86-64") and host_features().issuperset(LEVELS[name])]
    return f"compile with --target x86:cpu={levels[-1]}, or cpu=portable" if levels else "compile on this machine, with cpu=native"


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
    """Return the sorted features to compile for: if `options` select several versions, their common features."""
    cpu = versions(options)[0].cpu
    return tuple(sorted(host_features() if cpu == "native" else LEVELS[cpu]))


def vector_bits(options: X86Options) -> int:
    """Return the width of the widest float vector in bits."""
    present = features(options)
    return 512 if "avx512f" in present else 256 if "avx2" in present else 128


def threads(options: X86Options) -> int:
    """Return the number of threads that a kernel may use on this machine."""
    return options.threads or len(os.sched_getaffinity(0))


def probe() -> DeviceStatus:
    """Report whether x86 code can run on this machine."""
    system, _, _, _, machine = os.uname()
    if machine not in ("x86_64", "AMD64") or system != "Linux":
        return DeviceStatus(False, f"expected Linux on x86_64, found {system} on {machine}; choose another target")
    return DeviceStatus(
        True, f"{len(os.sched_getaffinity(0))} cores, {vector_bits(X86Options())}-bit vectors; cpu=portable for any x86-64 machine"
    )
