"""The OpenCL plugin: what it provides, cheap to import."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.plugins import Capabilities, DeviceStatus, Level, MemoryScope, OpRule, Target, TargetSpec, Threads, hookimpl
from inlaid_opencl.options import OpenCLOptions

PLUGIN_API_VERSION = 2


def _capabilities(options: OpenCLOptions) -> Capabilities:
    from inlaid.types import DTYPES

    dtypes = tuple(sorted(name for name in DTYPES if name != "string"))
    if options.kind == "cpu":
        return Capabilities(
            dtypes, vector_bits=256, vector_registers=16, threads=Threads(1, 1), cores=0, device_memory=True, stack_bytes=0
        )
    shared = (MemoryScope("shared", "block", 32 << 10, 16),) if options.kind != "embedded" else ()
    return Capabilities(dtypes, shared, threads=Threads(), cores=0, device_memory=True, stack_bytes=0)


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """opencl."""
    return [TargetSpec("opencl", "OpenCL devices", _capabilities, Level.LOOP, OpenCLOptions)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Every operator that has a tensor-level meaning."""
    if target.kind != "opencl":
        return ()
    from inlaid.lowering.claims import rule_for_loops

    return (rule_for_loops("opencl"),)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Whether there is an OpenCL device."""
    return DeviceStatus(False, "not built yet")
