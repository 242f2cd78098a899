"""Hooks of the run half of the vta_fpga plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, Target, hookimpl
from inlaid_vta_fpga.options import VtaOptions

if TYPE_CHECKING:
    from inlaid_vta_fpga.runtime import VtaRuntime

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target vta_fpga."""
    return [RuntimeSpec("vta_fpga", VtaOptions)]


@hookimpl
def inlaid_runtime(target: Target) -> VtaRuntime:
    """Create the runtime module."""
    from inlaid_vta_fpga.runtime import VtaRuntime

    return VtaRuntime(target.options)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Report whether the simulator or board selected by the options is available."""
    from inlaid_vta_fpga.runtime import probe

    return probe(target.options)
