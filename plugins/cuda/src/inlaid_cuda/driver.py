"""Interface of the runtime to a CUDA driver. Objects are handles (ints, never 0), sizes are bytes.

`bindings.py` calls this machine's driver, `emulation/` emulates one on the host. Tests add drivers that delay or fail calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

Prepared = Any
"""A launch with packed arguments, created by `Context.prepare`. It may be launched any number of times."""


class Status(IntEnum):
    """Values of `CUresult` that the runtime distinguishes."""

    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    DEINITIALIZED = 4
    DEVICE_UNAVAILABLE = 46
    NO_DEVICE = 100
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209
    ECC_UNCORRECTABLE = 214
    INVALID_PTX = 218
    NVLINK_UNCORRECTABLE = 220
    JIT_COMPILER_NOT_FOUND = 221
    UNSUPPORTED_PTX_VERSION = 222
    JIT_COMPILATION_DISABLED = 223
    CONTAINED = 226
    INVALID_SOURCE = 300
    NOT_FOUND = 500
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_TIMEOUT = 702
    CONTEXT_IS_DESTROYED = 709
    ASSERT = 710
    HARDWARE_STACK_ERROR = 714
    ILLEGAL_INSTRUCTION = 715
    MISALIGNED_ADDRESS = 716
    INVALID_ADDRESS_SPACE = 717
    INVALID_PC = 718
    LAUNCH_FAILED = 719
    NOT_SUPPORTED = 801
    UNKNOWN = 999


class DriverError(Exception):
    """A failed driver call. `call`: name of the function. `status`: the `CUresult`. `text`: name and description of the status,
    such as "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"."""

    def __init__(self, call: str, status: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.call, self.status, self.text = call, status, text


@dataclass(frozen=True)
class DeviceFacts:
    """Properties of a device, sizes in bytes.

    architecture: compute capability, 90 for 9.0. threads: maximum threads of a block. block, grid: maximum threads of a block and
    blocks of a grid along x, y, z. shared: maximum shared memory of a block. default_shared: maximum shared memory of a block
    unless a function opts in to more. driver: CUDA version that the driver supports, 13000 for 13.0. integrated: host and device
    share memory. dlpack: DLPack device type."""

    number: int
    name: str
    architecture: int
    memory: int
    threads: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    default_shared: int
    shared: int
    driver: int
    integrated: bool = False
    dlpack: int = 2

    @property
    def driver_version(self) -> tuple[int, int]:
        """Major and minor version of CUDA that the driver supports."""
        return self.driver // 1000, self.driver % 1000 // 10

    def __str__(self) -> str:
        architecture = f"sm_{self.architecture}" if self.architecture else "emulated"
        return f"device {self.number}: {self.name} ({architecture}, {self.memory >> 20} MiB)"


@dataclass(frozen=True)
class FunctionFacts:
    """Properties of a function: maximum threads of a block, bytes of static shared memory, number of parameters (None if the driver
    cannot report it)."""

    threads: int
    shared: int
    parameters: int | None = None


MAX_RANK, MAX_BOX, STRIDE_BYTES = 5, 256, 16
"""Limits of a tensor map: maximum number of dimensions, maximum extent of the box, and the number of bytes that divides all
strides."""
MAP_BYTES, MAP_ALIGNMENT = 128, 64


@dataclass(frozen=True)
class TensorMap:
    """A tensor in device memory and the box that a load copies from it (`CUtensorMap`). The address of the tensor is not included.

    element_bytes: 1, 2 or 4. shape, box: extents in elements, the innermost dimension first. strides: in bytes, of all dimensions
    but the innermost. Loads swizzle the 16-byte parts of a box within 128 bytes. Elements out of bounds are 0."""

    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    def text(self) -> str:
        """Format as text for launch plans: `2 200,100 400 64,100`."""
        return " ".join(
            (str(self.element_bytes), *(",".join(map(str, numbers)) for numbers in (self.shape, self.strides, self.box)))
        )

    @staticmethod
    def parse(text: str) -> TensorMap:
        """Parse the result of `text()`. Raises `ValueError` for any other text and for illegal numbers."""
        (bytes_,), shape, strides, box = (tuple(map(int, numbers.split(","))) for numbers in text.split(" "))
        fits = 2 <= len(shape) <= MAX_RANK and len(box) == len(shape) == len(strides) + 1 and min(shape) > 0
        aligned = all(stride > 0 and stride % STRIDE_BYTES == 0 for stride in strides)
        if bytes_ not in (1, 2, 4) or not fits or not aligned or not all(0 < size <= MAX_BOX for size in box):
            raise ValueError(f"expected a tensor map, got {text!r}")
        return TensorMap(bytes_, shape, strides, box)


class Context(Protocol):
    """An open device. Thread-safe, except that calls on one stream must not overlap.

    Every method raises `DriverError`, also for failures of earlier asynchronous commands. Commands on a stream run in order.
    Commands on different streams are ordered only by events.
    """

    facts: DeviceFacts

    def memory(self) -> tuple[int, int]:
        """Return the free and total bytes of the device."""

    def allocate(self, size: int) -> int:
        """Allocate `size` > 0 bytes, aligned to 256, usable on any stream. Returns the address."""

    def free(self, address: int) -> None:
        """Free memory that no pending command uses."""

    def trim(self) -> None:
        """Return cached free memory to the device."""

    def allocate_host(self, size: int) -> int:
        """Allocate `size` bytes of page-locked host memory, aligned to 64. Returns the address."""

    def free_host(self, address: int) -> None:
        """Free page-locked host memory."""

    def stream(self) -> int:
        """Create a stream that does not synchronize with the default stream."""

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; its pending commands still complete."""

    def synchronize(self, stream: int) -> None:
        """Block until all commands on a stream have completed. The stream may belong to another library."""

    def event(self, timed: bool = False) -> int:
        """Create an event. If `timed`, the event records the time of its completion."""

    def destroy_event(self, event: int) -> None:
        """Destroy an event, completed or not."""

    def record(self, event: int, stream: int) -> None:
        """Record an event on a stream. It completes after all commands that are on the stream at this time."""

    def await_event(self, stream: int, event: int) -> None:
        """Make later commands of a stream wait for the last record of an event."""

    def synchronize_event(self, event: int) -> None:
        """Block until the last record of an event has completed."""

    def elapsed(self, start: int, end: int) -> float:
        """Return the seconds between two completed timed events."""

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        """Enqueue a copy of host memory to the device. The caller may change the memory only after the completion of the copy."""

    def pointer_device(self, address: int) -> int:
        """Return the number of the device whose memory contains an address, no matter which library allocated it."""

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        """Enqueue a copy of device memory to host memory."""

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Enqueue a copy within device memory."""

    def clear(self, target: int, size: int, stream: int) -> None:
        """Enqueue a fill of device memory with 0."""

    def load(self, program: bytes) -> int:
        """Load a module from a cubin, or from PTX that ends with a null byte. The emulation expects source instead."""

    def unload(self, module: int) -> None:
        """Unload a module with its functions."""

    def function(self, module: int, name: str, shared: int = 0) -> int:
        """Find a function of a module. Each launch of the function allocates `shared` bytes of dynamic shared memory."""

    def function_facts(self, function: int) -> FunctionFacts:
        """Query the properties of a function."""

    def tensor_map(self, described: TensorMap, address: int) -> bytes:
        """Encode a tensor map to `MAP_BYTES` bytes for a tensor at `address`, which must be a multiple of 16."""

    def prepare(
        self, function: int, grid: tuple[int, int, int], threads: tuple[int, int, int], arguments: Sequence[int | bytes]
    ) -> Prepared:
        """Pack the arguments of a launch of `grid` blocks of `threads` threads. An argument is a pointer, an int64 or a tensor
        map."""

    def launch(self, launches: Sequence[Prepared], stream: int) -> None:
        """Enqueue launches in order."""

    def graph(self, launches: Sequence[Prepared]) -> int:
        """Instantiate a graph of launches, each of which depends on the previous one."""

    def launch_graph(self, graph: int, stream: int) -> None:
        """Enqueue a graph. The graph must not be pending on another stream."""

    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph that is not pending."""


class Driver(Protocol):
    """Access to CUDA devices."""

    def devices(self) -> Sequence[DeviceFacts]:
        """List the devices in the driver's order. If there is none, raises `TargetError` with a remedy."""

    def open(self, number: int) -> Context:
        """Open a device by number. Raises `DriverError`."""
