"""Translation of OpenCL errors to errors of Inlaid."""

from __future__ import annotations

import pyopencl as cl

from inlaid_runtime.errors import DeviceLost, InlaidError, KernelFault, OutOfMemory

_CODE = cl.status_code
_MEMORY = {_CODE.MEM_OBJECT_ALLOCATION_FAILURE, _CODE.OUT_OF_RESOURCES, _CODE.OUT_OF_HOST_MEMORY, _CODE.INVALID_BUFFER_SIZE}
_LOST = {_CODE.DEVICE_NOT_AVAILABLE, _CODE.INVALID_COMMAND_QUEUE, _CODE.INVALID_DEVICE, _CODE.INVALID_CONTEXT}
_SIZES = {
    _CODE.INVALID_WORK_GROUP_SIZE,
    _CODE.INVALID_WORK_ITEM_SIZE,
    _CODE.INVALID_WORK_DIMENSION,
    _CODE.INVALID_GLOBAL_WORK_SIZE,
    _CODE.INVALID_GLOBAL_OFFSET,
}


def is_lost(error: cl.Error) -> bool:
    """Test whether an error means that the device is lost."""
    return error.code in _LOST


def translate(error: cl.Error, device: str, action: str) -> InlaidError | None:
    """Translate a driver error. Returns None if the caller caused the error. `device` and `action` appear in the message.

    Returns `OutOfMemory`, `DeviceLost`, or `KernelFault` for sizes beyond the device's limits and for failed commands."""
    text = f"{action} on {device} failed: {error}"
    if error.code in _MEMORY:
        return OutOfMemory(text, remedy="pass smaller inputs, or free tensors on the device")
    if is_lost(error):
        return DeviceLost(text, remedy="load the model again once the device responds, or choose another by devices=")
    if error.code in _SIZES:
        return KernelFault(text, remedy="compile for this kind of device (option kind), or pass smaller inputs")
    if error.code == _CODE.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST or error.code < -1000:
        return KernelFault(text)
    return None
