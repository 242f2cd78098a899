"""Hooks of the run half of the OpenCL plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_opencl.options import OpenCLOptions
from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, Target, hookimpl

if TYPE_CHECKING:
    from inlaid_opencl.runtime import OpenCLRuntime

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target opencl."""
    return [RuntimeSpec("opencl", OpenCLOptions)]


@hookimpl
def inlaid_runtime(target: Target, device: int) -> OpenCLRuntime:
    """Create the runtime module of a device. Raises `TargetError` if this machine has no driver or no device with this number."""
    from inlaid_opencl.platforms import find_devices

    find_devices()  # raises an error with the package to install, before pyopencl is imported
    from inlaid_opencl.runtime import OpenCLRuntime

    return OpenCLRuntime(device)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """List the devices of this machine with their numbers, or name the package to install."""
    from inlaid_opencl.platforms import find_devices
    from inlaid_runtime.errors import InlaidError

    try:
        return DeviceStatus(True, "; ".join(map(str, find_devices())))
    except InlaidError as error:
        return DeviceStatus(False, str(error))
