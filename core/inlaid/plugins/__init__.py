"""The plugin contract: everything that a plugin's compile module imports from Inlaid.

A plugin's compile module is named by an entry point of group `inlaid.plugins`. It defines `PLUGIN_API_VERSION = 3`, implements
hooks of `inlaid.plugins.hookspecs` marked with `hookimpl`, and imports vendor libraries inside the hooks. `inlaid_runtime.plugins`
is the contract of the run module; its names are names of this package too.

Names are loaded lazily, since most modules need few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from inlaid_runtime import plugins as run_half

if TYPE_CHECKING:
    from inlaid.plugins.contract import Accept as Accept
    from inlaid.plugins.contract import AcceptIf as AcceptIf
    from inlaid.plugins.contract import Border as Border
    from inlaid.plugins.contract import Borders as Borders
    from inlaid.plugins.contract import Capabilities as Capabilities
    from inlaid.plugins.contract import Codegen as Codegen
    from inlaid.plugins.contract import CompileContext as CompileContext
    from inlaid.plugins.contract import Conformance as Conformance
    from inlaid.plugins.contract import Core as Core
    from inlaid.plugins.contract import ExpectedFailure as ExpectedFailure
    from inlaid.plugins.contract import Exported as Exported
    from inlaid.plugins.contract import Exporter as Exporter
    from inlaid.plugins.contract import Form as Form
    from inlaid.plugins.contract import Link as Link
    from inlaid.plugins.contract import OpRule as OpRule
    from inlaid.plugins.contract import Phase as Phase
    from inlaid.plugins.contract import Region as Region
    from inlaid.plugins.contract import Reject as Reject
    from inlaid.plugins.contract import Requantization as Requantization
    from inlaid.plugins.contract import Scratch as Scratch
    from inlaid.plugins.contract import StaticMemory as StaticMemory
    from inlaid.plugins.contract import Threads as Threads
    from inlaid.plugins.contract import Tiles as Tiles
    from inlaid.plugins.contract import Tolerance as Tolerance
    from inlaid.plugins.contract import Verdict as Verdict
    from inlaid.plugins.costs import CostConstants as CostConstants
    from inlaid.plugins.frontend import Frontend as Frontend
    from inlaid.plugins.frontend import ModelSource as ModelSource
    from inlaid.plugins.target_spec import Level as Level
    from inlaid.plugins.target_spec import TargetSpec as TargetSpec
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
    from inlaid_runtime.types import MemoryScope as MemoryScope

_NAMES = {
    **run_half.NAMES,
    "inlaid.plugins.contract": (
        "Accept",
        "AcceptIf",
        "Border",
        "Borders",
        "Capabilities",
        "Codegen",
        "CompileContext",
        "Conformance",
        "Core",
        "ExpectedFailure",
        "Exported",
        "Exporter",
        "Form",
        "Link",
        "OpRule",
        "Phase",
        "Requantization",
        "Region",
        "Reject",
        "Scratch",
        "StaticMemory",
        "Threads",
        "Tiles",
        "Tolerance",
        "Verdict",
    ),
    "inlaid.plugins.costs": ("CostConstants",),
    "inlaid.plugins.frontend": ("Frontend", "ModelSource"),
    "inlaid.plugins.target_spec": ("Level", "TargetSpec"),
    "inlaid_runtime.types": ("MemoryScope",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_HOMES]

if not TYPE_CHECKING:  # type checkers know the names above, and report others

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'inlaid.plugins' has no attribute {name!r}")
        attribute = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return attribute


def __dir__() -> list[str]:
    return sorted(__all__)
