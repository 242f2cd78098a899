"""The run half of the plugin contract: what a plugin's run module imports from Inlaid.

A run module is named by an entry point of group `inlaid.runtimes`. It defines `PLUGIN_API_VERSION = 3`, implements hooks of
`inlaid_runtime.plugins.hookspecs` marked with `hookimpl`, and imports only `inlaid_runtime` and, inside the hooks, vendor
libraries, so that packages run where no compiler is installed.

Names are loaded lazily, since a program that runs packages needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid_runtime.artifact import ALIGNMENT as ALIGNMENT
    from inlaid_runtime.artifact import Artifact as Artifact
    from inlaid_runtime.artifact import DimSource as DimSource
    from inlaid_runtime.artifact import KernelInfo as KernelInfo
    from inlaid_runtime.artifact import Signature as Signature
    from inlaid_runtime.artifact import TensorSpec as TensorSpec
    from inlaid_runtime.plugins.device import CapturingDevice as CapturingDevice
    from inlaid_runtime.plugins.device import Device as Device
    from inlaid_runtime.plugins.device import DeviceKernel as DeviceKernel
    from inlaid_runtime.plugins.device import DeviceTensor as DeviceTensor
    from inlaid_runtime.plugins.device import MemoryFacts as MemoryFacts
    from inlaid_runtime.plugins.hookspecs import hookimpl as hookimpl
    from inlaid_runtime.plugins.runtime_module import AllocatingKernel as AllocatingKernel
    from inlaid_runtime.plugins.runtime_module import Kernel as Kernel
    from inlaid_runtime.plugins.runtime_module import KernelTime as KernelTime
    from inlaid_runtime.plugins.runtime_module import Loaded as Loaded
    from inlaid_runtime.plugins.runtime_module import RuntimeModule as RuntimeModule
    from inlaid_runtime.plugins.runtime_module import TimedLaunch as TimedLaunch
    from inlaid_runtime.plugins.target import DeviceStatus as DeviceStatus
    from inlaid_runtime.plugins.target import NoOptions as NoOptions
    from inlaid_runtime.plugins.target import RuntimeSpec as RuntimeSpec
    from inlaid_runtime.plugins.target import Target as Target

NAMES = {
    "inlaid_runtime.artifact": ("ALIGNMENT", "Artifact", "DimSource", "KernelInfo", "Signature", "TensorSpec"),
    "inlaid_runtime.plugins.device": ("CapturingDevice", "Device", "DeviceKernel", "DeviceTensor", "MemoryFacts"),
    "inlaid_runtime.plugins.hookspecs": ("hookimpl",),
    "inlaid_runtime.plugins.runtime_module": (
        "AllocatingKernel",
        "Kernel",
        "KernelTime",
        "Loaded",
        "RuntimeModule",
        "TimedLaunch",
    ),
    "inlaid_runtime.plugins.target": ("DeviceStatus", "NoOptions", "RuntimeSpec", "Target"),
}
"""Names of the run half, by module."""
_HOMES = {name: module for module, names in NAMES.items() for name in names}

__all__ = [*_HOMES]

if not TYPE_CHECKING:  # type checkers know the names above, and report others

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'inlaid_runtime.plugins' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
