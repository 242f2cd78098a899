"""Hooks of the run half of the CUDA plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_cuda.options import CudaOptions
from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, Target, hookimpl

if TYPE_CHECKING:
    from inlaid_cuda.runtime import CudaRuntime

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target cuda."""
    return [RuntimeSpec("cuda", CudaOptions)]


@hookimpl
def inlaid_runtime(target: Target, device: int) -> CudaRuntime:
    """Create the runtime module of a device. Raises `TargetError` if this machine has no driver or no device with this number."""
    from inlaid_cuda.device import open_devices
    from inlaid_cuda.runtime import CudaRuntime

    return CudaRuntime(open_devices(target.options), device)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """List the devices of this machine with their numbers, or name the package to install."""
    from inlaid_cuda.device import open_devices
    from inlaid_runtime.errors import InlaidError

    try:
        return DeviceStatus(True, "; ".join(map(str, open_devices(target.options).driver.devices())))
    except InlaidError as error:
        return DeviceStatus(False, str(error))
