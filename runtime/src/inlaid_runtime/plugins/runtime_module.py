"""Run side of the plugin contract: loading and running artifacts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from inlaid_runtime.artifact import ALIGNMENT, Artifact
from inlaid_runtime.plugins.device import Device, DeviceKernel, DeviceTensor
from inlaid_runtime.plugins.target import Target
from inlaid_runtime.records import dataclass


class Kernel(Protocol):
    """A region that runs on buffers of the caller: row-major host arrays aligned to 64 bytes, or, for inputs, to
    `Loaded.alignment`.

    `dims` is an int64 array with one element per dimension of the signature; the kernel writes the dimensions that it computes,
    initially 0. An output with a computed dimension is allocated at the upper bound and filled row-major at the actual size.
    `workspace` has at least the bytes that the artifact requires. Raises `KernelFault` if the region reports an error. Must be
    thread-safe.
    """

    def invoke(
        self,
        inputs: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        workspace: np.ndarray[Any, Any],
        dims: np.ndarray[Any, Any],
    ) -> None: ...


class AllocatingKernel(Protocol):
    """A region that allocates its results, for sizes without an upper bound and for values that are not arrays.

    Values are arrays or host objects: a list for a sequence, None or the value for an optional, an object array for a tensor of
    strings. The results belong to the caller; the executor reads sizes from their shapes.
    """

    def call(self, inputs: Sequence[Any]) -> Sequence[Any]: ...


@dataclass(frozen=True)
class KernelTime:
    """Run time of one kernel of a region: its index in `Artifact.kernels`, its start in seconds from the start of the region, and
    its duration in seconds."""

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
"""Runs like `Kernel.invoke`, with the same arguments, and returns the time of each kernel."""

TimedLaunch = Callable[
    [Sequence[DeviceTensor], Sequence[DeviceTensor], DeviceTensor | None, np.ndarray[Any, Any], Any],
    Callable[[], Sequence[KernelTime]],
]
"""Launches like `DeviceKernel.launch`, with the same arguments, and returns a function that gives the time of each kernel once the
queue has finished them."""


@dataclass(frozen=True)
class Loaded:
    """A loaded region, with exactly one of three kernels: `kernel` fills buffers of the caller, `allocating` allocates its results,
    `launching` works in device memory. `profile` and `timed_launch` are the timed variants of `kernel` and `launching`, None if
    unavailable. `alignment` is the alignment of host inputs in bytes, a power of two up to 64; other inputs are copied first.

    Raises `ValueError` unless exactly one kernel is given and the alignment is valid."""

    kernel: Kernel | None = None
    allocating: AllocatingKernel | None = None
    launching: DeviceKernel | None = None
    profile: Profiled | None = None
    timed_launch: TimedLaunch | None = None
    alignment: int = ALIGNMENT

    def __post_init__(self) -> None:
        if [self.kernel, self.allocating, self.launching].count(None) != 2:
            raise ValueError("expected exactly one of kernel, allocating and launching")
        if self.alignment not in (1, 2, 4, 8, 16, 32, ALIGNMENT):
            raise ValueError(f"alignment must be a power of two up to {ALIGNMENT}, got {self.alignment}")


class RuntimeModule(ABC):
    """Run side of a target, usable without the compiler."""

    @abstractmethod
    def check(self, artifact: Artifact) -> str | None:
        """Return None if the artifact can run here, else the reason why not."""

    @abstractmethod
    def load(self, artifact: Artifact, constants: Mapping[str, np.ndarray[Any, Any]]) -> Loaded:
        """Load an artifact. `constants` are the artifact's constants by name, in order, memory-mapped and aligned to 64 bytes.
        Raises `Unsupported` if the code cannot be loaded."""

    def device(self) -> Device | None:
        """Return the device whose memory the regions use, the same object in each call; None for host memory."""
        return None

    def live_bytes(self) -> int | None:
        """Return the bytes of host and device memory that the module and its loaded regions hold; None if not counted."""
        return None

    def close(self) -> None:  # noqa: B027 (optional)
        """Release all resources of this module, but none that another module of the same device uses. May be called twice. If the
        module held resources, later calls of `load` raise an Inlaid error."""


class Runtimes(Protocol):
    """What loading a package needs of a registry: `RuntimeRegistry` or the compiler's `PluginRegistry`."""

    def target(self, text: str) -> Target:
        """Parse a target."""

    def owner(self, kind: str) -> str:
        """Return the name of the plugin that provides a target kind."""

    def runtime(self, target: Target, device: int = 0) -> RuntimeModule:
        """Create the runtime module of a target for a device number."""
