"""Level 1: the plugin is discovered, loads lazily, and does not interfere with other plugins."""

from __future__ import annotations

import ast
import importlib
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from inlaid.plugins import Capabilities, DeviceStatus, Phase
from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry
from inlaid_conformance import fresh, other_plugin
from inlaid_conformance.case import BINDING, Case, Failed
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.plugins.target import PLUGIN_API_VERSION
from inlaid_runtime.types import DTYPES

MAX_STEPS = 16
"""The greatest integer tolerance that still makes 8-bit comparisons meaningful."""

VOCABULARY = ("plugins", "errors", "arith", "types", "artifact", "cache", "cores", "records", "settings")
"""Packages of the compiler and of the runtime that a plugin's modules may import."""


def loads(tested: TargetUnderTest) -> None:
    """Check that the plugin is in use: it imports, states the contract version, spells hooks correctly, and owns its targets."""
    if tested.problem is not None:
        raise Failed(tested.problem)


def loads_lazily(tested: TargetUnderTest) -> None:
    """Check that the compile module and the run module, with their declarations of targets, import only the standard library, the
    plugin, and the contract: `inlaid.plugins` and `inlaid_runtime.plugins`, of which the run module imports the second alone."""
    for module, packages in _modules(tested).items():
        imported_names = fresh.ask("imports", tested.registry.plugin_modules(), module=module)
        plugin_packages = [other.partition(".")[0] for other in _modules(tested) if not _within(other, "inlaid")]
        forbidden = [name for name in imported_names if not _is_allowed(name, module, packages, plugin_packages)]
        if forbidden:
            groups = list(dict.fromkeys(_group(name) for name in forbidden))
            raise Failed(f"{module} imports {', '.join(groups[:5])} at load time: import them inside the hooks that need them")


def _modules(tested: TargetUnderTest) -> dict[str, Sequence[str]]:
    """Return the compile module and the run module, each with the packages of Inlaid that it may import."""
    runtimes, kind = tested.registry.runtimes, tested.target.kind
    run = {runtimes.module(runtimes.owner(kind)): ("inlaid_runtime",)} if kind in runtimes.kinds() else {}
    return {**run, tested.registry.module(tested.plugin): ("inlaid", "inlaid_runtime")}


def _is_allowed(name: str, module: str, packages: Sequence[str], plugin_packages: Sequence[str]) -> bool:
    top, _, rest = name.partition(".")
    if top in packages and rest.partition(".")[0] in ("", *VOCABULARY):
        return True
    return top in plugin_packages or top in sys.stdlib_module_names or _within(name, module.rpartition(".")[0])


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _group(name: str) -> str:
    return ".".join(name.split(".")[:2]) if name.startswith(("inlaid.", "inlaid_runtime.")) else name.partition(".")[0]


def states_its_version(tested: TargetUnderTest) -> None:
    """Check that `PLUGIN_API_VERSION` is a literal. An imported constant would declare compatibility with every version."""
    for name in _modules(tested):
        module = importlib.import_module(name)
        source = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        values = [
            statement.value
            for statement in source.body
            if isinstance(statement, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "PLUGIN_API_VERSION" for target in statement.targets)
        ]
        if not any(isinstance(value, ast.Constant) for value in values):
            raise Failed(f"{name} must define PLUGIN_API_VERSION = {PLUGIN_API_VERSION} as a literal")


def leaves_others_alone(tested: TargetUnderTest) -> None:
    """Check that the plugin has no rules, passes or schedules for the target of another plugin."""
    modules = {tested.plugin: tested.registry.module(tested.plugin), other_plugin.KIND: other_plugin.__name__}
    registry = PluginRegistry.from_modules({GROUP: modules})
    other_target = registry.target(other_plugin.KIND)
    answers = {
        "inlaid_op_rules": registry.op_rules(other_target),
        "inlaid_schedules": registry.schedules(other_target),
        **{f"inlaid_passes, {phase.value}": registry.passes(other_target, phase) for phase in Phase},
    }
    for hook, answer in answers.items():
        if answer:
            raise Failed(f"{hook} must return nothing for target {other_plugin.KIND!r} of another plugin, got {len(answer)} items")


def declares_targets(tested: TargetUnderTest) -> None:
    """Check that capabilities are equal in each call, with known element types and valid numbers, and that the target's string
    parses to the same target."""
    target, spec = tested.target, tested.registry.spec(tested.target.kind)
    parsed = tested.registry.target(str(target))
    if parsed != target:
        raise Failed(f"{target} parses as {parsed}: options must be numbers, bools and strings that round-trip")
    hash(target)
    first, second = spec.capabilities(target.options), spec.capabilities(parsed.options)
    if first != second:
        raise Failed("capabilities differ between calls: they must be a pure function of the options")
    _check_capabilities(first)
    if not spec.description:
        raise Failed("the target has no description")


def _check_capabilities(capabilities: Capabilities) -> None:
    unknown = [name for name in capabilities.dtypes if name not in DTYPES and name != "sequence"]
    if unknown or not capabilities.dtypes:
        raise Failed(f"unknown element types {', '.join(unknown)}" if unknown else "expected at least one element type, got none")
    figures = {"peak": capabilities.peak, "bandwidth": capabilities.bandwidth, "link.bandwidth": capabilities.link.bandwidth}
    invalid = [name for name, value in figures.items() if not value > 0]
    if invalid or capabilities.link.latency < 0 or capabilities.cores < 0:
        raise Failed(f"invalid {invalid[0] if invalid else 'latency or cores'} in the capabilities")


def probes(tested: TargetUnderTest) -> None:
    """Check that `inlaid_probe` does not raise, and gives a reason if the device is not available."""
    runtimes = tested.registry.runtimes
    status = runtimes.ask(runtimes.owner(tested.target.kind), "inlaid_probe", target=tested.target)
    if status is not None and not isinstance(status, DeviceStatus):
        raise Failed(f"inlaid_probe must return a DeviceStatus, got {type(status).__name__}")
    if status is not None and not status.available and not status.detail:
        raise Failed("inlaid_probe reports that the target cannot run here, without a reason")


def declares_tolerances(tested: TargetUnderTest) -> None:
    """Check that tolerances have known element types, are unique per element type and operator, and are not trivially wide. Check
    that expected failures have reasons, and are in levels that permit expected failures."""
    conformance = tested.conformance
    for item in conformance.tolerances:
        if item.dtype not in DTYPES:
            raise Failed(f"a tolerance has the unknown element type {item.dtype!r}")
        if not (0 <= item.relative < 1 and item.absolute >= 0 and math.isfinite(item.absolute)):
            raise Failed(f"{item} is too wide: expected 0 <= relative < 1 and a finite absolute")
        if item.steps and (not DTYPES[item.dtype].is_int or not 0 < item.steps <= MAX_STEPS or item.relative or item.absolute):
            raise Failed(f"{item} is invalid: steps are for integers only, from 1 to {MAX_STEPS}, without the other bounds")
    keys = [(item.dtype, item.operator) for item in conformance.tolerances]
    if len(set(keys)) < len(keys):
        raise Failed("two tolerances have the same element type and operator")
    for failure in conformance.expected_failures:
        if not failure.reason.strip():
            raise Failed(f"the expected failure {failure.check!r} has no reason")
        if failure.check.partition("/")[0] in BINDING:
            raise Failed(f"{failure.check!r} cannot be expected to fail: every plugin must pass the levels {', '.join(BINDING)}")


CASES = (
    Case("plugin", "loads", loads),
    Case("plugin", "loads-lazily", loads_lazily),
    Case("plugin", "states-its-version", states_its_version),
    Case("plugin", "leaves-others-alone", leaves_others_alone),
    Case("plugin", "declares-targets", declares_targets),
    Case("plugin", "probes", probes),
    Case("plugin", "declares-tolerances", declares_tolerances),
)
