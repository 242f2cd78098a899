"""The OpenCL devices of this machine, numbered over all drivers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inlaid_runtime.errors import TargetError

if TYPE_CHECKING:
    import pyopencl as cl

BINDING = "pip install pyopencl"
DRIVER = "install the driver of the device, or one for CPUs: pip install pocl-binary-distribution, or Debian's pocl-opencl-icd"

POCL, LINKER = "Portable Computing Language", "ld"
"""POCL: name of the platform PoCL. LINKER: program that PoCL runs as a subprocess. Without it, PoCL aborts the process."""
_NO_PLATFORM = -1001
"""CL_PLATFORM_NOT_FOUND_KHR, which older versions of pyopencl do not define."""


@dataclass(frozen=True)
class NumberedDevice:
    """A device with its `number` over all platforms and its `kind` (see `OpenCLOptions`)."""

    number: int
    kind: str
    device: cl.Device

    def __str__(self) -> str:
        platform = self.device.platform.name.strip()
        return f"device {self.number}: {self.device.name.strip()} ({self.kind}, {platform}, driver {self.device.driver_version})"


def find_devices() -> tuple[NumberedDevice, ...]:
    """List the devices of all platforms: GPUs first, then accelerators, then CPUs, each in the order of the loader.

    PoCL's devices are omitted if the linker is not in PATH.

    Raises `TargetError`, which names the package to install, if pyopencl cannot be imported or no platform has a device.
    """
    try:
        import pyopencl as cl
    except (ImportError, OSError) as error:
        raise TargetError(f"pyopencl cannot be imported: {error}", remedy=BINDING) from error
    devices: list[cl.Device] = []
    skipped_pocl = False
    try:
        for platform in cl.get_platforms():
            if platform.name == POCL and shutil.which(LINKER) is None:
                skipped_pocl = True
                continue
            try:
                devices += platform.get_devices()
            except cl.Error as error:
                if error.code != cl.status_code.DEVICE_NOT_FOUND:
                    raise
    except cl.Error as error:
        reason = "expected an OpenCL driver, found none" if error.code == _NO_PLATFORM else f"the OpenCL drivers fail: {error}"
        raise TargetError(reason, remedy=DRIVER) from error
    if not devices and skipped_pocl:
        raise TargetError(f"PoCL needs the linker {LINKER}, found none in PATH", remedy="install Debian's binutils")
    if not devices:
        raise TargetError("expected an OpenCL device, found none on this machine", remedy=DRIVER)
    # A simulator may claim all types: it runs on the CPU.
    order = (cl.device_type.CPU, cl.device_type.GPU, cl.device_type.ACCELERATOR)
    ranks = (2, 0, 1)
    devices.sort(key=lambda device: next((rank for rank, kind in zip(ranks, order, strict=True) if device.type & kind), 3))
    return tuple(NumberedDevice(number, _kind(device), device) for number, device in enumerate(devices))


def find_device(number: int) -> NumberedDevice:
    """Find a device by number. Raises the `TargetError` of `find_devices`, and `TargetError` for a number out of range."""
    devices = find_devices()
    if not 0 <= number < len(devices):
        listed = "; ".join(map(str, devices))
        raise TargetError(f"opencl device number must be 0 to {len(devices) - 1}, got {number}", remedy=f"choose from {listed}")
    return devices[number]


def _kind(device: cl.Device) -> str:
    import pyopencl as cl

    if device.type & cl.device_type.CPU:
        return "cpu"
    return "gpu" if device.local_mem_type == cl.device_local_mem_type.LOCAL else "embedded"
