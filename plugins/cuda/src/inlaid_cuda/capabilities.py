"""What NVIDIA GPUs can do, by architecture.

Limits are from NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; processors, peak and
bandwidth from the data sheets of the device named in each row.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.plugins import Capabilities, Link, MemoryScope, Threads
from inlaid.types import DTYPES
from inlaid_cuda.options import DEFAULT, HOST, NATIVE, CudaOptions

SHARED = "shared"
"""The memory scope of shared memory."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a block has on every architecture without opting in."""
REGISTERS = 65536
"""Registers of 32 bits of a multiprocessor, on every architecture from sm_70."""


@dataclass(frozen=True)
class Facts:
    """A typical device of an architecture: `threads` that a multiprocessor holds, most bytes of `shared` memory of a block,
    `processors` (multiprocessors), `peak` floating-point operations a second of float32 outside tensor cores, `bandwidth` bytes a
    second of its memory, `transfer` bytes a second from the host."""

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
}
"""By architecture, without the letter of what an architecture has alone."""


def architecture(options: CudaOptions) -> str:
    """The architecture that code for these options is made for; `host` for the processor of this machine."""
    return DEFAULT if options.arch == NATIVE else options.arch


def facts(options: CudaOptions) -> Facts:
    """What code for these options may assume: for the host, what the default architecture has."""
    arch = architecture(options)
    return FACTS[DEFAULT if arch == HOST else arch.rstrip("af")]


def capabilities(options: CudaOptions) -> Capabilities:
    """What the target can do under these options."""
    found = facts(options)
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name != "string"),
        scopes=(MemoryScope(SHARED, "block", STATIC_SHARED, 16),),
        vector_bits=0,
        threads=Threads(resident=found.processors * found.threads),
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
    from inlaid.errors import TargetError
    from inlaid_cuda.nvrtc import nvrtc

    arch = architecture(options)
    if arch == HOST:
        return HOST
    try:
        return f"{arch} NVRTC {nvrtc().version}"
    except TargetError:
        return arch
