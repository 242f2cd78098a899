"""Access to the CUDA driver of this machine through cuda-bindings 12.8 or later, which is imported lazily."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from inlaid_cuda.arguments import Arguments
from inlaid_cuda.driver import MAP_BYTES, DeviceFacts, DriverError, FunctionFacts, Status, TensorMap
from inlaid_runtime.errors import TargetError

BINDING = "pip install cuda-bindings"
DRIVER = "install NVIDIA's driver for this machine's device (Debian: nvidia-driver, libcuda1)"
_POOLS_SINCE = 11020
"""Version of CUDA that introduced memory pools."""
_CACHED = 8
"""A memory pool keeps at most 1/_CACHED of the device's memory after it is freed, for reuse."""

_Result = TypeVar("_Result")


class _Prepared(NamedTuple):
    """Arguments of `cuLaunchKernel`. head: arguments before the stream. parameters: pointer after the stream. owner: owner of
    the memory that `parameters` points to."""

    head: tuple[Any, ...]
    parameters: int
    owner: Arguments


class SystemDriver:
    """The CUDA driver of this machine; implements `inlaid_cuda.driver.Driver`."""

    def devices(self) -> Sequence[DeviceFacts]:
        """List the devices of this machine in the order of the driver."""
        cuda = _loaded()
        (count,) = _call(cuda, "cuDeviceGetCount")
        return tuple(_facts(cuda, number) for number in range(count))

    def open(self, number: int) -> SystemContext:
        """Open a device by its primary context, which other libraries of the process share."""
        return SystemContext(_loaded(), number)


@functools.cache
def _loaded() -> Any:
    """Import the bindings and initialize the driver. Raises `TargetError` if either fails or there is no device."""
    try:
        from cuda.bindings import driver as cuda
    except (ImportError, OSError) as error:
        raise TargetError(f"cuda-bindings cannot be imported: {error}", remedy=BINDING) from error
    try:
        _call(cuda, "cuInit", 0)
        (count,) = _call(cuda, "cuDeviceGetCount")
    except DriverError as error:
        if error.status == Status.NO_DEVICE:
            raise TargetError("expected a CUDA device, the driver found none", remedy=DRIVER) from error
        raise TargetError(f"the CUDA driver cannot be initialized: {error}", remedy=DRIVER) from error
    except (RuntimeError, OSError) as error:
        raise TargetError("expected a CUDA driver, found none installed", remedy=DRIVER) from error
    if not count:
        raise TargetError("expected a CUDA device, the driver found none", remedy=DRIVER)
    return cuda


def _call(cuda: Any, name: str, *arguments: Any) -> tuple[Any, ...]:
    """Call a driver function. Returns its results, without the status. Raises `DriverError` for a failure status."""
    status, *results = getattr(cuda, name)(*arguments)
    if status:
        raise _error(cuda, name, status)
    return tuple(results)


def _error(cuda: Any, name: str, status: Any) -> DriverError:
    texts = [text for _, text in (cuda.cuGetErrorName(status), cuda.cuGetErrorString(status))]
    title, description = (text.decode(errors="replace") if isinstance(text, bytes) else "" for text in texts)
    return DriverError(name, int(status), f"{title or f'error {int(status)}'} ({description})")


def _facts(cuda: Any, number: int) -> DeviceFacts:
    (device,) = _call(cuda, "cuDeviceGet", number)
    kinds = cuda.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(_call(cuda, "cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device)[0])

    def axes(name: str) -> tuple[int, int, int]:
        return attribute(f"{name}_X"), attribute(f"{name}_Y"), attribute(f"{name}_Z")

    (name,) = _call(cuda, "cuDeviceGetName", 256, device)
    return DeviceFacts(
        number=number,
        name=name.split(b"\0")[0].decode(errors="replace"),
        architecture=10 * attribute("COMPUTE_CAPABILITY_MAJOR") + attribute("COMPUTE_CAPABILITY_MINOR"),
        memory=int(_call(cuda, "cuDeviceTotalMem", device)[0]),
        threads=attribute("MAX_THREADS_PER_BLOCK"),
        block=axes("MAX_BLOCK_DIM"),
        grid=axes("MAX_GRID_DIM"),
        default_shared=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        shared=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        driver=int(_call(cuda, "cuDriverGetVersion")[0]),
        integrated=bool(attribute("INTEGRATED")),
    )


class SystemContext:
    """An open device of this machine; implements `inlaid_cuda.driver.Context`.

    If the device has memory pools, memory is allocated from a private pool, in the order of the dedicated stream `_memory`."""

    def __init__(self, cuda: Any, number: int) -> None:
        self._cuda = cuda
        self.facts = _facts(cuda, number)
        (device,) = _call(cuda, "cuDeviceGet", number)
        (self._context,) = _call(cuda, "cuDevicePrimaryCtxRetain", device)
        self._streams: dict[int, Any] = {}
        self._shared: dict[int, int] = {}
        self._memory = self.stream()
        self._pool = self._new_pool(device)

    def _new_pool(self, device: Any) -> Any:
        """Create a memory pool. Returns None if the device or the driver has none: the attribute is 0 or unknown, functions are
        missing, or the driver refuses pools although the attribute promises them, as on some virtual GPUs."""
        cuda = self._cuda
        supported = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        try:
            (has_pools,) = _call(cuda, "cuDeviceGetAttribute", supported, device)
            if not has_pools:
                return None
            function, *_ = self._do("cuGetProcAddress", b"cuMemAllocFromPoolAsync", _POOLS_SINCE, 0)
            return self._created_pool() if int(function) else None
        except RuntimeError:  # cuda-bindings finds no such function in the driver
            return None
        except DriverError as error:
            if error.status not in (Status.INVALID_VALUE, Status.NOT_FOUND, Status.NOT_SUPPORTED):
                raise
            return None

    def _created_pool(self) -> Any:
        cuda = self._cuda
        properties = cuda.CUmemPoolProps()
        properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = self.facts.number
        (pool,) = self._do("cuMemPoolCreate", properties)
        threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        self._do("cuMemPoolSetAttribute", pool, threshold, cuda.cuuint64_t(self.facts.memory // _CACHED))
        return pool

    def _do(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a driver function in this context."""
        return self._inside(lambda: _call(self._cuda, name, *arguments))

    def _inside(self, call: Callable[[], _Result]) -> _Result:
        """Run `call` while this context is current in the thread, then restore the previous context. Other libraries assume that
        the current context is of the device that the user chose."""
        (current,) = _call(self._cuda, "cuCtxGetCurrent")
        if int(current) == int(self._context):
            return call()
        _call(self._cuda, "cuCtxPushCurrent", self._context)
        try:
            return call()
        finally:
            self._cuda.cuCtxPopCurrent()

    def memory(self) -> tuple[int, int]:
        free, total = self._do("cuMemGetInfo")
        return int(free), int(total)

    def allocate(self, size: int) -> int:
        if self._pool is None:
            return int(self._do("cuMemAlloc", size)[0])
        (address,) = self._do("cuMemAllocFromPoolAsync", size, self._pool, self._memory)
        self.synchronize(self._memory)
        return int(address)

    def free(self, address: int) -> None:
        if self._pool is None:
            self._do("cuMemFree", address)
        else:
            self._do("cuMemFreeAsync", address, self._memory)

    def trim(self) -> None:
        if self._pool is not None:
            self.synchronize(self._memory)
            self._do("cuMemPoolTrimTo", self._pool, 0)

    def allocate_host(self, size: int) -> int:
        return int(self._do("cuMemHostAlloc", size, 0)[0])

    def free_host(self, address: int) -> None:
        self._do("cuMemFreeHost", address)

    def pointer_device(self, address: int) -> int:
        kind = self._cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self._do("cuPointerGetAttribute", kind, address)[0])

    def stream(self) -> int:
        (stream,) = self._do("cuStreamCreate", self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._streams[int(stream)] = stream
        return int(stream)

    def destroy_stream(self, stream: int) -> None:
        self._do("cuStreamDestroy", self._streams.pop(stream))

    def synchronize(self, stream: int) -> None:
        self._do("cuStreamSynchronize", self._streams.get(stream) or self._cuda.CUstream(stream))

    def event(self, timed: bool = False) -> int:
        flags = self._cuda.CUevent_flags
        return int(self._do("cuEventCreate", flags.CU_EVENT_DEFAULT if timed else flags.CU_EVENT_DISABLE_TIMING)[0])

    def destroy_event(self, event: int) -> None:
        self._do("cuEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        self._do("cuEventRecord", event, self._streams[stream])

    def await_event(self, stream: int, event: int) -> None:
        self._do("cuStreamWaitEvent", self._streams[stream], event, 0)

    def synchronize_event(self, event: int) -> None:
        self._do("cuEventSynchronize", event)

    def elapsed(self, start: int, end: int) -> float:
        return float(self._do("cuEventElapsedTime", start, end)[0]) * 1e-3

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        self._do("cuMemcpyHtoDAsync", target, source, size, self._streams[stream])

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        self._do("cuMemcpyDtoHAsync", target, source, size, self._streams[stream])

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._do("cuMemcpyDtoDAsync", target, source, size, self._streams[stream])

    def clear(self, target: int, size: int, stream: int) -> None:
        self._do("cuMemsetD8Async", target, 0, size, self._streams[stream])

    def load(self, program: bytes) -> int:
        return int(self._do("cuModuleLoadData", program)[0])

    def unload(self, module: int) -> None:
        self._do("cuModuleUnload", module)

    def function(self, module: int, name: str, shared: int = 0) -> int:
        (function,) = self._do("cuModuleGetFunction", module, name.encode())
        if shared:
            kind = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._do("cuFuncSetAttribute", function, kind, shared)
            self._shared[int(function)] = shared
        return int(function)

    def function_facts(self, function: int) -> FunctionFacts:
        kinds = self._cuda.CUfunction_attribute
        (threads,) = self._do("cuFuncGetAttribute", kinds.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
        (shared,) = self._do("cuFuncGetAttribute", kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
        return FunctionFacts(int(threads), int(shared), self._parameters(function))

    def _parameters(self, function: int) -> int | None:
        """Return the number of a function's parameters; None if the driver is older than 12.4 and cannot report it."""
        count = 0
        try:
            while True:
                self._do("cuFuncGetParamInfo", function, count)
                count += 1
        except DriverError as error:
            if error.status != Status.INVALID_VALUE:
                raise
            return count
        except RuntimeError:  # the driver has no such function
            return None

    def prepare(
        self, function: int, grid: tuple[int, int, int], threads: tuple[int, int, int], arguments: Sequence[int | bytes]
    ) -> _Prepared:
        packed = Arguments(arguments)
        head = (self._cuda.CUfunction(function), *grid, *threads, self._shared.get(function, 0))
        return _Prepared(head, ctypes.addressof(packed.pointers), packed)

    def tensor_map(self, described: TensorMap, address: int) -> bytes:
        cuda = self._cuda
        kinds = (
            getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_UINT{8 * described.element_bytes}"),
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        element, *modes = map(int, kinds)
        rank, box = len(described.shape), described.box
        sizes = [(ctypes.c_uint64 * rank)(*numbers) for numbers in (described.shape, described.strides)]
        boxes = [(ctypes.c_uint32 * rank)(*numbers) for numbers in (box, [1] * rank)]
        encoded = Arguments([bytes(MAP_BYTES)])
        pointer = encoded.pointers[0] or 0
        status = self._inside(lambda: self._encode(pointer, element, rank, address, *sizes, *boxes, *modes))
        if status:
            raise _error(cuda, "cuTensorMapEncodeTiled", cuda.CUresult(status))
        return ctypes.string_at(pointer, MAP_BYTES)

    @functools.cached_property
    def _encode(self) -> Callable[..., int]:
        """The driver's function that encodes tensor maps. cuda-bindings does not align the result to 64 bytes."""
        pointer, *_ = self._do("cuGetProcAddress", b"cuTensorMapEncodeTiled", 12000, 0)
        kind, word, any_ = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
        return ctypes.CFUNCTYPE(kind, any_, kind, word, *[any_] * 5, *[kind] * 4)(int(pointer))

    def launch(self, launches: Sequence[_Prepared], stream: int) -> None:
        self._inside(lambda: self._launch(launches, self._streams[stream]))

    def _launch(self, launches: Sequence[_Prepared], stream: Any) -> None:
        launch = self._cuda.cuLaunchKernel
        for head, parameters, _ in launches:
            (status,) = launch(*head, stream, parameters, 0)
            if status:
                raise _error(self._cuda, "cuLaunchKernel", status)

    def graph(self, launches: Sequence[_Prepared]) -> int:
        cuda = self._cuda
        (graph,) = self._do("cuGraphCreate", 0)
        try:
            before: list[Any] = []
            for head, parameters, _ in launches:
                node = cuda.CUDA_KERNEL_NODE_PARAMS()
                node.func, node.gridDimX, node.gridDimY, node.gridDimZ, *block, node.sharedMemBytes = head
                node.blockDimX, node.blockDimY, node.blockDimZ = block
                node.kernelParams = parameters
                before = [*self._do("cuGraphAddKernelNode", graph, before, len(before), node)]
            return int(self._do("cuGraphInstantiate", graph, 0)[0])
        finally:
            self._do("cuGraphDestroy", graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        self._do("cuGraphLaunch", graph, self._streams[stream])

    def destroy_graph(self, graph: int) -> None:
        self._do("cuGraphExecDestroy", graph)
