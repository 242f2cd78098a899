"""What the runtime asks of a CUDA driver, in handles (ints, never 0) and bytes.

`bindings.py` answers it with the driver of the machine; `emulation/` on the host. Tests have drivers that record, and that fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

Prepared = Any
"""A launch in the driver's own form, made by `Context.prepare`. It holds its arguments and may be launched any number of times."""


class Status(IntEnum):
    """The values of `CUresult` that the runtime tells apart."""

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
    UNSUPPORTED_PTX_VERSION = 222
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
    UNKNOWN = 999


class DriverError(Exception):
    """A call of the driver failed. `call` is its name; `status` the `CUresult`; `text` its name, and a description where the driver
    has one: "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"."""

    def __init__(self, call: str, status: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.call, self.status, self.text = call, status, text


@dataclass(frozen=True)
class DeviceFacts:
    """A device of the machine. `architecture` is its compute capability, 90 for 9.0. Sizes are bytes; `block` and `grid` the most
    threads of a block, and blocks of a grid, along x, y and z; `shared` the most shared memory of a block, `default_shared` as much
    of it as needs no opting in. `driver` is the version of CUDA that the driver supports, 13000 for 13.0. `integrated`: host and
    device share their memory. `dlpack` is what DLPack calls the type of the device."""

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

    def __str__(self) -> str:
        architecture = f"sm_{self.architecture}" if self.architecture else "emulated"
        return f"device {self.number}: {self.name} ({architecture}, {self.memory >> 20} MiB)"


@dataclass(frozen=True)
class FunctionFacts:
    """A function of a module: the most threads of a block with which it can be launched, its static shared memory in bytes, and how
    many parameters it has, None where the driver cannot tell."""

    threads: int
    shared: int
    parameters: int | None = None


class Context(Protocol):
    """An open device. Calls may come from any thread; those on one stream from one at a time.

    Every method raises `DriverError`, at once or for what failed on the device before. Work on a stream runs in order; work on
    different streams has no order but by events.
    """

    facts: DeviceFacts

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and all bytes of the device."""

    def allocate(self, size: int) -> int:
        """The address of at least `size` bytes, more than 0, aligned to 256; ready for work on any stream."""

    def free(self, address: int) -> None:
        """Give memory back that no work uses any more."""

    def trim(self) -> None:
        """Give memory that is kept for later allocations back to the device."""

    def allocate_host(self, size: int) -> int:
        """The address of page-locked host memory of `size` bytes, aligned to 64."""

    def free_host(self, address: int) -> None:
        """Give host memory back."""

    def stream(self) -> int:
        """A new stream that does not wait for the default stream."""

    def destroy_stream(self, stream: int) -> None:
        """Give a stream back, once what is on it is done."""

    def synchronise(self, stream: int) -> None:
        """Return once all that is on a stream is done."""

    def event(self, timed: bool = False) -> int:
        """A new event; `timed`: with a time when it comes."""

    def destroy_event(self, event: int) -> None:
        """Give an event back, whether it has come or not."""

    def record(self, event: int, stream: int) -> None:
        """Let an event come once all that is on a stream by now is done."""

    def await_event(self, stream: int, event: int) -> None:
        """Let a stream begin nothing further before an event, as recorded last, has come."""

    def synchronise_event(self, event: int) -> None:
        """Return once an event, as recorded last, has come."""

    def elapsed(self, start: int, end: int) -> float:
        """Seconds between two timed events that have come."""

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy host memory to the device. Once the call has returned it may change where it is pageable; where it is page-locked,
        once the copy is done."""

    def page_locked(self, address: int) -> bool:
        """Whether host memory is page-locked, by whomever."""

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy the device's memory to host memory."""

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy memory of the device to other memory of it."""

    def clear(self, target: int, size: int, stream: int) -> None:
        """Set bytes of the device's memory to 0."""

    def load(self, program: bytes) -> int:
        """A module from a cubin, or what the driver runs in its place."""

    def unload(self, module: int) -> None:
        """Give a module back, with its functions."""

    def function(self, module: int, name: str, shared: int = 0) -> int:
        """A function of a module, whose launches allocate so many bytes of shared memory beside those that it declares."""

    def function_facts(self, function: int) -> FunctionFacts:
        """What a function needs and allows."""

    def prepare(
        self, function: int, grid: tuple[int, int, int], threads: tuple[int, int, int], arguments: Sequence[int]
    ) -> Prepared:
        """A launch of `grid` blocks of `threads`. Each argument is a pointer or an int64."""

    def launch(self, launches: Sequence[Prepared], stream: int) -> None:
        """Put launches on a stream, one after the other."""

    def graph(self, launches: Sequence[Prepared]) -> int:
        """An executable graph of launches, each of which waits for the one before."""

    def launch_graph(self, graph: int, stream: int) -> None:
        """Put a graph on a stream. It is on one stream at a time."""

    def destroy_graph(self, graph: int) -> None:
        """Give a graph back that is on no stream any more."""


class Driver(Protocol):
    """A way to CUDA devices."""

    def devices(self) -> Sequence[DeviceFacts]:
        """The devices in the driver's order. Raises `TargetError`, with what to install, where there is no driver or no device."""

    def open(self, number: int) -> Context:
        """A device by its number. Raises `DriverError`."""
