"""A CUDA driver that emulates one device on the host. Device memory is process memory, and threads of kernels run on fibers.

Commands run synchronously when they are enqueued. Allocations and the shared memory of blocks are poisoned with bytes of 255: NaN
as floats, -1 as integers. As on a device, a failed kernel makes every later call of the context fail.
"""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import math
import mmap
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import le
from typing import Any, TypeVar

from inlaid_cuda.arguments import Arguments
from inlaid_cuda.array_interface import STREAMS
from inlaid_cuda.driver import DeviceFacts, DriverError, FunctionFacts, Status, TensorMap
from inlaid_cuda.emulation.build import MAX_THREADS, STACK_BYTES, Kernel, Launch, compile_source, encode_tensor_map, load_library
from inlaid_runtime.cache import caches
from inlaid_runtime.errors import CompileError

_T = TypeVar("_T")
_ALIGNMENT = 256
_GUARD = b"\xa5" * _ALIGNMENT
"""Bytes before and after each allocation; a kernel that changes them has written out of bounds."""
_SHARED = 227 << 10


class Order(IntEnum):
    """Order in which the emulation runs blocks, and the threads of a block between two barriers."""

    FORWARD = 0
    REVERSED = 1
    RANDOM = 2


@dataclass(frozen=True, eq=False)
class _Memory:
    """An allocation of `size` bytes at `address`. It is inside `bytes`, with a guard before and after it."""

    bytes: ctypes.Array[ctypes.c_char]
    address: int
    size: int

    def intact(self) -> bool:
        """Test whether the guards are unchanged."""
        after = self.address + self.size
        return all(ctypes.string_at(at, len(_GUARD)) == _GUARD for at in (self.address - len(_GUARD), after))


@dataclass(frozen=True, eq=False)
class _Function:
    name: str
    kernel: Kernel
    shared: int


@dataclass(frozen=True, eq=False)
class _Launch:
    """A launch with packed arguments."""

    function: _Function
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    arguments: Arguments


class HostDriver:
    """Implements `inlaid_cuda.driver.Driver` on the host. `memory`: bytes of device memory. `seed`: for `Order.RANDOM`."""

    def __init__(self, order: Order = Order.FORWARD, seed: int = 0, memory: int = 4 << 30) -> None:
        self._order, self._seed = order, seed
        self._facts = DeviceFacts(
            number=0,
            name="host",
            architecture=0,
            memory=memory,
            threads=MAX_THREADS,
            block=(MAX_THREADS, MAX_THREADS, 64),
            grid=((1 << 31) - 1, 65535, 65535),
            default_shared=48 << 10,
            shared=_SHARED,
            driver=13000,
            integrated=True,
            dlpack=1,  # memory of the host
        )

    def devices(self) -> Sequence[DeviceFacts]:
        """Return the host as the only device. Never raises: only loading a module needs a compiler."""
        return (self._facts,)

    def open(self, number: int) -> HostContext:
        """Open the emulated device. Each context has separate allocations."""
        if number != 0:
            raise _error("cuDeviceGet", Status.INVALID_VALUE, f"expected device 0, the host, got {number}")
        return HostContext(self._facts, self._order, self._seed)


class HostContext:
    """The open emulated device; implements `inlaid_cuda.driver.Context`. Its tables map handles to live objects."""

    def __init__(self, facts: DeviceFacts, order: Order, seed: int) -> None:
        self.facts = facts
        self.memories: dict[int, _Memory] = {}
        self.host_memories: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.streams: dict[int, None] = {}
        self.events: dict[int, float] = {}
        self.modules: dict[int, ctypes.CDLL] = {}
        self.functions: dict[int, tuple[int, _Function]] = {}
        self.graphs: dict[int, tuple[_Launch, ...]] = {}
        self._order, self._seed = order, seed
        self._failed: DriverError | None = None
        self._handles = itertools.count(max(STREAMS) + 1)
        # Guards the count of allocated bytes and the stacks. Reentrant: the garbage collector may free memory during an allocation.
        self._lock = threading.RLock()
        self._live = 0
        stacks = mmap.mmap(-1, MAX_THREADS * STACK_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        stacks.madvise(mmap.MADV_NOHUGEPAGE)  # most stacks use one page
        self._stacks = (ctypes.c_char * len(stacks)).from_buffer(stacks)

    # --- memory -----------------------------------------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        self._check()
        return self.facts.memory - self._live, self.facts.memory

    def allocate(self, size: int) -> int:
        self._check()
        with self._lock:
            if size <= 0 or self._live + size > self.facts.memory:
                status = Status.INVALID_VALUE if size <= 0 else Status.OUT_OF_MEMORY
                raise _error("cuMemAllocAsync", status, f"{self.facts.memory - self._live} bytes are free, got {size}")
            data = (ctypes.c_char * (size + 2 * len(_GUARD) + _ALIGNMENT))()
            address = -(-(ctypes.addressof(data) + len(_GUARD)) // _ALIGNMENT) * _ALIGNMENT
            ctypes.memset(address, 0xFF, size)
            for guard in (address - len(_GUARD), address + size):
                ctypes.memmove(guard, _GUARD, len(_GUARD))
            self.memories[address] = _Memory(data, address, size)
            self._live += size
        return address

    def free(self, address: int) -> None:
        with self._lock:
            memory = _take(self.memories, address, "cuMemFreeAsync")
            self._live -= memory.size
        if not memory.intact():
            raise self._fail("cuMemFreeAsync", Status.ILLEGAL_ADDRESS, _outside(memory))

    def trim(self) -> None:
        self._check()

    def allocate_host(self, size: int) -> int:
        self._check()
        data = (ctypes.c_char * (size + 64))()
        address = -(-ctypes.addressof(data) // 64) * 64
        self.host_memories[address] = data
        return address

    def free_host(self, address: int) -> None:
        _take(self.host_memories, address, "cuMemFreeHost")

    def pointer_device(self, address: int) -> int:
        if not any(first <= address < first + memory.size for first, memory in [*self.memories.items()]):
            raise _error("cuPointerGetAttribute", Status.INVALID_VALUE, f"nothing is allocated at {address:#x}")
        return self.facts.number

    # --- streams and events -----------------------------------------------------------------------------------------------

    def stream(self) -> int:
        self._check()
        return self._add(self.streams, None)

    def destroy_stream(self, stream: int) -> None:
        _take(self.streams, stream, "cuStreamDestroy")

    def synchronize(self, stream: int) -> None:
        self._on(stream, "cuStreamSynchronize")
        for memory in [*self.memories.values()]:
            if not memory.intact():
                raise self._fail("cuStreamSynchronize", Status.ILLEGAL_ADDRESS, _outside(memory))

    def event(self, timed: bool = False) -> int:
        self._check()
        return self._add(self.events, math.nan)

    def destroy_event(self, event: int) -> None:
        _take(self.events, event, "cuEventDestroy")

    def record(self, event: int, stream: int) -> None:
        self._on(stream, "cuEventRecord")
        _get(self.events, event, "cuEventRecord")
        self.events[event] = time.perf_counter()

    def await_event(self, stream: int, event: int) -> None:
        self._on(stream, "cuStreamWaitEvent")
        _get(self.events, event, "cuStreamWaitEvent")

    def synchronize_event(self, event: int) -> None:
        self._check()
        _get(self.events, event, "cuEventSynchronize")

    def elapsed(self, start: int, end: int) -> float:
        self._check()
        return _get(self.events, end, "cuEventElapsedTime") - _get(self.events, start, "cuEventElapsedTime")

    # --- copies -----------------------------------------------------------------------------------------------------------

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        self._on(stream, "cuMemcpyHtoDAsync")
        ctypes.memmove(target, source, size)

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        self._on(stream, "cuMemcpyDtoHAsync")
        ctypes.memmove(target, source, size)

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        self._on(stream, "cuMemcpyDtoDAsync")
        ctypes.memmove(target, source, size)

    def clear(self, target: int, size: int, stream: int) -> None:
        self._on(stream, "cuMemsetD8Async")
        ctypes.memset(target, 0, size)

    # --- modules and launches ---------------------------------------------------------------------------------------------

    def load(self, program: bytes) -> int:
        """Load a module from CUDA source. Raises `TargetError` if the host has no C++ compiler."""
        self._check()
        try:
            library = load_library(compile_source(program.decode(), caches().objects))
        except UnicodeDecodeError as error:
            raise _error("cuModuleLoadData", Status.INVALID_IMAGE, f"expected CUDA source, {error}") from error
        except (CompileError, OSError) as error:
            raise _error("cuModuleLoadData", Status.INVALID_SOURCE, str(error)) from error
        return self._add(self.modules, library)

    def unload(self, module: int) -> None:
        library = _take(self.modules, module, "cuModuleUnload")
        for handle in [handle for handle, (owner, _) in self.functions.items() if owner == module]:
            del self.functions[handle]
        _ctypes.dlclose(library._handle)

    def function(self, module: int, name: str, shared: int = 0) -> int:
        library = _get(self.modules, module, "cuModuleGetFunction")
        try:
            kernel = Kernel.in_dll(library, f"inlaid_kernel_{name}")
        except ValueError as error:
            raise _error("cuModuleGetFunction", Status.NOT_FOUND, f"the module lacks kernel {name}") from error
        return self._add(self.functions, (module, _Function(name, kernel, shared)))

    def function_facts(self, function: int) -> FunctionFacts:
        kernel = _get(self.functions, function, "cuFuncGetAttribute")[1].kernel
        return FunctionFacts(kernel.threads, kernel.shared_bytes, kernel.arguments)

    def prepare(
        self, function: int, grid: tuple[int, int, int], threads: tuple[int, int, int], arguments: Sequence[int | bytes]
    ) -> _Launch:
        return _Launch(_get(self.functions, function, "cuLaunchKernel")[1], grid, threads, Arguments(arguments))

    def tensor_map(self, described: TensorMap, address: int) -> bytes:
        self._check()
        if address % 16:
            raise _error("cuTensorMapEncodeTiled", Status.INVALID_VALUE, f"expected a multiple of 16, got address {address:#x}")
        return encode_tensor_map(described, address)

    def launch(self, launches: Sequence[_Launch], stream: int) -> None:
        self._on(stream, "cuLaunchKernel")
        for launch in launches:
            self._run(launch)

    def graph(self, launches: Sequence[_Launch]) -> int:
        self._check()
        return self._add(self.graphs, tuple(launches))

    def launch_graph(self, graph: int, stream: int) -> None:
        self.launch(_get(self.graphs, graph, "cuGraphLaunch"), stream)

    def destroy_graph(self, graph: int) -> None:
        _take(self.graphs, graph, "cuGraphExecDestroy")

    def _run(self, launch: _Launch) -> None:
        kernel, name = launch.function.kernel, launch.function.name
        fits = math.prod(launch.threads) <= kernel.threads and all(map(le, launch.threads, self.facts.block))
        if not fits or not all(map(le, launch.grid, self.facts.grid)) or not all((*launch.grid, *launch.threads)):
            raise _error(
                "cuLaunchKernel",
                Status.INVALID_VALUE,
                f"kernel {name}: grid {launch.grid} or block {launch.threads} is out of range",
            )
        if len(launch.arguments.pointers) != kernel.arguments:
            raise _error(
                "cuLaunchKernel",
                Status.INVALID_VALUE,
                f"kernel {name}: expected {kernel.arguments} arguments, got {len(launch.arguments.pointers)}",
            )
        shared = launch.function.shared
        data = (ctypes.c_char * (shared + 1024))()
        first = -(-ctypes.addressof(data) // 1024) * 1024
        stacks = ctypes.addressof(self._stacks)
        with self._lock:
            request = Launch(launch.grid, launch.threads, self._order, shared, self._seed, first, stacks, STACK_BYTES)
            failed = kernel.launch(request, launch.arguments.pointers)
        if failed:
            raise self._fail("cuLaunchKernel", Status.LAUNCH_FAILED, f"kernel {name}: {request.message.decode()}")

    # --- handles and failures ---------------------------------------------------------------------------------------------

    def _add(self, table: dict[int, Any], value: object) -> int:
        handle = next(self._handles)
        table[handle] = value
        return handle

    def _on(self, stream: int, call: str) -> None:
        self._check()
        if stream not in self.streams and stream not in STREAMS:
            raise _error(call, Status.INVALID_VALUE, f"unknown stream {stream}")

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _fail(self, call: str, status: Status, reason: str) -> DriverError:
        """Create the error that this call and all later calls raise."""
        self._failed = _error(call, status, reason)
        return self._failed


def _error(call: str, status: Status, reason: str) -> DriverError:
    return DriverError(call, status, f"CUDA_ERROR_{status.name} ({reason})")


def _outside(memory: _Memory) -> str:
    return f"a kernel has written outside an allocation of {memory.size} bytes"


def _get(table: Mapping[int, _T], handle: int, call: str) -> _T:
    if handle not in table:
        raise _error(call, Status.INVALID_VALUE, f"unknown handle {handle}")
    return table[handle]


def _take(table: dict[int, _T], handle: int, call: str) -> _T:
    entry = _get(table, handle, call)
    del table[handle]
    return entry
