"""Hooks of the run half of the reference target. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, Target, hookimpl

if TYPE_CHECKING:
    from inlaid.reference.runtime import ReferenceRuntime

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target reference."""
    return [RuntimeSpec("reference")]


@hookimpl
def inlaid_runtime(target: Target) -> ReferenceRuntime:
    """Create the runtime module."""
    from inlaid.reference.runtime import ReferenceRuntime

    return ReferenceRuntime()


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Report the target as available."""
    import numpy as np

    return DeviceStatus(True, f"numpy {np.__version__}")
