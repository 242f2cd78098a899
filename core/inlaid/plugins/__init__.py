"""The plugin contract: all that a plugin's module imports from Inlaid.

A plugin is a module that an entry point of group `inlaid.plugins` names. It states `PLUGIN_API_VERSION = 2`, marks the hooks it
implements (see `inlaid.plugins.hookspecs`) with `hookimpl`, and imports its own heavy libraries inside them.
"""

from inlaid.artifact import ALIGNMENT, Artifact, DimSource, KernelInfo, Signature, TensorSpec
from inlaid.plugins.contract import (
    Accept,
    AcceptIf,
    Border,
    Borders,
    Capabilities,
    Codegen,
    CompileContext,
    Conformance,
    DeviceStatus,
    ExpectedFailure,
    Exported,
    Exporter,
    Level,
    Link,
    NoOptions,
    OpRule,
    Phase,
    Quantisation,
    Region,
    Reject,
    StaticMemory,
    Target,
    TargetSpec,
    Tolerance,
    Verdict,
)
from inlaid.plugins.device import Device, DeviceKernel, DeviceTensor, MemoryFacts
from inlaid.plugins.hookspecs import hookimpl
from inlaid.plugins.runtime_module import AllocatingKernel, Kernel, KernelTime, Loaded, RuntimeModule
from inlaid.types import MemoryScope

__all__ = [
    "ALIGNMENT",
    "Accept",
    "AcceptIf",
    "AllocatingKernel",
    "Artifact",
    "Border",
    "Borders",
    "Capabilities",
    "Codegen",
    "CompileContext",
    "Conformance",
    "Device",
    "DeviceKernel",
    "DeviceStatus",
    "DeviceTensor",
    "DimSource",
    "ExpectedFailure",
    "Exported",
    "Exporter",
    "Kernel",
    "KernelInfo",
    "KernelTime",
    "Level",
    "Link",
    "Loaded",
    "MemoryFacts",
    "MemoryScope",
    "NoOptions",
    "OpRule",
    "Phase",
    "Quantisation",
    "Region",
    "Reject",
    "RuntimeModule",
    "Signature",
    "StaticMemory",
    "Target",
    "TargetSpec",
    "TensorSpec",
    "Tolerance",
    "Verdict",
    "hookimpl",
]
