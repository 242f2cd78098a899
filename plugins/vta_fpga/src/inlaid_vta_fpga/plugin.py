"""The vta_fpga plugin: what it provides, cheap to import."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.plugins import Capabilities, DeviceStatus, Target, TargetSpec, hookimpl

PLUGIN_API_VERSION = 2


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """vta_fpga."""
    return [
        TargetSpec(
            "vta_fpga", "the Versatile Tensor Accelerator", lambda options: Capabilities(("int8", "int32"), dynamic_dims=False)
        )
    ]


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Whether a simulator or a board is here."""
    return DeviceStatus(True, "functional simulator")
