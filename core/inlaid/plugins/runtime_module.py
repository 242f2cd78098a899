"""The run side of the plugin contract: what loads artifacts and what runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.plugins.device import Device, DeviceKernel, DeviceTensor


class Kernel(Protocol):
    """A region that runs over buffers of its caller's: arrays in host memory, row-major, at multiples of 64 bytes or, inputs, of
    what `Loaded.alignment` says.

    `dims` holds the value of each dimension of the signature, as int64; the kernel writes those that it works out (zero at
    first). An output whose shape has such a dimension comes with its upper bound there, and is filled row-major at the actual
    size. `workspace` has at least the bytes that the artifact asks for. Raises `KernelFault` when the region reports an error.
    May be called from several threads at once.
    """

    def invoke(
        self,
        inputs: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        workspace: np.ndarray[Any, Any],
        dims: np.ndarray[Any, Any],
    ) -> None: ...


class AllocatingKernel(Protocol):
    """A region that allocates its own results: for sizes that have no bound before the run, and for values that are no arrays.

    Values are arrays or host objects: a sequence is a list, an optional is None or its value, a tensor of strings is an object
    array. The results belong to the caller; the executor reads sizes off their shapes.
    """

    def call(self, inputs: Sequence[Any]) -> Sequence[Any]: ...


@dataclass(frozen=True)
class KernelTime:
    """How long one kernel of a region took: its number in `Artifact.kernels`, which say what it computes, when it started, in
    seconds from the start of the region, and the seconds it ran."""

    kernel: int
    start: float
    seconds: float


Profiled = Callable[
    [
        Sequence[np.ndarray[Any, Any]],
        Sequence[np.ndarray[Any, Any]],
        np.ndarray[Any, Any],
        np.ndarray[Any, Any],
    ],
    Sequence[KernelTime],
]
"""Does what `Kernel.invoke` does, with the same arguments, and says how long each part took."""

TimedLaunch = Callable[
    [Sequence[DeviceTensor], Sequence[DeviceTensor], DeviceTensor | None, np.ndarray[Any, Any], Any],
    Callable[[], Sequence[KernelTime]],
]
"""Does what `DeviceKernel.launch` does, with the same arguments, and gives what says how long each kernel took, once the queue has
done it."""


@dataclass(frozen=True)
class Loaded:
    """A region that is ready to run, in one of three ways: `kernel` fills its caller's buffers, `allocating` makes its results
    itself, `launching` works in a device's memory; the others are None. `profile`: the kernel's way to time its parts, None where
    it has none, `timed_launch` the same of one that is launched. `alignment`: inputs in the host's memory start at multiples of so
    many bytes, a power of two up to 64; those that lie elsewhere are copied first.

    Raises `ValueError` where none or several are given, or the alignment is none."""

    kernel: Kernel | None = None
    allocating: AllocatingKernel | None = None
    launching: DeviceKernel | None = None
    profile: Profiled | None = None
    timed_launch: TimedLaunch | None = None
    alignment: int = ALIGNMENT

    def __post_init__(self) -> None:
        if [self.kernel, self.allocating, self.launching].count(None) != 2:
            raise ValueError("a loaded region has one kernel: one that fills buffers, that allocates, or that is launched")
        if self.alignment not in (1, 2, 4, 8, 16, 32, ALIGNMENT):
            raise ValueError(f"the alignment of inputs is a power of two up to {ALIGNMENT}, not {self.alignment}")


class RuntimeModule(ABC):
    """The run side of a target, loaded without the compiler."""

    @abstractmethod
    def check(self, artifact: Artifact) -> str | None:
        """None when the artifact can run here, else the reason why not."""

    @abstractmethod
    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """The artifact ready to run; `constants` are those of the artifact, in its order, mapped and aligned to 64 bytes. Raises
        `Unsupported` where the code cannot be loaded."""

    def device(self) -> Device | None:
        """The device in whose memory regions work; None where that is the host's. Always the same object."""
        return None

    def live_bytes(self) -> int | None:
        """Bytes, on the host or the device, that the module and what it loaded have taken and not given back; None where it does
        not count them."""
        return None

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Give back what the module holds. It may be called twice; where there was something, `load` then raises an Inlaid
        error."""
