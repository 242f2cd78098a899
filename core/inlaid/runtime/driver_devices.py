"""Devices behind a vendor's driver: what this process has allocated, and errors of the driver as those of Inlaid."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

from inlaid.errors import DeviceLost, InlaidError, OutOfMemory
from inlaid.plugins.device import Device

_Made = TypeVar("_Made")


class _Doing:
    """Context that translates driver errors, with `action` in the message. Raises `DeviceLost` on entry if the device is lost."""

    __slots__ = ("_device", "_what")

    def __init__(self, device: DriverDevice, what: str) -> None:
        self._device, self._what = device, what

    def __enter__(self) -> None:
        if self._device.lost:
            raise self._device.lost_error()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self._device.driver_error):
            raise self._device.failure(error, self._what) from error


class DriverDevice(Device):
    """A device of which this process may allocate `total` bytes. `live` is the bytes that are allocated, `lost` why it answers no
    more, "" while it does."""

    driver_error: ClassVar[type[Exception]]
    """What the driver's binding raises."""
    lost_remedy: ClassVar[str]
    """What the user can do once the device is lost."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.live = 0
        self.lost = ""
        self._lock = threading.Lock()

    @abstractmethod
    def translated(self, error: Exception, doing: str) -> InlaidError | None:
        """What an error of the driver means when the device was asked to do something; None where it means a mistake of the
        caller's."""

    def doing(self, what: str) -> _Doing:
        """A context in which errors of the driver become those of Inlaid. Raises `DeviceLost` where the device is lost."""
        return _Doing(self, what)

    def lost_error(self) -> DeviceLost:
        """Error of every call after the device was lost."""
        return DeviceLost(self.lost, remedy=self.lost_remedy)

    def failure(self, error: Exception, doing: str) -> Exception:
        """Translate a driver error, and note that the device is lost if so; an error of the caller's is returned unchanged."""
        found = self.translated(error, doing)
        if isinstance(found, DeviceLost):
            self.lost = found.message
        return found or error

    def make(self, size: int, make: Callable[[], _Made]) -> _Made:
        """What `make` makes, with `size` bytes counted as allocated until `forget`. Raises `OutOfMemory`, `DeviceLost`."""
        with self._lock:
            if self.live + size > self.total:
                raise OutOfMemory(
                    f"{self.name} has {self.total - self.live} of {self.total} bytes left, expected {size}",
                    remedy="give smaller inputs, or free what stays on the device",
                )
            self.live += size
        try:
            with self.doing(f"allocating {size} bytes"):
                return make()
        except BaseException:
            self.forget(size)
            raise

    def forget(self, size: int) -> None:
        """Count bytes as given back."""
        with self._lock:
            self.live -= size
