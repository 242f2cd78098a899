"""Typed access to the plugins in use, with hooks routed to the plugin that owns a target.

Imports no compiler package, so that programs that only run packages can use it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from inlaid import plugins
from inlaid.errors import InlaidError, PluginError, TargetError, suggestion
from inlaid.plugins import hookspecs
from inlaid.plugins.blame import blame
from inlaid.plugins.discovery import DISABLED, Found, PluginInfo, Problem, call, discover, expect, sequence
from inlaid.plugins.entry_points import EntryPoint, installed
from inlaid.plugins.frontend import Frontend
from inlaid.plugins.target import DeviceStatus, Target, TargetSpec, parse_options

if TYPE_CHECKING:
    from inlaid.plugins.contract import Capabilities, Codegen, Conformance, Exporter, OpRule, Phase
    from inlaid.plugins.runtime_module import RuntimeModule
    from inlaid.schedules.rule import ScheduleRule
    from inlaid.tensor.primitives import TensorIntrin

LEAST_REGISTERS = 4
"""Least number of vector registers of a target with vectors: schedules hold accumulators, operands and a broadcast element in
registers."""


class PluginRegistry:
    """Registry of the plugins in use. Immutable; create one with `discover`. `entry_points` includes unusable plugins."""

    def __init__(self, found: Found, entry_points: Sequence[EntryPoint]) -> None:
        self._manager = found.manager
        self._plugins = found.plugins
        self._specs = found.specs
        self._frontends = found.frontends
        self.entry_points = tuple(entry_points)

    @classmethod
    def discover(cls, entry_points: Iterable[EntryPoint] | None = None) -> PluginRegistry:
        """Load the given plugins, or all installed ones. A plugin that fails is recorded in `problems`, not raised."""
        if entry_points is None:
            entry_points = installed(hookspecs.GROUP)
        points = tuple(entry_points)
        return cls(discover(points), points)

    # --- facts ------------------------------------------------------------------------------------------------------------

    def plugins(self) -> tuple[PluginInfo, ...]:
        """Return all plugins by name; unusable ones have a `problem`."""
        return self._plugins

    def problems(self) -> tuple[Problem, ...]:
        """Return the reasons why plugins are not in use, by plugin name."""
        return tuple(info.problem for info in self._plugins if info.problem is not None)

    def kinds(self) -> tuple[str, ...]:
        """Return the usable target kinds, sorted."""
        return tuple(sorted(self._specs))

    def spec(self, kind: str) -> TargetSpec:
        """Return the declaration of a target kind. Raises `TargetError` if no usable plugin provides it."""
        return self._owned(kind)[1]

    def owner(self, kind: str) -> str:
        """Return the name of the plugin that provides a target kind. Raises `TargetError` if none does."""
        return self._owned(kind)[0]

    def module(self, plugin: str) -> str:
        """Return the module name of a plugin in use."""
        return cast("str", getattr(self._manager.get_plugin(plugin), "__name__", ""))

    def modules(self) -> dict[str, str]:
        """Return the module names of all plugins, by plugin name. Includes plugins that failed to load, which another process must
        discover too."""
        broken = {problem.plugin for problem in self.problems() if problem.stage != "disabled"}
        return {point.name: point.value for point in self.entry_points if point.name in broken} | {
            info.name: self.module(info.name) for info in self._plugins if info.problem is None
        }

    def target(self, text: str) -> Target:
        """Parse a target string such as `x86` or `x86:threads=1`. Raises `TargetError`, which lists installed targets, broken
        plugins with reasons, and targets that can be installed."""
        return parse_options(text, self.spec(text.partition(":")[0]))

    def capabilities(self, target: Target) -> Capabilities:
        """Return the capabilities of a target. Raises `PluginError` if its plugin fails, or declares too few vector registers for a
        tile of one row and one column, or accumulators of less than two bits."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "capabilities"):
            result = spec.capabilities(target.options)
        found = cast("Capabilities", expect(result, plugins.Capabilities, owner, "capabilities"))
        if found.vector_bits and found.vector_registers < LEAST_REGISTERS:
            problem = f"expected at least {LEAST_REGISTERS} vector registers, got {found.vector_registers}"
            raise PluginError(f"capabilities: {problem}", plugin=owner, remedy="give vector_registers, or vector_bits=0")
        if found.quantisation.accumulator_bits < 2:
            problem = f"expected accumulators of at least 2 bits, got {found.quantisation.accumulator_bits}"
            raise PluginError(f"capabilities: {problem}", plugin=owner, remedy="give Quantisation.accumulator_bits, 32 by default")
        return found

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """Value of `sources` at the first access: the hash of the sources that this process has loaded."""
        return self.sources()

    def sources(self) -> str | None:
        """Hash of the current sources of Inlaid and of the plugins in use, which identifies the compiler. None if a plugin does not
        consist of files."""
        from inlaid.cache import Hashes, caches, digest

        known = Hashes(caches().hashes)
        core = Path(__file__).parents[1]
        hashes = {core: known.tree(core)}
        parts = [sys.version, hashes[core]]
        for info in self._plugins:
            if info.problem is None:
                folder = _folder(self._manager.get_plugin(info.name))
                if folder is None:
                    return None
                if folder not in hashes:
                    hashes[folder] = known.tree(folder)
                parts += [info.name, info.version, hashes[folder]]
        return digest(*parts)

    def surroundings(self, target: Target) -> str:
        """Return the state that generated code depends on besides options and sources. Raises `PluginError` if the plugin fails."""
        owner, spec = self._owned(target.kind)
        spec.check_compiles()
        with blame(owner, "surroundings"):
            result = spec.surroundings(target.options)
        return cast("str", expect(result, str, owner, "surroundings"))

    def versions(self, target: Target) -> tuple[Target, ...]:
        """Return the targets for which a region of `target` contains code, the least demanding first. Raises `PluginError` if the
        plugin returns none, or fails."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "versions"):
            found = sequence(spec.versions(target.options), spec.options, owner, "versions")
            if not found:
                raise PluginError(f"expected at least one version of target {target}, got none")
        return tuple(Target(target.kind, options) for options in found)

    def frontends(self) -> tuple[tuple[str, Frontend], ...]:
        """Return all frontends with their plugins' names: the core's first, then by plugin name."""
        return tuple(self._frontends.values())

    # --- hooks of the plugin that owns the target -------------------------------------------------------------------------

    def codegen(self, target: Target) -> Codegen:
        """Create the target's code generator. Raises `TargetError` if a module needed to compile is not installed, and
        `PluginError` if the plugin provides no code generator. `Unsupported` from the plugin passes through."""
        self.spec(target.kind).check_compiles()
        return cast("Codegen", self._ask_owner("inlaid_codegen", plugins.Codegen, target=target))

    def runtime(self, target: Target, device: int = 0) -> RuntimeModule:
        """Create the target's runtime module for device number `device`. Raises `PluginError` if the plugin has none."""
        return cast("RuntimeModule", self._ask_owner("inlaid_runtime", plugins.RuntimeModule, target=target, device=device))

    def exporter(self, target: Target) -> Exporter | None:
        """Create the target's exporter; returns None if the plugin has none."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, "inlaid_exporter", target=target)
        if answer is not None and not callable(getattr(answer, "export", None)):
            found = type(answer).__name__
            raise PluginError(f"inlaid_exporter must return an object with a method export, got {found}", plugin=owner)
        return cast("Exporter | None", answer)

    def probe(self, target: Target) -> DeviceStatus:
        """Query whether the target can run here: it counts as available if the plugin lacks the hook, unavailable if the hook
        fails."""
        owner = self.owner(target.kind)
        try:
            answer = self.ask(owner, "inlaid_probe", target=target)
            return (
                DeviceStatus(True) if answer is None else cast("DeviceStatus", expect(answer, DeviceStatus, owner, "inlaid_probe"))
            )
        except InlaidError as error:
            return DeviceStatus(False, str(error))

    def intrinsics(self, target: Target) -> tuple[TensorIntrin, ...]:
        """Return the tensor intrinsics that the target's code generator can emit; none if the plugin lacks the hook."""
        owner = self.owner(target.kind)
        self.spec(target.kind).check_compiles()
        return sequence(self.ask(owner, "inlaid_intrinsics", target=target), object, owner, "inlaid_intrinsics")

    def conformance(self, target: Target) -> Conformance:
        """Return the target's declarations for the conformance suite; the defaults if the plugin lacks the hook."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, "inlaid_conformance", target=target)
        if answer is None:
            return plugins.Conformance()
        return cast("Conformance", expect(answer, plugins.Conformance, owner, "inlaid_conformance"))

    # --- hooks of all plugins ----------------------------------------------------------------------------------------------

    def op_rules(self, target: Target, check: Callable[[OpRule], None] = lambda rule: None) -> tuple[OpRule, ...]:
        """Return the operator rules and composite patterns for a target: the owner's first, then by plugin name. `check` raises for
        a rule that cannot be used; the error names its plugin."""
        found: list[OpRule] = []
        for plugin, rules in self._answers("inlaid_op_rules", plugins.OpRule, target=target):
            with blame(plugin, "inlaid_op_rules"):
                for rule in rules:
                    check(rule)
            found.extend(rules)
        return tuple(found)

    def passes(self, target: Target, phase: Phase) -> tuple[Any, ...]:
        """Return passes for a target and phase, the owner's first."""
        return self._collect("inlaid_passes", object, target=target, phase=phase)

    def schedules(self, target: Target) -> tuple[ScheduleRule, ...]:
        """Return the schedule rules for a target, the owner's first."""
        return self._collect("inlaid_schedules", object, target=target)

    # --- routing ----------------------------------------------------------------------------------------------------------

    def _owned(self, kind: str) -> tuple[str, TargetSpec]:
        found = self._specs.get(kind)
        if found is None:
            raise self._unknown(kind)
        return found

    def _ask_owner(self, hook: str, wanted: type, *, target: Target, **arguments: object) -> object:
        owner = self.owner(target.kind)
        answer = self.ask(owner, hook, target=target, **arguments)
        if answer is None:
            raise PluginError(
                f"target {target.kind} has no {hook.removeprefix('inlaid_')}: {hook} is missing or returns None", plugin=owner
            )
        if not isinstance(answer, wanted):
            raise PluginError(
                f"{hook} must return a {wanted.__name__}, got {type(answer).__name__}",
                plugin=owner,
                remedy=f"derive its class from inlaid.plugins.{wanted.__name__}",
            )
        return answer

    def _collect(self, hook: str, element: type, *, target: Target, **arguments: object) -> tuple[Any, ...]:
        return tuple(item for _, answer in self._answers(hook, element, target=target, **arguments) for item in answer)

    def _answers(self, hook: str, element: type, *, target: Target, **arguments: object) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield each plugin's answer to a hook, with its name: the owner's first, then by name."""
        owner, spec = self._owned(target.kind)
        spec.check_compiles()
        others = sorted(info.name for info in self._plugins if info.problem is None and info.name != owner)
        for plugin in (owner, *others):
            yield plugin, sequence(self.ask(plugin, hook, target=target, **arguments), element, plugin, hook)

    def ask(self, plugin: str, hook: str, **arguments: object) -> object:
        """Call a plugin's implementation of a hook, without checking the result. Returns None if the plugin lacks the hook. Raises
        `PluginError`."""
        return call(self._manager, plugin, hook, **arguments)

    def _unknown(self, kind: str) -> TargetError:
        facts = [f"installed: {', '.join(self.kinds()) or 'none'}"]
        facts += [f"unusable: {problem.plugin} ({problem.stage}: {problem.message})" for problem in self.problems()]
        extras = sorted(_extras() - set(self._specs))
        broken = {problem.plugin: problem for problem in self.problems()}
        if kind in broken and broken[kind].stage == "disabled":
            hint = f"unset {DISABLED}, or remove {kind} from it"
        elif kind in extras:
            hint = (
                f'pip install "inlaid[{kind}]"'
                if kind not in broken
                else f'repair it or reinstall it: pip install "inlaid[{kind}]"'
            )
        elif extras:
            hint = "to install more targets: " + " or ".join(f'pip install "inlaid[{extra}]"' for extra in extras)
        else:
            hint = 'to install reference: pip install inlaid; other targets: pip install "inlaid[<extra>]", or a vendor\'s plugin'
        return TargetError(f"no target {kind!r} is installed{suggestion(kind, self.kinds())}", remedy="; ".join([*facts, hint]))


@functools.cache
def default_registry() -> PluginRegistry:
    """Return the registry of all installed plugins, discovered once per process."""
    return PluginRegistry.discover()


def _folder(plugin: object) -> Path | None:
    """Return the folder of the package that contains a plugin's module."""
    name = getattr(plugin, "__name__", "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if file is None or Path(file).name != "__init__.py" else Path(file).parent


def _extras() -> set[str]:
    """Return the extras of the installed core that install a target."""
    import importlib.metadata

    try:
        facts = importlib.metadata.metadata("inlaid")
    except importlib.metadata.PackageNotFoundError:
        return set()
    needed = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in facts.get_all("Requires-Dist") or ()]
    return {
        extra.replace("-", "_") for extra in facts.get_all("Provides-Extra") or () if f"inlaid-{extra.replace('_', '-')}" in needed
    }
