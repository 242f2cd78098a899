"""Typed access to the plugins in use, with hooks routed to the plugin that owns a target."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from inlaid_runtime import plugins
from inlaid_runtime.errors import InlaidError, PluginError, TargetError, suggestion
from inlaid_runtime.plugins import hookspecs
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.plugins.discovery import (
    DISABLED,
    Discovery,
    DiscoveryResult,
    PluginInfo,
    PluginProblem,
    call,
    declared_kinds,
    expect,
)
from inlaid_runtime.plugins.entry_points import EntryPoint, InstalledEntryPoint, installed
from inlaid_runtime.plugins.target import DeviceStatus, RuntimeSpec, Target, TargetKind, parse_options

if TYPE_CHECKING:
    import pluggy

    from inlaid_runtime.plugins.runtime_module import RuntimeModule

Kind = TypeVar("Kind", bound=TargetKind)


class Registry(Generic[Kind]):
    """Plugins in use of one entry-point group. Immutable. `entry_points` includes unusable plugins."""

    def __init__(self, discovery: DiscoveryResult[Kind], entry_points: Sequence[EntryPoint]) -> None:
        self._manager = discovery.manager
        self._plugins = discovery.plugins
        self._specs = discovery.specs
        self.entry_points = tuple(entry_points)

    def plugins(self) -> tuple[PluginInfo, ...]:
        """Return all plugins by name; unusable ones have a `problem`."""
        return self._plugins

    def problems(self) -> tuple[PluginProblem, ...]:
        """Return the reasons why plugins are not in use, by plugin name."""
        return tuple(info.problem for info in self._plugins if info.problem is not None)

    def kinds(self) -> tuple[str, ...]:
        """Return the usable target kinds, sorted."""
        return tuple(sorted(self._specs))

    def spec(self, kind: str) -> Kind:
        """Return the declaration of a target kind. Raises `TargetError` if no usable plugin provides it."""
        return self._owned(kind)[1]

    def owner(self, kind: str) -> str:
        """Return the name of the plugin that provides a target kind. Raises `TargetError` if none does."""
        return self._owned(kind)[0]

    def module(self, plugin: str) -> str:
        """Return the module name of a plugin in use."""
        return cast("str", getattr(self._manager.get_plugin(plugin), "__name__", ""))

    def modules(self, group: str) -> dict[str, str]:
        """Return the module names of all plugins of a group of entry points, by plugin name. Includes plugins that failed to load,
        which another process must discover too."""
        broken = {problem.plugin for problem in self.problems() if problem.stage != "disabled"}
        points = (point for point in self.entry_points if point.group == group and point.name in broken)
        return {point.name: point.value for point in points} | {
            info.name: self.module(info.name) for info in self._plugins if info.problem is None
        }

    def target(self, text: str) -> Target:
        """Parse a target string such as `x86` or `x86:threads=1`. Raises `TargetError`, which lists installed targets, broken
        plugins with reasons, and targets that can be installed."""
        return parse_options(text, self.spec(text.partition(":")[0]))

    def ask(self, plugin: str, hook: str, **arguments: object) -> object:
        """Call a plugin's implementation of a hook, without checking the result. Returns None if the plugin lacks the hook. Raises
        `PluginError`."""
        return call(self._manager, plugin, hook, **arguments)

    def folder(self, plugin: str) -> Path | None:
        """Return the folder of the package that contains a plugin's module; None if it does not consist of files."""
        name = self.module(plugin).partition(".")[0]
        file = getattr(sys.modules.get(name), "__file__", None)
        return None if file is None or Path(file).name != "__init__.py" else Path(file).parent

    def ask_owner(self, hook: str, answer_type: type, package: str, *, target: Target, **arguments: object) -> object:
        """Call a hook of the plugin that provides a target. Raises `PluginError` if the answer is None or not an instance of
        `answer_type`. `package` is the package that exports `answer_type`, for the message."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, hook, target=target, **arguments)
        if answer is None:
            raise PluginError(
                f"target {target.kind} has no {hook.removeprefix('inlaid_')}: {hook} is missing or returns None", plugin=owner
            )
        if not isinstance(answer, answer_type):
            raise PluginError(
                f"{hook} must return a {answer_type.__name__}, got {type(answer).__name__}",
                plugin=owner,
                remedy=f"derive its class from {package}.{answer_type.__name__}",
            )
        return answer

    def _owned(self, kind: str) -> tuple[str, Kind]:
        owned = self._specs.get(kind)
        if owned is None:
            raise self._unknown(kind)
        return owned

    def _unknown(self, kind: str) -> TargetError:
        facts = [f"installed: {', '.join(self.kinds()) or 'none'}"]
        facts += [f"unusable: {problem.plugin} ({problem.stage}: {problem.message})" for problem in self.problems()]
        extra_names = sorted(extras() - set(self._specs))
        broken = {problem.plugin: problem for problem in self.problems()}
        if kind in broken and broken[kind].stage == "disabled":
            hint = f"unset {DISABLED}, or remove {kind} from it"
        elif kind in extra_names:
            hint = (
                f'pip install "inlaid[{kind}]"'
                if kind not in broken
                else f'repair it or reinstall it: pip install "inlaid[{kind}]"'
            )
        elif extra_names:
            hint = "to install more targets: " + " or ".join(f'pip install "inlaid[{extra}]"' for extra in extra_names)
        else:
            hint = 'to install reference: pip install inlaid; other targets: pip install "inlaid[<extra>]", or a vendor\'s plugin'
        return TargetError(f"no target {kind!r} is installed{suggestion(kind, self.kinds())}", remedy="; ".join([*facts, hint]))


class RuntimeRegistry(Registry[RuntimeSpec]):
    """Run modules of the plugins in use; create one with `discover`."""

    @classmethod
    def discover(cls, entry_points: Iterable[EntryPoint] | None = None) -> RuntimeRegistry:
        """Load the given run modules, or all installed ones. One that fails is recorded in `problems`, not raised."""
        points = tuple(installed(hookspecs.GROUP) if entry_points is None else entry_points)
        discovery = Discovery([hookspecs], hookspecs.COMPILE_HOOK)
        discovery.load(points)
        declared = discovery.declared(_declared_runtimes)
        specs = discovery.kinds(declared)
        infos = discovery.infos({name: [spec.kind for spec in kinds] for name, kinds in declared.items()}, {})
        return cls(DiscoveryResult(discovery.manager, infos, specs), points)

    @classmethod
    def from_modules(cls, modules: Mapping[str, str]) -> RuntimeRegistry:
        """Discover the run modules of another process, given by plugin name."""
        return cls.discover(InstalledEntryPoint(name, module, hookspecs.GROUP) for name, module in modules.items())

    def runtime(self, target: Target, device: int = 0) -> RuntimeModule:
        """Create the target's runtime module for device number `device`. Raises `PluginError` if the plugin has none."""
        answer = self.ask_owner("inlaid_runtime", plugins.RuntimeModule, "inlaid_runtime.plugins", target=target, device=device)
        return cast("RuntimeModule", answer)

    def probe(self, target: Target) -> DeviceStatus:
        """Query whether the target can run here: it counts as available if the plugin lacks the hook, unavailable if the hook fails
        or no plugin runs the target."""
        try:
            owner = self.owner(target.kind)
            answer = self.ask(owner, "inlaid_probe", target=target)
            return (
                DeviceStatus(True) if answer is None else cast("DeviceStatus", expect(answer, DeviceStatus, owner, "inlaid_probe"))
            )
        except InlaidError as error:
            return DeviceStatus(False, str(error))


@functools.cache
def default_registry() -> RuntimeRegistry:
    """Return the registry of all installed run modules, discovered once per process."""
    return RuntimeRegistry.discover()


def _declared_runtimes(manager: pluggy.PluginManager, plugin: str) -> tuple[RuntimeSpec, ...]:
    """Return the kinds that a plugin runs; for a module of both halves without `inlaid_runtimes`, those that it compiles for."""
    module = manager.get_plugin(plugin)
    if hasattr(module, "inlaid_runtimes"):
        return declared_kinds(manager, plugin, "inlaid_runtimes", RuntimeSpec)
    declare_targets = getattr(module, hookspecs.COMPILE_HOOK, tuple)
    with blame(plugin, hookspecs.COMPILE_HOOK):
        return tuple(RuntimeSpec(spec.kind, spec.options) for spec in declare_targets())


def extras() -> set[str]:
    """Return the extras of the installed compiler that install a target."""
    import importlib.metadata

    try:
        facts = importlib.metadata.metadata("inlaid")
    except importlib.metadata.PackageNotFoundError:
        return set()
    requirements = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in facts.get_all("Requires-Dist") or ()]
    return {
        extra.replace("-", "_")
        for extra in facts.get_all("Provides-Extra") or ()
        if f"inlaid-{extra.replace('_', '-')}" in requirements
    }
