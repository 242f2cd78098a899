"""Memory, queues, copies, limits and DLPack of a device with a delaying driver."""

import gc

import numpy as np
import pytest
from tests.threads.handmade import check_uploads, device_bytes, read

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid.plugins import DeviceTensor
from inlaid_cuda import array_interface
from inlaid_cuda.device import MEMORY, Devices, memory_limit, open_devices
from inlaid_cuda.driver import DriverError, Status
from inlaid_cuda.emulation.driver import HostDriver
from inlaid_cuda.options import HOST, CudaOptions
from inlaid_runtime.errors import InputError, OutOfMemory, TargetError
from inlaid_runtime.execution.dlpack import export_capsule
from inlaid_runtime.types import TensorType, dtype

from .late import LateDriver


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("size", [1, 1000, 60_000, 1 << 20])
@pytest.mark.parametrize("pinned", [False, True])
def test_an_array_may_change_once_it_is_uploaded(device, queue, size, pinned):
    """The delaying driver reads host memory when the copy runs, as a device with access to pageable memory does."""
    check_uploads(device, queue, device.pinned(size) if pinned else np.empty(size, np.uint8))


def test_page_locked_memory_of_small_uploads_is_reused(device):
    target = device_bytes(device, 8)
    for value in range(5):
        queue = device.queue()
        device.upload(np.full(8, value, np.uint8), target, queue)
        assert (read(device, queue, target) == value).all()
        device.release(queue)
    assert device.context.counted["allocate_host"] == 1
    device.free(target.buffer)


@pytest.mark.usefixtures("tidy")
def test_queues_are_ordered_by_events(device, queue):
    other, target = device.queue(), device_bytes(device, 100)
    for turn in range(20):
        device.upload(np.full(100, turn, np.uint8), target, queue)
        device.wait(other, device.event(queue))
        assert (read(device, other, target) == turn).all()
        device.wait(queue, device.event(other))
    assert device.context.counted["event"] <= 4  # events are reused
    device.free(target.buffer)
    device.release(other)


def test_room(device):
    buffer = device.allocate(1000)
    facts = device.memory()
    assert device.live == 1000 and facts.total - facts.free == 1000
    device.free(buffer)
    with pytest.raises(OutOfMemory, match=r"must have \d+ bytes free, has"):
        device.allocate(device.total + 1)
    assert not device.live


def test_kept_memory_is_given_back_before_there_is_no_room(device):
    device.context.fail(0, fails=("allocate",))
    device.free(device.allocate(100))
    assert device.context.counted["trim"] == 1
    device.context.fail(0, fails=("allocate",), sticky=True)
    with pytest.raises(OutOfMemory, match=r"allocating 100 bytes on host .cuda device 0. failed: allocate: CUDA_ERROR_OUT"):
        device.allocate(100)
    device.context.heal()
    assert not device.live


@pytest.mark.parametrize(
    ("text", "size"), [("", None), ("1000", 1000), ("3K", 3072), ("2M", 2 << 20), ("4GiB", 4 << 30), ("5 G", 0), ("x", 0)]
)
def test_a_limit_of_memory(monkeypatch, text, size):
    monkeypatch.setenv(MEMORY, text)
    if size == 0:
        with pytest.raises(TargetError, match=f"{MEMORY} must be bytes"):
            memory_limit()
        return
    assert memory_limit() == size
    device = Devices(HostDriver(memory=1 << 30)).open(0)
    assert device.total == min(size or 1 << 30, 1 << 30)


def test_devices_are_opened_once():
    devices = Devices(HostDriver())
    assert devices.open(0) is devices.open(0)
    with pytest.raises(TargetError, match="cuda device number must be 0 to 0, got 1; choose from device 0: host"):
        devices.open(1)


def test_a_device_that_does_not_open(monkeypatch):
    def open(self, number):
        raise DriverError("cuDevicePrimaryCtxRetain", Status.OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(HostDriver, "open", open)
    with pytest.raises(OutOfMemory, match=r"opening the device on host .cuda device 0. failed"):
        Devices(HostDriver()).open(0)


# --- DLPack -------------------------------------------------------------------------------------------------------------------


class Producer:
    """A tensor of another library in device memory, with its stream protocol."""

    def __init__(self, address, shape, device, strides=None):
        self.address, self.shape, self.device = address, shape, device
        self.streams, self.owner = [], np.empty(1)
        self.strides = strides

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return export_capsule(self.address, self.device, self.shape, np.dtype(np.float32), self.owner)


CUDA = (2, 0)


@pytest.fixture
def executable(device):
    """Compile x + x over 4 floats."""
    object.__setattr__(device.facts, "dlpack", CUDA[0])
    x = ir.var("x", TensorType((4,), "float32"))
    module = ir.Module({"main": ir.function([x], ops.tanh(x))})
    return inlaid.compile(module, targets=["cuda:arch=host"], cache=False)


def put(device, queue, values):
    tensor = DeviceTensor(device.allocate(16), 0, (4,), np.dtype(np.float32))
    device.upload(np.asarray(values, np.float32), tensor, queue)
    return tensor


def test_tensors_of_other_libraries_are_read_where_they_lie(device, queue, executable):
    target = put(device, queue, [1, 2, 3, 4])
    device.synchronize(device.event(queue))
    producer = Producer(target.buffer.address, (4,), CUDA)
    counted = []
    for turn in range(4):
        before = device.context.counted.copy()
        (actual,) = executable.run({"x": producer}).values()
        np.testing.assert_allclose(actual, np.tanh([1, 2, 3, 4]), rtol=1e-6)
        counted.append(device.context.counted - before)
        assert not counted[-1]["upload"], turn
    assert counted[3]["launch_graph"] and not counted[3]["launch"]  # the same memory is the same buffer
    streams = {*producer.streams}
    assert len(streams) == 1 and streams <= device.context.streams.keys()
    device.free(target.buffer)


def test_results_are_tensors_of_other_libraries(device, executable):
    (result,) = executable.run({"x": np.zeros(4, np.float32)}, keep_on_device=True).values()
    assert result.__dlpack_device__() == CUDA
    again, live = executable.to_device("x", np.ones(4, np.float32)), device.live
    (round_trip,) = executable.run({"x": Exported(again)}).values()
    np.testing.assert_allclose(round_trip, np.tanh(np.ones(4)), rtol=1e-6)
    assert device.live == live
    capsule = again.__dlpack__(stream=1)
    del again
    gc.collect()
    assert device.live == live
    del capsule
    gc.collect()
    assert device.live < live


class Exported:
    """A device array behind `__dlpack__`, as another library exports it."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


def test_donated_memory_that_another_input_reads_is_copied(device, queue):
    object.__setattr__(device.facts, "dlpack", CUDA[0])
    a, b = (ir.var(name, TensorType((4,), "float32")) for name in "ab")
    at, values = ir.constant(np.array([[2]])), ir.constant(np.array([9], np.float32))
    module = ir.Module({"main": ir.function([a, b], ir.tuple_([ops.scatter_nd(a, at, values), ops.tanh(b)]))})
    executable = inlaid.compile(module, targets=["cuda:arch=host"], cache=False, donate=["a"])
    target = put(device, queue, [1, 2, 3, 4])
    device.synchronize(device.event(queue))
    for _ in range(3):
        producers = [Producer(target.buffer.address, (4,), CUDA) for _ in "ab"]
        updated, actual = executable.run(dict(zip("ab", producers, strict=True))).values()
        assert updated.tolist() == [1, 2, 9, 4]
        np.testing.assert_allclose(actual, np.tanh([1, 2, 3, 4]), rtol=1e-6)
    np.testing.assert_array_equal(read(device, queue, target), [1, 2, 3, 4])
    device.free(target.buffer)


def test_tensors_that_cannot_be_read_where_they_lie(device, queue, executable):
    target = put(device, queue, [1, 2, 3, 4])
    device.synchronize(device.event(queue))
    with pytest.raises(InputError, match=r"a tensor must start at a multiple of 64 bytes, got address .*; pass a copy"):
        executable.run({"x": Producer(target.buffer.address + 4, (4,), CUDA)})

    class Attached(Producer):
        def __dlpack__(self, stream=None):
            raise BufferError("it needs gradients")

    with pytest.raises(InputError, match="it needs gradients"):
        executable.run({"x": Attached(target.buffer.address, (4,), CUDA)})
    device.free(target.buffer)


# --- __cuda_array_interface__ ----------------------------------------------------------------------------------------------------


class ArrayOnly:
    """An array of a library without DLPack, as Numba's are."""

    def __init__(self, address, shape=(4,), **more):
        plain = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = plain | more


@pytest.mark.parametrize("more", [{}, {"strides": None, "stream": None}, {"strides": (4,), "stream": 1}, {"stream": 2}])
def test_arrays_of_other_libraries_are_read_where_they_lie(device, queue, executable, more):
    target = put(device, queue, [1, 2, 3, 4])
    device.synchronize(device.event(queue))
    before = device.context.counted.copy()
    (actual,) = executable.run({"x": ArrayOnly(target.buffer.address, **more)}).values()
    np.testing.assert_allclose(actual, np.tanh([1, 2, 3, 4]), rtol=1e-6)
    assert not (device.context.counted - before)["upload"]
    device.free(target.buffer)


def test_results_are_arrays_of_other_libraries(device, executable):
    (result,) = executable.run({"x": np.ones(4, np.float32)}, keep_on_device=True).values()
    interface = result.__cuda_array_interface__
    assert interface["data"] == (result.tensor.buffer.address + result.tensor.offset, False)
    assert {**interface, "data": 0} == {"shape": (4,), "typestr": "<f4", "strides": None, "stream": None, "version": 3, "data": 0}
    (again,) = executable.run({"x": ArrayOnly(interface["data"][0])}).values()
    np.testing.assert_allclose(again, np.tanh(np.tanh(np.ones(4))), rtol=1e-6)
    with pytest.raises(AttributeError):
        _ = result.__array_interface__
    object.__setattr__(device.facts, "dlpack", 1)  # memory of the host is none of CUDA's
    assert not hasattr(result, "__cuda_array_interface__")


def test_elements_without_a_type_code():
    with pytest.raises(AttributeError, match="does not support elements of bfloat16"):
        array_interface.export(256, (4,), dtype("bfloat16").numpy)
    assert array_interface.export(0, (0, 3), np.dtype(bool))["typestr"] == "|b1"


@pytest.mark.parametrize(("more", "reason"), [
    ({"data": (256, True)}, "got read-only memory; pass a copy of it"),
    ({"strides": (8,)}, r"got strides \(8,\)"),
    ({"mask": object()}, "got a mask"),
    ({"typestr": "<M8[s]"}, "expected a known element type"),
    ({"stream": 0}, "a stream other than 0"),
    ({"data": None}, "expected data, shape and typestr"),
    ({"strides": (4, 4)}, "expected data, shape and typestr"),
])  # fmt: skip
def test_arrays_that_cannot_be_read_where_they_lie(executable, more, reason):
    with pytest.raises(InputError, match=reason):
        executable.run({"x": ArrayOnly(256, **more)})


def test_memory_that_host_and_device_share_is_not_pinned():
    class Shared(LateDriver):
        integrated = True

    assert Devices(Shared()).open(0).pinned(100) is None


def test_options_share_devices():
    """So that streams of one are known to the other, and the bound on memory is one."""
    assert open_devices(CudaOptions(HOST)) is open_devices(CudaOptions(HOST, tf32=True))
    assert open_devices(CudaOptions()) is open_devices(CudaOptions("sm_80"))
    assert open_devices(CudaOptions()) is not open_devices(CudaOptions(HOST))
