"""Memory, queues, copies and events of a device, and what it does where the driver fails."""

import gc
import re

import numpy as np
import pyopencl as cl
import pytest
from tests.threads.handmade import check_uploads, read

from inlaid.plugins import DeviceTensor
from inlaid_opencl import device as module
from inlaid_opencl.device import OpenCLDevice, open_device
from inlaid_opencl.platforms import find_device
from inlaid_opencl.queues import _STAGED_BYTES
from inlaid_runtime.errors import DeviceLost, KernelFault, OutOfMemory

from .failing import failing

BYTES = np.dtype(np.uint8)
CODE = cl.status_code

pytestmark = pytest.mark.usefixtures("tidy")


def tensor(device, shape, dtype=BYTES):
    return DeviceTensor(device.allocate(max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)), 0, shape, np.dtype(dtype))


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_an_array_may_change_once_it_is_uploaded(device, queue, size):
    check_uploads(device, queue, np.empty(size, np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "bfloat16", "float16"])
def test_every_type_of_elements_is_copied(device, queue, dtype):
    import ml_dtypes

    np_dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    for shape in ((), (3, 0), (2, 3)):
        array = np.arange(np.prod(shape)).reshape(shape).astype(np_dtype)
        target = tensor(device, shape, np_dtype)
        device.upload(array, target, queue)
        np.testing.assert_array_equal(read(device, queue, target).astype(np.float32), array.astype(np.float32))
        device.free(target.buffer)


def test_what_waits_to_be_copied_is_bounded(device, queue):
    target = tensor(device, (_STAGED_BYTES // 4,))
    for turn in range(12):
        device.upload(np.full(target.shape, turn, np.uint8), target, queue)
        assert sum(size for _, _, size in queue._staged) <= _STAGED_BYTES
    assert (read(device, queue, target) == 11).all()
    assert not queue._staged and queue.idle
    device.free(target.buffer)


def test_a_released_queue_finishes_what_is_on_it(device):
    queue, target = device.queue(), tensor(device, (1 << 16,))
    device.upload(np.zeros(1 << 16, np.uint8), target, queue)
    content = np.ones(1 << 16, np.uint8)
    device.download(target, content, queue)
    device.release(queue)
    assert not content.any()
    device.free(target.buffer)


def test_room(device):
    before = device.live
    buffer = device.allocate(1000)
    assert device.live == before + 1000 == device.memory().total - device.memory().free
    device.free(buffer)
    with pytest.raises(OutOfMemory, match=r"must have at most \d+ bytes, got") as caught:
        device.allocate(device.largest + 1)
    assert "choose a device" in str(caught.value)


def test_no_room_is_left(device, monkeypatch):
    monkeypatch.setattr(device, "total", device.live + 1500)
    first = device.allocate(1000)
    with pytest.raises(OutOfMemory, match="has 500 of"):
        device.allocate(1000)
    device.free(first)
    device.free(device.allocate(1000))


@pytest.mark.parametrize("code", [CODE.MEM_OBJECT_ALLOCATION_FAILURE, CODE.OUT_OF_RESOURCES, CODE.OUT_OF_HOST_MEMORY])
def test_a_driver_without_room(device, queue, monkeypatch, code):
    before = device.live
    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", failing(code))
        with pytest.raises(OutOfMemory, match=f"allocating 64 bytes on {re.escape(device.name.split()[0])}.* failed"):
            device.allocate(64)
    assert device.live == before
    target = tensor(device, (64,))  # the device is usable
    with monkeypatch.context() as patch:  # drivers reserve memory when it is first used
        patch.setattr(cl, "enqueue_copy", failing(code))
        with pytest.raises(OutOfMemory, match="copying 64 bytes to the device"):
            device.upload(np.zeros(64, np.uint8), target, queue)
    device.upload(np.full(64, 7, np.uint8), target, queue)
    assert (read(device, queue, target) == 7).all()
    device.free(target.buffer)


@pytest.mark.parametrize("code", [CODE.DEVICE_NOT_AVAILABLE, CODE.INVALID_COMMAND_QUEUE, CODE.INVALID_CONTEXT])
def test_a_lost_device(monkeypatch, device, code):
    lost = OpenCLDevice(find_device(0))
    monkeypatch.setitem(module._opened, 0, lost)
    queue, target = lost.queue(), tensor(lost, (64,))
    event = lost.event(queue)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_copy", failing(code))
        with pytest.raises(DeviceLost, match="failed") as caught:
            lost.upload(np.zeros(64, np.uint8), target, queue)
    assert "load the model again" in str(caught.value)
    for call in (
        lambda: lost.allocate(1),
        lost.queue,
        lost.memory,
        lambda: lost.event(queue),
        lambda: lost.synchronize(event),
        lambda: lost.wait(lost.queue(), event),
        lambda: lost.download(target, np.zeros(64, np.uint8), queue),
        lambda: lost.copy(target, target, queue),
    ):
        with pytest.raises(DeviceLost):
            call()
    lost.free(target.buffer)
    lost.release(queue)
    assert open_device(0) is not lost and not open_device(0).lost


def test_work_that_fails_on_a_queue(device, queue, monkeypatch):
    event = device.event(queue)

    class Marker:
        wait = staticmethod(failing(CODE.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST))

    object.__setattr__(event, "marker", Marker)
    with pytest.raises(KernelFault, match="running commands"):
        device.synchronize(event)


def test_pinned_memory(device, queue, monkeypatch):
    assert (device.pinned(100) is None) == device.device.host_unified_memory
    monkeypatch.setattr(device, "_pins", True)
    array = device.pinned(100)
    assert array.shape == (100,) and array.dtype == np.uint8 and array.ctypes.data % 64 == 0
    array[:] = 5
    target = tensor(device, (100,))
    device.upload(array, target, queue)
    assert (read(device, queue, target) == 5).all()
    device.free(target.buffer)
    del array
    gc.collect()


def test_queues_wait_for_events_of_others(device):
    first, second = device.queue(), device.queue()
    target = tensor(device, (1 << 20,))
    for turn in range(10):
        device.upload(np.full(1 << 20, turn, np.uint8), target, first)
        device.wait(second, device.event(first))
        assert (read(device, second, target) == turn).all()
    for queue in (first, second):
        device.release(queue)
    device.free(target.buffer)
