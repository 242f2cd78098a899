"""Instruction sets: what to compile for, and what this machine has."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Collection

from inlaid.plugins import DeviceStatus
from inlaid_x86.instruction_sets import LEVELS, reported
from inlaid_x86.options import X86Options, versions

TILE = "amx-tile"
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


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


def threads(options: X86Options) -> int:
    """How many threads a kernel may use on this machine."""
    return options.threads or len(os.sched_getaffinity(0))


def probe() -> DeviceStatus:
    """Whether x86 code can run here."""
    system, _, _, _, machine = os.uname()
    if machine not in ("x86_64", "AMD64") or system != "Linux":
        return DeviceStatus(False, f"this machine is {machine} with {system}; x86 packages run on x86_64 Linux")
    return DeviceStatus(
        True, f"{len(os.sched_getaffinity(0))} cores, {vector_bits(X86Options())}-bit vectors; cpu=portable for any x86-64 machine"
    )
