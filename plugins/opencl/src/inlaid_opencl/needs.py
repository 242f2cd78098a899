"""Device requirements of code, encoded as strings in `Artifact.requires`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_opencl.options import SHARED
from inlaid_opencl.subgroups import shuffled_lanes
from inlaid_runtime import arith

if TYPE_CHECKING:
    import pyopencl as cl

    from inlaid.codegen.launch_plan import ThreadKernel

_EXTENSIONS = re.compile(r"^\s*#\s*pragma\s+OPENCL\s+EXTENSION\s+(\w+)\s*:\s*enable", re.MULTILINE)
_DOUBLE = re.compile(r"\b(as_|convert_)?double(2|3|4|8|16)?\b")
"""OpenCL C types that need float64 support."""
_SHUFFLED = re.compile(r"= inlaid_shuffle\(.*, (\d+)\)")
_FP64 = "cl_khr_fp64"
_GROUP, _LOCAL, _LANES = "work-items", "local-bytes", "shuffled-lanes"


def code_requirements(kernels: Sequence[ThreadKernel], source: str) -> tuple[str, ...]:
    """Return the device requirements of kernels and their source: names of extensions, and entries such as "work-items=256" for the
    maxima of work-items per group, bytes of local memory and shuffled lanes."""
    extensions = set(_EXTENSIONS.findall(source))
    if _DOUBLE.search(source):
        extensions.add(_FP64)
    group = max((_group(kernel) for kernel in kernels), default=1)
    local = max((_local(kernel) for kernel in kernels), default=0)
    lanes = max(map(int, _SHUFFLED.findall(source)), default=0)
    maxima = ((_GROUP, group, 1), (_LOCAL, local, 0), (_LANES, lanes, 0))
    sizes = [f"{name}={size}" for name, size, least in maxima if size > least]
    return (*sorted(extensions), *sizes)


def _group(kernel: ThreadKernel) -> int:
    """Return the number of work-items per work-group. Symbolic extents count as 1."""
    product = 1
    for extent in kernel.kernel.threads.values():
        size = arith.unwrap(extent)
        product *= size if isinstance(size, int) else 1
    return product


def _local(kernel: ThreadKernel) -> int:
    """Return the bytes of local memory that a kernel uses. Buffers of symbolic size count as 0."""
    ends = [0]
    for buffer, offset in kernel.kernel.offsets.items():
        if buffer.scope == SHARED:
            elements = arith.product(buffer.shape)
            ends.append(offset + (elements if isinstance(elements, int) else 0) * buffer.dtype.bytes)
    return max(ends)


def missing(requires: Sequence[str], device: cl.Device) -> str | None:
    """Describe the first requirement that a device lacks; None if the device meets all."""
    extensions = set(device.extensions.split())
    if device.double_fp_config:
        extensions.add(_FP64)
    limits = {
        _GROUP: ("work-items in a work-group", device.max_work_group_size),
        _LOCAL: ("bytes of local memory", device.local_mem_size),
        _LANES: ("lanes per shuffle", shuffled_lanes(device)),
    }
    for need in requires:
        name, equals, size = need.partition("=")
        if not equals and name in extensions:
            continue
        if name in limits and size.isdecimal():
            resource, limit = limits[name]
            if int(size) <= limit:
                continue
            return f"the code needs {int(size)} {resource}, {device.name.strip()} has {limit}"
        return f"the code needs {need[:80]!r}, {device.name.strip()} lacks it"
    return None
