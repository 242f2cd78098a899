"""Capabilities of OpenCL devices, either assumed for a kind of device or queried from device 0 of this machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inlaid.plugins import Capabilities, Link, MemoryScope, Threads
from inlaid_opencl.options import NATIVE, SHARED, OpenCLOptions
from inlaid_opencl.platforms import find_device
from inlaid_opencl.subgroups import shuffled_lanes, subgroup_size
from inlaid_runtime.errors import TargetError
from inlaid_runtime.types import DTYPES

if TYPE_CHECKING:
    import pyopencl as cl


@dataclass(frozen=True)
class Facts:
    """Device properties that schedules and the partitioner use.

    vector_bits: vector width of a CPU, 0 for GPUs. threads: see `Capabilities`. shared: bytes of on-chip local memory, 0 for none.
    fp64: float64 support. peak: FLOP/s. bandwidth: bytes/s of device memory. latency: seconds to start a copy between host and
    device. transfer: bytes/s of such copies.
    """

    vector_bits: int
    threads: Threads
    shared: int
    fp64: bool
    peak: float
    bandwidth: float
    latency: float
    transfer: float


ASSUMED = {
    "cpu": Facts(256, Threads(1, 1), 0, True, 2e11, 2e10, 3e-5, 1e10),
    "gpu": Facts(0, Threads(), 32 << 10, True, 5e12, 3e11, 2e-5, 1e10),
    "embedded": Facts(0, Threads(subgroup=1, resident=1 << 13, registers=64), 0, False, 2e11, 2e10, 5e-5, 5e9),
}
"""Assumed facts by kind of device: rounded figures of common devices."""

_WIDEST = 256
"""Maximum vector width in bits. PoCL may report 512 bits but compile for a processor with 256."""
_LANES = {"cpu": 4, "gpu": 128, "embedded": 32}
"""Floating-point operations per compute unit and cycle. For a CPU, the number is per vector lane (two FMA units)."""
_BYTES = {"cpu": 8e9, "gpu": 4e9, "embedded": 2e9}
"""Estimated memory bandwidth per compute unit in bytes/s. OpenCL does not report bandwidth."""


def facts(options: OpenCLOptions) -> Facts:
    """Return the facts of the kind in the options, with the options `subgroup` and `float64`. `native`: the facts of device 0, or
    of kind `gpu` if this machine has no device."""
    kind_facts = _native() if options.kind == NATIVE else ASSUMED[options.kind]
    if options.subgroup:
        kind_facts = replace(kind_facts, threads=replace(kind_facts.threads, subgroup=options.subgroup, shuffles=True))
    return kind_facts if options.float64 else replace(kind_facts, fp64=False)


def _native() -> Facts:
    try:
        return _measured()
    except TargetError:
        return ASSUMED["gpu"]


@functools.cache
def _measured() -> Facts:
    device = find_device(0)
    return device_facts(device.device, device.kind)


def device_facts(device: cl.Device, kind: str) -> Facts:
    """Return the facts of a device: the figures assumed for its kind, adjusted to what the driver reports."""
    assumed = ASSUMED[kind]
    clock = max(device.max_clock_frequency, 500) * 1e6
    units = device.max_compute_units
    width = min(32 * max(device.native_vector_width_float, 4), _WIDEST) if kind == "cpu" else 0
    return replace(
        assumed,
        vector_bits=width,
        threads=assumed.threads if kind == "cpu" else _threads(device, assumed.threads),
        shared=min(device.local_mem_size, assumed.shared),
        fp64=bool(device.double_fp_config),
        peak=units * clock * _LANES[kind] * max(width / 32, 1),
        bandwidth=units * _BYTES[kind],
        transfer=assumed.bandwidth if device.host_unified_memory else assumed.transfer,
    )


def _threads(device: cl.Device, assumed: Threads) -> Threads:
    """Return the thread capabilities of a GPU. The block is a power of two, and may have all of its threads along any axis."""
    block = min(assumed.block, device.max_work_group_size, *device.max_work_item_sizes)
    block = 1 << (max(int(block), 1).bit_length() - 1)
    lanes = shuffled_lanes(device)
    return replace(
        assumed,
        block=block,
        subgroup=min(lanes or subgroup_size(device) or assumed.subgroup, block),
        shuffles=1 < lanes <= block,
        resident=device.max_compute_units * (1 << 10),
    )


def capabilities(options: OpenCLOptions) -> Capabilities:
    """Return the capabilities of a target with these options."""
    kind_facts = facts(options)
    unsupported_dtypes = {"string"} if kind_facts.fp64 else {"string", "float64"}
    return Capabilities(
        dtypes=tuple(name for name in DTYPES if name not in unsupported_dtypes),
        scopes=(MemoryScope(SHARED, "block", kind_facts.shared, 16),) if kind_facts.shared else (),
        vector_bits=kind_facts.vector_bits,
        threads=kind_facts.threads,
        cores=0,
        in_place=True,
        peak=kind_facts.peak,
        bandwidth=kind_facts.bandwidth,
        link=Link(kind_facts.latency, kind_facts.transfer),
        stack_bytes=0,
        device_memory=True,
        full_rate_float64=kind_facts.vector_bits > 0 and kind_facts.fp64,
    )


def surroundings(options: OpenCLOptions) -> str:
    """Return the part of the cache key that the options do not determine: for `native`, the facts of device 0; else ""."""
    return repr(facts(options)) if options.kind == NATIVE else ""
