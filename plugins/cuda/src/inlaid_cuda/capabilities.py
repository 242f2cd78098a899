"""Capabilities of NVIDIA GPUs by architecture.

Limits are from NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". The number of processors,
peak and bandwidth are from the data sheet of the device named in each row.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from inlaid.plugins import Capabilities, Link, MemoryScope, Threads
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.driver import DriverError
from inlaid_cuda.needs import runs
from inlaid_cuda.nvrtc import INSTALL, Nvrtc, Version, nvrtc
from inlaid_cuda.options import DEFAULT, HOST, NATIVE, CudaOptions
from inlaid_runtime.errors import TargetError
from inlaid_runtime.types import DTYPES

SHARED = "shared"
"""The memory scope of shared memory."""
FRAGMENT = "fragment"
"""The memory scope of matrices that are distributed over the registers of a warp."""
ACCUMULATORS = "warpgroup_accumulators"
"""The memory scope of accumulators that are distributed over the registers of a warpgroup."""
SWIZZLE_BYTES = 1024
"""Alignment in bytes of shared memory that tensor maps fill in the 128-byte swizzled order."""
WARP, WARPGROUP = 32, 128
"""Threads of a warp and of a warpgroup."""
THREAD_REGISTERS, REGISTERS = 255, 65536
"""Maximum 32-bit registers of a thread and of a multiprocessor, on every architecture."""


@dataclass(frozen=True)
class Facts:
    """A typical device of an architecture.

    threads: maximum resident threads of a multiprocessor. shared: maximum bytes of shared memory of a block (dynamic memory above
    48 KiB). processors: number of multiprocessors. peak: float32 FLOP/s without tensor cores. bandwidth: device memory in bytes/s.
    transfer: copies between host and device in bytes/s.
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
"""Facts keyed by architecture, without suffix: sm_90 is also the key for sm_90a."""


def architecture(options: CudaOptions) -> str:
    """Return the architecture to compile for. `native` is resolved; `host` is returned unchanged."""
    return _native().arch if options.arch == NATIVE else options.arch


def compiler(options: CudaOptions) -> Nvrtc:
    """Return the NVRTC that compiles for the options. For `native`, it is one whose code the driver of device 0 loads. Raises
    `TargetError` without such an NVRTC."""
    if options.arch != NATIVE:
        return nvrtc(options.arch)
    return nvrtc(*_native())


class _Native(NamedTuple):
    """What to compile for device 0: an architecture, and the newest version of CUDA whose code the driver loads (None without a
    driver)."""

    arch: str
    newest: Version | None = None


@functools.cache
def _native() -> _Native:
    """Choose what to compile for device 0 of this machine: the newest architecture of `FACTS` whose cubins the device runs. For a
    device that runs none of them, such as one newer than this version of Inlaid: the newest architecture whose PTX the driver
    compiles for the device. An installed NVRTC must support the architecture, unless none is installed. Without a device:
    `DEFAULT`."""
    try:
        device = SystemDriver().devices()[0]
    except (TargetError, DriverError):
        return _Native(DEFAULT)
    number, driver = device.architecture, device.driver_version
    earlier = [arch for arch in reversed(FACTS) if int(arch[3:]) <= number]
    candidates = [
        *(_Native(arch, driver[:1]) for arch in earlier if runs(arch, number)),
        *(_Native(arch, driver) for arch in earlier),
    ]
    if not candidates:
        return _Native(DEFAULT, driver[:1])
    best = next(
        (candidate for candidate in candidates if _compiles(candidate)), candidates[0]
    )  # without any, the compiler's error names the NVRTC to install
    return best._replace(arch="sm_90a") if (best.arch, number) == ("sm_90", 90) else best


def _compiles(candidate: _Native) -> bool:
    """Test whether an installed NVRTC, of CUDA `newest` or earlier, supports the architecture, or no NVRTC is installed."""
    try:
        return nvrtc(*candidate).compiles_for(candidate.arch)
    except TargetError as error:
        return error.remedy == INSTALL


def facts(options: CudaOptions) -> Facts:
    """Return the facts of the architecture to compile for. For `host`, return the facts of the default architecture."""
    arch = architecture(options)
    return FACTS[DEFAULT if arch == HOST else arch.rstrip("a")]


def capabilities(options: CudaOptions) -> Capabilities:
    """Return the capabilities of a target with these options."""
    device_facts = facts(options)
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name != "string"),
        scopes=(
            MemoryScope(SHARED, "block", device_facts.shared, SWIZZLE_BYTES if architecture(options) == "sm_90a" else 16),
            MemoryScope(FRAGMENT, "thread", WARP * THREAD_REGISTERS * 4, 4),  # capacity of a warp, whose threads share it
            MemoryScope(ACCUMULATORS, "thread", WARPGROUP * THREAD_REGISTERS * 4, 4),
        ),
        vector_bits=0,
        threads=Threads(subgroup=WARP, shuffles=True, resident=device_facts.processors * device_facts.threads),
        cores=0,
        in_place=True,
        peak=device_facts.peak,
        bandwidth=device_facts.bandwidth,
        link=Link(1e-5, device_facts.transfer),
        stack_bytes=0,
        device_memory=True,
        full_rate_float64=False,  # at most half the rate of float32, on most cards a 64th
    )


def surroundings(options: CudaOptions) -> str:
    """Return the part of the cache key that the options do not determine: the resolved architecture and NVRTC's version."""
    arch = architecture(options)
    if arch == HOST:
        return HOST
    try:
        return f"{arch} NVRTC {compiler(options).version}"
    except TargetError:
        return arch
