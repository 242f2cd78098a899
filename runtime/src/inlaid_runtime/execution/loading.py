"""Loading of the regions of a package, on the devices of their targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.plan import Invoke
from inlaid_runtime.errors import PluginError, TargetError, Unsupported
from inlaid_runtime.execution.arrays import usable
from inlaid_runtime.execution.device_memory import DeviceMemory
from inlaid_runtime.execution.invoked import LoadedRegion
from inlaid_runtime.execution.package import Package
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.plugins.runtime_module import Loaded, RuntimeModule, Runtimes


def aligned(package: Package) -> Package:
    """Align the constants so that kernels can read them in place."""
    # Arrays shared by several versions of a region are copied once.
    aligned_arrays: dict[int, np.ndarray[Any, Any]] = {}

    def aligned_constants(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        for array in arrays.values():
            if id(array) not in aligned_arrays:
                aligned_arrays[id(array)] = usable(array)
        return {name: aligned_arrays[id(array)] for name, array in arrays.items()}

    def with_aligned_constants(artifact: Artifact) -> Artifact:
        return dataclasses.replace(
            artifact,
            constants=aligned_constants(artifact.constants),
            variants=tuple(map(with_aligned_constants, artifact.variants)),
        )

    return dataclasses.replace(
        package, artifacts=tuple(map(with_aligned_constants, package.artifacts)), weights=aligned_constants(package.weights)
    )


def fitting(artifact: Artifact, module: RuntimeModule) -> tuple[Artifact, str | None]:
    """Return the version of a region to load: the first variant that the runtime accepts, otherwise `artifact`. Also returns the
    reason if the runtime rejects `artifact` too."""
    best = next((variant for variant in artifact.variants if module.check(variant) is None), None)
    return (artifact, module.check(artifact)) if best is None else (best, None)


def load_regions(
    package: Package, registry: Runtimes, devices: Mapping[str, int]
) -> tuple[dict[str, LoadedRegion], dict[str, DeviceMemory]]:
    """Load the regions, and open the devices of their targets. Returns both by name."""
    region_infos = {info.symbol: info for info in package.program.regions}
    runtimes: dict[str, RuntimeModule] = {}
    memories: dict[str, DeviceMemory] = {}
    targets: set[str] = set()
    loaded: dict[str, LoadedRegion] = {}
    on_device = _on_device(package)
    for artifact in package.artifacts:
        info = region_infos[artifact.symbol]
        module = runtimes.get(info.target)
        target = registry.target(info.target)
        owner = registry.owner(target.kind)
        if module is None:
            targets |= {target.kind, info.target}
            number = devices.get(info.target, devices.get(target.kind, 0))
            module = runtimes[info.target] = registry.runtime(target, number)
        with blame(owner, "the check of the runtime", artifact.symbol, info.nodes):
            artifact, reason = fitting(artifact, module)
        if reason is not None:
            raise Unsupported(f"region {artifact.symbol} cannot run on {info.target} here: {reason}")
        scopes = [scope for scope in artifact.workspace if scope]
        if scopes:
            raise Unsupported(
                f"region {artifact.symbol} needs a workspace in scope {scopes[0]!r}, but only main memory is supported"
            )
        with blame(owner, "loading", artifact.symbol, info.nodes):
            loaded_region = module.load(artifact, artifact.constants)
            if not isinstance(loaded_region, Loaded):
                raise PluginError(
                    f"the runtime of {info.target} must return a Loaded from load(), got {type(loaded_region).__name__}",
                    remedy="return inlaid_runtime.plugins.Loaded(kernel)",
                )
            if (artifact.symbol in on_device) != (loaded_region.launching is not None):
                raise PluginError(
                    f"{info.target} loads regions that use {'host' if loaded_region.launching is None else 'device'} memory",
                    remedy="set Capabilities.device_memory accordingly",
                )
            if loaded_region.launching is not None and info.target not in memories:
                memories[info.target] = _memory(module, info.target, owner)
            loaded[artifact.symbol] = LoadedRegion(artifact, info, owner, loaded_region)
    unused = sorted(set(devices) - targets)
    if unused:
        raise TargetError(f"devices names {unused[0]}, but no region runs on it", remedy=f"targets: {sorted(targets)}")
    for plan in package.program.plans.values():
        for device, memory in memories.items():
            names = {value.name for value in plan.values if value.storage == "constant" and value.device == device}
            memory.hold({name: package.weights[name] for name in sorted(names - memory.weights.keys())})
    return loaded, memories


def _on_device(package: Package) -> frozenset[str]:
    """Return the regions whose values are in device memory."""
    return frozenset(
        item.symbol
        for plan in package.program.plans.values()
        for item in plan.instructions
        if isinstance(item, Invoke) and any(plan.values[number].device for number in (*item.inputs, *item.outputs))
    )


def _memory(module: RuntimeModule, target: str, owner: str) -> DeviceMemory:
    device = module.device()
    if device is None:
        raise PluginError(f"the runtime of {target} launches kernels, but has no device", remedy="return it from device()")
    return DeviceMemory(device, target, owner)
