"""Hooks of the run half of the microcontroller plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_microcontroller.options import MicrocontrollerOptions
from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, Target, hookimpl

if TYPE_CHECKING:
    from inlaid_microcontroller.runtime import MicrocontrollerRuntime

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target microcontroller."""
    return [RuntimeSpec("microcontroller", MicrocontrollerOptions)]


@hookimpl
def inlaid_runtime(target: Target) -> MicrocontrollerRuntime:
    """Create the runtime module."""
    from inlaid_microcontroller.runtime import MicrocontrollerRuntime

    return MicrocontrollerRuntime(target.options)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Report whether this machine has the tools to run models."""
    from inlaid_microcontroller.runtime import probe

    return probe(target.options)
