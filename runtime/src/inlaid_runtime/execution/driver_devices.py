"""Base classes of devices and runtime modules that use a vendor's driver. They count allocated bytes, translate driver errors and
check the requirements of artifacts."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import DeviceLost, InlaidError, OutOfMemory
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.plugins.device import Device

_Memory = TypeVar("_Memory")
_Device = TypeVar("_Device", bound="DriverDevice")


class _DriverCall:
    """Context that translates driver errors, with `action` in the message. Raises `DeviceLost` on entry if the device is lost."""

    __slots__ = ("_action", "_device")

    def __init__(self, device: DriverDevice, action: str) -> None:
        self._device, self._action = device, action

    def __enter__(self) -> None:
        if self._device.lost:
            raise self._device.lost_error()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._device.driver_error):
            raise self._device.failure(error, self._action) from error


class DriverDevice(Device):
    """A device on which this process may allocate `total` bytes. `live` is the number of allocated bytes. `lost` is "", or the
    reason why the device is lost."""

    driver_error: ClassVar[type[Exception]]
    """Exception class of the driver's binding."""
    lost_remedy: ClassVar[str]
    """Remedy in the error of a lost device."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.live = 0
        self.lost = ""
        self._lock = threading.RLock()  # the garbage collector may free memory during an allocation

    @abstractmethod
    def translate(self, error: Exception, action: str) -> InlaidError | None:
        """Translate a driver error, with `action` in the message. Returns None if the caller caused the error."""

    def driver_call(self, action: str) -> _DriverCall:
        """Create a context that translates driver errors, with `action` in messages. Raises `DeviceLost` if the device is lost."""
        return _DriverCall(self, action)

    def lost_error(self) -> DeviceLost:
        """Return the error that every call raises after the device is lost."""
        return DeviceLost(self.lost, remedy=self.lost_remedy)

    def failure(self, error: Exception, action: str) -> Exception:
        """Translate a driver error, and record whether the device is lost. Errors that the caller caused are returned as is."""
        translated_error = self.translate(error, action)
        if isinstance(translated_error, DeviceLost):
            self.lost = translated_error.message
        return translated_error or error

    def reserve(self, size: int, allocate: Callable[[], _Memory]) -> _Memory:
        """Count `size` bytes as allocated and return the result of `allocate`. Raises `OutOfMemory` and `DeviceLost`."""
        with self._lock:
            if self.live + size > self.total:
                raise OutOfMemory(
                    f"{self.name} must have {size} bytes free, has {self.total - self.live} of {self.total}",
                    remedy="give smaller inputs, or free tensors on the device",
                )
            self.live += size
        try:
            with self.driver_call(f"allocating {size} bytes"):
                return allocate()
        except BaseException:
            self.forget(size)
            raise

    def forget(self, size: int) -> None:
        """Count bytes as freed."""
        with self._lock:
            self.live -= size


class DriverRuntime(HostRuntime, Generic[_Device]):
    """Runtime module of one device. A plugin's subclass implements `missing` and `load`."""

    def __init__(self, format: str, format_version: int, device: _Device) -> None:
        super().__init__(format, format_version)
        self._device = device

    @abstractmethod
    def missing(self, requires: Sequence[str]) -> str | None:
        """Describe the first requirement that the device lacks, with a remedy. Returns None if it meets all requirements."""

    def check(self, artifact: Artifact) -> str | None:
        """Explain why the device cannot run an artifact, with a remedy. Returns None if it can."""
        return super().check(replace(artifact, requires=())) or self.missing(artifact.requires)

    def device(self) -> _Device:
        """Return the device that regions run on."""
        return self._device

    def live_bytes(self) -> int:
        """Return the bytes of device memory that this process has allocated."""
        return self._device.live
