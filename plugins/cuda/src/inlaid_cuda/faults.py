"""Translation of CUDA driver errors to errors of Inlaid."""

from __future__ import annotations

from inlaid_cuda.driver import DriverError, Status
from inlaid_runtime.errors import DeviceLost, InlaidError, KernelFault, OutOfMemory, TargetError, Unsupported

RESTART = "restart the process, or run on another target: all later driver calls of this process on the device fail"
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
"""Sticky errors: after such an error, every later call of the process fails with it."""
_CODE = {
    Status.INVALID_IMAGE,
    Status.NO_BINARY_FOR_GPU,
    Status.INVALID_PTX,
    Status.INVALID_SOURCE,
    Status.NOT_FOUND,
}


def translate(error: DriverError, device: str, action: str) -> InlaidError:
    """Translate a driver error. `device` and `action` appear in the message.

    Returns `OutOfMemory`, `DeviceLost`, `Unsupported` for code that is damaged or for another architecture, `TargetError` for a
    missing device, or `KernelFault` for any other error."""
    text = f"{action} on {device} failed: {error}"
    if error.status == Status.OUT_OF_MEMORY:
        return OutOfMemory(text, remedy="pass smaller inputs, or free tensors on the device")
    if error.status in _LOST:
        return DeviceLost(text, remedy=RESTART)
    if error.status == Status.UNSUPPORTED_PTX_VERSION:
        return Unsupported(text, remedy=f"update NVIDIA's driver, or {RECOMPILE}")
    if error.status in (Status.JIT_COMPILER_NOT_FOUND, Status.JIT_COMPILATION_DISABLED):
        jit = "let the driver compile PTX: install its libnvidia-ptxjitcompiler, and unset CUDA_DISABLE_PTX_JIT"
        return Unsupported(text, remedy=f"{RECOMPILE}, or {jit}")
    if error.status in _CODE:
        return Unsupported(text, remedy=RECOMPILE)
    if error.status in (Status.NO_DEVICE, Status.INVALID_DEVICE):
        return TargetError(text, remedy="choose another device by devices=")
    if error.status == Status.LAUNCH_OUT_OF_RESOURCES:
        return KernelFault(text, remedy=RECOMPILE)
    return KernelFault(text)
