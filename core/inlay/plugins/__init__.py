"""The plugin contract: all that a plugin's module imports from Inlay.

A plugin is a module that an entry point of group `inlay.plugins` names. It states `PLUGIN_API_VERSION = 1`, marks the hooks it
implements (see `inlay.plugins.hookspecs`) with `hookimpl`, and imports its own heavy libraries inside them.
"""

from inlay.artifact import ALIGNMENT, Artifact, DimSource, KernelInfo, Signature, TensorSpec
from inlay.plugins.contract import (
    Accept,
    AcceptIf,
    AllocatingKernel,
    Capabilities,
    Codegen,
    CompileContext,
    Conformance,
    DeviceStatus,
    ExpectedFailure,
    Kernel,
    KernelTime,
    Level,
    Link,
    NoOptions,
    OpRule,
    Phase,
    ProfilingKernel,
    Quantisation,
    Region,
    Reject,
    RuntimeModule,
    Target,
    TargetSpec,
    Tolerance,
    Verdict,
)
from inlay.plugins.hookspecs import hookimpl
from inlay.types import MemoryScope

__all__ = [
    "ALIGNMENT",
    "Accept",
    "AcceptIf",
    "AllocatingKernel",
    "Artifact",
    "Capabilities",
    "Codegen",
    "CompileContext",
    "Conformance",
    "DeviceStatus",
    "DimSource",
    "ExpectedFailure",
    "Kernel",
    "KernelInfo",
    "KernelTime",
    "Level",
    "Link",
    "MemoryScope",
    "NoOptions",
    "OpRule",
    "Phase",
    "ProfilingKernel",
    "Quantisation",
    "Region",
    "Reject",
    "RuntimeModule",
    "Signature",
    "Target",
    "TargetSpec",
    "TensorSpec",
    "Tolerance",
    "Verdict",
    "hookimpl",
]
