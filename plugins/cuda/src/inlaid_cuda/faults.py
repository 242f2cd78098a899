"""Errors of the CUDA driver as errors of Inlaid."""

from __future__ import annotations

from inlaid.errors import DeviceLost, InlaidError, KernelFault, OutOfMemory, TargetError, Unsupported
from inlaid_cuda.driver import DriverError, Status

RESTART = "start the process again, or run on another target: the driver ends every later call of the process on this device"
RECOMPILE = "compile for this device (option arch)"

_LOST = {
    Status.DEINITIALIZED,
    Status.DEVICE_UNAVAILABLE,
    Status.INVALID_CONTEXT,
    Status.ECC_UNCORRECTABLE,
    Status.NVLINK_UNCORRECTABLE,
    Status.CONTAINED,
    Status.ILLEGAL_ADDRESS,
    Status.LAUNCH_TIMEOUT,
    Status.CONTEXT_IS_DESTROYED,
    Status.ASSERT,
    Status.HARDWARE_STACK_ERROR,
    Status.ILLEGAL_INSTRUCTION,
    Status.MISALIGNED_ADDRESS,
    Status.INVALID_ADDRESS_SPACE,
    Status.INVALID_PC,
    Status.LAUNCH_FAILED,
    Status.UNKNOWN,
}
"""What the driver answers to every call of the process from then on."""
_CODE = {
    Status.INVALID_IMAGE,
    Status.NO_BINARY_FOR_GPU,
    Status.INVALID_PTX,
    Status.UNSUPPORTED_PTX_VERSION,
    Status.INVALID_SOURCE,
    Status.NOT_FOUND,
}


def translated(error: DriverError, device: str, doing: str) -> InlaidError:
    """What an error of the driver means: `OutOfMemory`; `DeviceLost`; `Unsupported` for code that is damaged or for another
    architecture; `TargetError` where there is no such device; `KernelFault` for all else. `device` names the device, `doing` what
    it was asked."""
    text = f"{doing} on {device} failed: {error}"
    if error.status == Status.OUT_OF_MEMORY:
        return OutOfMemory(text, remedy="give smaller inputs, or free what stays on the device")
    if error.status in _LOST:
        return DeviceLost(text, remedy=RESTART)
    if error.status in _CODE:
        return Unsupported(text, remedy=RECOMPILE)
    if error.status in (Status.NO_DEVICE, Status.INVALID_DEVICE):
        return TargetError(text, remedy="choose another device by devices=")
    if error.status == Status.LAUNCH_OUT_OF_RESOURCES:
        return KernelFault(text, remedy=RECOMPILE)
    return KernelFault(text)
