"""Hooks of a plugin's run module.

A run module imports only the standard library and `inlaid_runtime`; its hooks import the vendor libraries that they need. An
implementation of a hook may omit parameters that it does not use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from inlaid_runtime.plugins.runtime_module import RuntimeModule
    from inlaid_runtime.plugins.target import DeviceStatus, RuntimeSpec, Target

GROUP = "inlaid.runtimes"
"""Group of the entry points that name run modules."""
PROJECT = "inlaid"
"""Project name of pluggy's markers, in both halves of the contract."""
COMPILE_HOOK = "inlaid_targets"
"""Hook of every compile module. A module that has it may be the run module as well, where the compiler is installed."""
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def inlaid_runtimes() -> Sequence[RuntimeSpec]:
    """Declare the target kinds that this plugin runs. Called at discovery, so it must be cheap."""
    raise AssertionError


@hookspec
def inlaid_runtime(target: Target, device: int) -> RuntimeModule:
    """Create the runtime module for device number `device`, 0 by default. Called only for the plugin's own targets. Raises
    `TargetError` if regions use device memory and this machine has no device of the number."""
    raise AssertionError


@hookspec
def inlaid_probe(target: Target) -> DeviceStatus:
    """Report whether the target can run here. Called only for the plugin's own targets; must not raise."""
    raise AssertionError
