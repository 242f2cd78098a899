"""Hooks of the run half. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid_runtime.plugins import RuntimeSpec, hookimpl
from inlaid_x86_runtime.options import X86Options

if TYPE_CHECKING:
    from inlaid_runtime.plugins import DeviceStatus, Target
    from inlaid_x86_runtime.runtime import X86Runtime

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target x86."""
    return [RuntimeSpec("x86", X86Options)]


@hookimpl
def inlaid_runtime(target: Target) -> X86Runtime:
    """Create the runtime module."""
    from inlaid_x86_runtime.runtime import X86Runtime

    return X86Runtime(target.options)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Report whether this machine runs Linux on x86-64."""
    from inlaid_x86_runtime.cpu import probe

    return probe()
