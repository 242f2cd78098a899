"""What NVIDIA GPUs can do, by architecture.

Limits are from NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; processors, peak and
bandwidth from the data sheets of the device named in each row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from inlaid.errors import TargetError
from inlaid.plugins import Capabilities, Link, MemoryScope, Threads
from inlaid.types import DTYPES
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.driver import DriverError
from inlaid_cuda.nvrtc import nvrtc
from inlaid_cuda.options import DEFAULT, HOST, NATIVE, CudaOptions

SHARED = "shared"
"""The memory scope of shared memory."""
FRAGMENT = "fragment"
"""The memory scope of matrices that are dealt out among the registers of a warp."""
WARP = 32
"""Threads of a warp."""
THREAD_REGISTERS, REGISTERS = 255, 65536
"""Registers of 32 bits of a thread at most, and of a multiprocessor, on every architecture."""


@dataclass(frozen=True)
class Facts:
    """A typical device of an architecture.

    threads: that a multiprocessor holds, of 65,536 registers on every architecture. shared: most bytes of shared memory of a block;
    what is beyond 48 KiB its launch allocates. processors: multiprocessors. peak: floating-point operations a second of float32
    outside tensor cores. bandwidth: bytes a second of the device's memory. transfer: bytes a second from the host.
    """

    device: str
    threads: int
    shared: int
    processors: int
    peak: float
    bandwidth: float
    transfer: float


FACTS = {
    "sm_70": Facts("Tesla V100 SXM2", 2048, 96 << 10, 80, 15.7e12, 900e9, 12e9),
    "sm_75": Facts("Tesla T4", 1024, 64 << 10, 40, 8.1e12, 320e9, 12e9),
    "sm_80": Facts("A100 SXM4 40 GB", 2048, 163 << 10, 108, 19.5e12, 1555e9, 25e9),
    "sm_86": Facts("GeForce RTX 3090", 1536, 99 << 10, 82, 35.6e12, 936e9, 25e9),
    "sm_87": Facts("Jetson AGX Orin 64 GB", 1536, 163 << 10, 16, 5.3e12, 205e9, 25e9),
    "sm_88": Facts("Jetson AGX Orin 64 GB", 1536, 99 << 10, 16, 5.3e12, 205e9, 25e9),
    "sm_89": Facts("GeForce RTX 4090", 1536, 99 << 10, 128, 82.6e12, 1008e9, 25e9),
    "sm_90": Facts("H100 SXM5 80 GB", 2048, 227 << 10, 132, 67e12, 3350e9, 50e9),
    "sm_100": Facts("B200", 2048, 227 << 10, 148, 75e12, 8000e9, 50e9),
    "sm_120": Facts("GeForce RTX 5090", 1536, 99 << 10, 170, 105e12, 1792e9, 50e9),
}
"""By architecture, without the letter of what an architecture has alone."""


def architecture(options: CudaOptions) -> str:
    """The architecture that code for these options is made for; `host` for the processor of this machine."""
    return _native() if options.arch == NATIVE else options.arch


@functools.cache
def _native() -> str:
    """The newest architecture of the table that device 0 of this machine runs; that of `DEFAULT` on a machine without one."""
    try:
        number = SystemDriver().devices()[0].architecture
    except (TargetError, DriverError):
        return DEFAULT
    if number == 90:
        return "sm_90a"
    first = 10 * (number // 10)  # cubins run on greater minor versions of their major one
    known = [arch for arch in FACTS if first <= int(arch[3:]) <= number]
    return known[-1] if known else DEFAULT


def facts(options: CudaOptions) -> Facts:
    """What code for these options may assume: for the host, what the default architecture has."""
    arch = architecture(options)
    return FACTS[DEFAULT if arch == HOST else arch.rstrip("a")]


def capabilities(options: CudaOptions) -> Capabilities:
    """What the target can do under these options."""
    found = facts(options)
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name != "string"),
        scopes=(
            MemoryScope(SHARED, "block", found.shared, 16),
            MemoryScope(FRAGMENT, "thread", WARP * THREAD_REGISTERS * 4, 4),  # of a warp: its threads use it together
        ),
        vector_bits=0,
        threads=Threads(subgroup=WARP, shuffles=True, resident=found.processors * found.threads),
        cores=0,
        in_place=True,
        peak=found.peak,
        bandwidth=found.bandwidth,
        link=Link(1e-5, found.transfer),
        stack_bytes=0,
        device_memory=True,
    )


def surroundings(options: CudaOptions) -> str:
    """What code depends on besides the options: the version of NVRTC, and for `native` the architecture of device 0."""
    arch = architecture(options)
    if arch == HOST:
        return HOST
    try:
        return f"{arch} NVRTC {nvrtc(arch).version}"
    except TargetError:
        return arch
