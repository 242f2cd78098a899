"""Typed access to the plugins in use, with hooks routed to the plugin that owns a target.

Imports no compiler package, so that looking up a compiled package is fast.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import inlaid_runtime
from inlaid import attributes, plugins
from inlaid.plugins import hookspecs
from inlaid.plugins.frontend import Frontend
from inlaid.plugins.target_spec import TargetSpec
from inlaid_runtime.errors import InlaidError, PluginError, TargetError
from inlaid_runtime.plugins import hookspecs as runtime_hookspecs
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.plugins.discovery import NAME, Discovery, DiscoveryResult, Rejected, call, declared_kinds, expect, sequence
from inlaid_runtime.plugins.entry_points import EntryPoint, InstalledEntryPoint, installed
from inlaid_runtime.plugins.hookspecs import GROUP as RUNTIME_GROUP
from inlaid_runtime.plugins.registry import Registry, RuntimeRegistry, extras
from inlaid_runtime.plugins.target import DeviceStatus, Target

if TYPE_CHECKING:
    import pluggy

    from inlaid.plugins.contract import Capabilities, Codegen, Conformance, Exporter, OpRule, Phase
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.scheduling.rule import ScheduleRule
    from inlaid_runtime.plugins.runtime_module import RuntimeModule

LEAST_REGISTERS = 4
"""Least number of vector registers of a target with vectors: schedules hold accumulators, operands and a broadcast element in
registers."""
_SUFFIX = re.compile(r"\.[^./\\A-Z\s]+")


class PluginRegistry(Registry[TargetSpec]):
    """Compile modules of the plugins in use, and their run modules, `runtimes`. Immutable; create one with `discover`."""

    def __init__(
        self,
        discovery: DiscoveryResult[TargetSpec],
        frontends: Mapping[str, tuple[str, Frontend]],
        entry_points: Iterable[EntryPoint],
    ) -> None:
        super().__init__(discovery, tuple(entry_points))
        self._frontends = dict(frontends)

    @classmethod
    def discover(cls, entry_points: Iterable[EntryPoint] | None = None) -> PluginRegistry:
        """Load the given plugins, or all installed ones. Entry points of both groups are given together. A plugin that fails is
        recorded in `problems`, not raised."""
        groups = hookspecs.GROUP, RUNTIME_GROUP, attributes.GROUP
        points = tuple(installed(*groups) if entry_points is None else entry_points)
        discovery = Discovery([hookspecs, runtime_hookspecs])
        discovery.load(point for point in points if point.group not in groups[1:])
        declared = discovery.declared(lambda manager, name: (_declared_targets(manager, name), _declared_frontends(manager, name)))
        targets = {name: specs for name, (specs, _) in declared.items()}
        formats = {name: items for name, (_, items) in declared.items()}
        # As for targets, a plugin with the same name as the format has precedence.
        frontends = discovery.shared(
            formats,
            lambda item: item.name,
            lambda name: name not in {item.name for item in formats[name]},
            "frontends",
            "frontend",
        )
        specs = discovery.kinds(targets)
        kinds = {name: [spec.kind for spec in plugin_specs] for name, plugin_specs in targets.items()}
        names = {name: [item.name for item in items] for name, items in formats.items()}
        usable = {name: owned for name, owned in frontends.items() if discovery.manager.has_plugin(owned[0])}
        return cls(DiscoveryResult(discovery.manager, discovery.infos(kinds, names), specs), usable, points)

    @classmethod
    def from_modules(cls, modules: Mapping[str, Mapping[str, str]]) -> PluginRegistry:
        """Discover the plugins of another process, from its `plugin_modules`."""
        return cls.discover(
            InstalledEntryPoint(name, module, group)
            for group, modules_by_plugin in modules.items()
            for name, module in modules_by_plugin.items()
        )

    @functools.cached_property
    def runtimes(self) -> RuntimeRegistry:
        """The run modules, loaded at the first access."""
        return RuntimeRegistry.discover(point for point in self.entry_points if point.group == RUNTIME_GROUP)

    # --- facts ------------------------------------------------------------------------------------------------------------

    def plugin_modules(self) -> dict[str, dict[str, str]]:
        """Return the module names of both halves of all plugins, by entry-point group and plugin name."""
        return {hookspecs.GROUP: self.modules(hookspecs.GROUP), RUNTIME_GROUP: self.runtimes.modules(RUNTIME_GROUP)}

    def capabilities(self, target: Target) -> Capabilities:
        """Return the capabilities of a target. Raises `PluginError` if its plugin fails, or declares too few vector registers for a
        tile of one row and one column, or accumulators of less than two bits."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "capabilities"):
            result = spec.capabilities(target.options)
        capabilities = cast("Capabilities", expect(result, plugins.Capabilities, owner, "capabilities"))
        if capabilities.vector_bits and capabilities.vector_registers < LEAST_REGISTERS:
            problem = f"expected at least {LEAST_REGISTERS} vector registers, got {capabilities.vector_registers}"
            raise PluginError(f"capabilities: {problem}", plugin=owner, remedy="give vector_registers, or vector_bits=0")
        if capabilities.requantization.accumulator_bits < 2:
            problem = f"expected accumulators of at least 2 bits, got {capabilities.requantization.accumulator_bits}"
            raise PluginError(f"capabilities: {problem}", plugin=owner, remedy="give accumulator_bits, 32 by default")
        return capabilities

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """Value of `sources` at the first access: the hash of the sources that this process has loaded."""
        return self.sources()

    def sources(self) -> str | None:
        """Hash of the current sources of Inlaid, of the plugins in use and of what provides attributes of `inlaid`: it identifies
        the compiler. None if a plugin does not consist of files."""
        from inlaid_runtime.cache import Hashes, caches, digest

        hasher = Hashes(caches().hashes)
        hashes: dict[Path, str] = {}
        parts = [sys.version]
        providers = attributes.folders(point for point in self.entry_points if point.group == attributes.GROUP)
        for package in (Path(__file__).parents[1], Path(inlaid_runtime.__file__).parent, *providers):
            hashes[package] = hasher.tree(package)
            parts.append(hashes[package])
        halves: tuple[Registry[Any], ...] = (self, self.runtimes)
        for half in halves:
            for info in half.plugins():
                if info.problem is None:
                    folder = half.folder(info.name)
                    if folder is None:
                        return None
                    if folder not in hashes:
                        hashes[folder] = hasher.tree(folder)
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
            options_list = sequence(spec.versions(target.options), spec.options, owner, "versions")
            if not options_list:
                raise PluginError(f"expected at least one version of target {target}, got none")
        return tuple(Target(target.kind, options) for options in options_list)

    def frontends(self) -> tuple[tuple[str, Frontend], ...]:
        """Return all frontends with their plugins' names: the core's first, then by plugin name."""
        return tuple(self._frontends.values())

    # --- hooks of the plugin that owns the target -------------------------------------------------------------------------

    def codegen(self, target: Target) -> Codegen:
        """Create the target's code generator. Raises `TargetError` if a module needed to compile is not installed, and
        `PluginError` if the plugin provides no code generator. `Unsupported` from the plugin passes through."""
        self.spec(target.kind).check_compiles()
        return cast("Codegen", self.ask_owner("inlaid_codegen", plugins.Codegen, "inlaid.plugins", target=target))

    def runtime(self, target: Target, device: int = 0) -> RuntimeModule:
        """Create the target's runtime module for device number `device`. Raises `TargetError` if no run module is installed, and
        `PluginError` if it has none."""
        self._check_halves(target)
        return self.runtimes.runtime(target, device)

    def exporter(self, target: Target) -> Exporter | None:
        """Create the target's exporter; returns None if the plugin has none."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, "inlaid_exporter", target=target)
        if answer is not None and not callable(getattr(answer, "export", None)):
            type_name = type(answer).__name__
            raise PluginError(f"inlaid_exporter must return an object with a method export, got {type_name}", plugin=owner)
        return cast("Exporter | None", answer)

    def probe(self, target: Target) -> DeviceStatus:
        """Query whether the target can run here: it counts as available if its run module lacks the hook, unavailable if the hook
        fails or there is no run module."""
        try:
            self._check_halves(target)
        except InlaidError as error:
            return DeviceStatus(False, str(error))
        return self.runtimes.probe(target)

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
        op_rules: list[OpRule] = []
        for plugin, rules in self._answers("inlaid_op_rules", plugins.OpRule, target=target):
            with blame(plugin, "inlaid_op_rules"):
                for rule in rules:
                    check(rule)
            op_rules.extend(rules)
        return tuple(op_rules)

    def passes(self, target: Target, phase: Phase) -> tuple[tuple[str, Any], ...]:
        """Return passes for a target and phase with their plugins' names, the owner's first."""
        answers = self._answers("inlaid_passes", object, target=target, phase=phase)
        return tuple((plugin, step) for plugin, steps in answers for step in steps)

    def schedules(self, target: Target) -> tuple[ScheduleRule, ...]:
        """Return the schedule rules for a target, the owner's first."""
        return self._collect("inlaid_schedules", object, target=target)

    # --- routing ----------------------------------------------------------------------------------------------------------

    def _unknown(self, kind: str) -> TargetError:
        if kind not in self.runtimes.kinds() or any(problem.plugin == kind for problem in self.problems()):
            return super()._unknown(kind)
        return TargetError(
            f"target {kind} runs packages here but cannot compile: the compile half of its plugin is not installed",
            remedy=compile_half_remedy(kind),
        )

    def _check_halves(self, target: Target) -> None:
        """Raise `PluginError` if a target has no run module, or the halves of a plugin have different options: they are of
        different versions."""
        if target.kind not in self.runtimes.kinds() and not self.runtimes.problems():
            raise PluginError(
                f"target {target.kind} compiles here but cannot run: no run module declares it",
                plugin=self.owner(target.kind),
                remedy=f"name a run module in the entry-point group {RUNTIME_GROUP}, and install the plugin again",
            )
        options = self.runtimes.spec(target.kind).options
        if type(target.options) is not options:
            expected = type(target.options)
            raise PluginError(
                f"expected the options {expected.__module__}.{expected.__name__} in the run module, as in the compile module, found"
                f" {options.__module__}.{options.__name__}",
                plugin=self.runtimes.owner(target.kind),
                remedy="declare both halves with the same class, and install them in equal versions",
            )

    def _collect(self, hook: str, element: type, *, target: Target, **arguments: object) -> tuple[Any, ...]:
        return tuple(item for _, answer in self._answers(hook, element, target=target, **arguments) for item in answer)

    def _answers(self, hook: str, element: type, *, target: Target, **arguments: object) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield each plugin's answer to a hook, with its name: the owner's first, then by name."""
        owner, spec = self._owned(target.kind)
        spec.check_compiles()
        other_plugins = sorted(info.name for info in self._plugins if info.problem is None and info.name != owner)
        for plugin in (owner, *other_plugins):
            yield plugin, sequence(self.ask(plugin, hook, target=target, **arguments), element, plugin, hook)


def compile_half_remedy(kind: str) -> str:
    """Return the command that installs the compile half of a target of which only the run half is installed."""
    return f'pip install "inlaid[{kind}]"' if kind in extras() else f"install the compile half of the plugin that runs {kind}"


@functools.cache
def default_registry() -> PluginRegistry:
    """Return the registry of all installed plugins, discovered once per process."""
    return PluginRegistry.discover()


def _declared_targets(manager: pluggy.PluginManager, plugin: str) -> tuple[TargetSpec, ...]:
    specs = declared_kinds(manager, plugin, "inlaid_targets", TargetSpec)
    for spec in specs:
        if not callable(spec.capabilities):
            raise Rejected("targets", f"the capabilities of {spec.kind} must be a function of its options")
    return specs


def _declared_frontends(manager: pluggy.PluginManager, plugin: str) -> tuple[Frontend, ...]:
    try:
        frontends: tuple[Frontend, ...] = sequence(call(manager, plugin, "inlaid_frontends"), Frontend, plugin, "inlaid_frontends")
    except InlaidError as error:
        raise Rejected("frontends", error.message) from error
    for index, item in enumerate(frontends):
        if not NAME.fullmatch(item.name):
            raise Rejected("frontends", f"a frontend name must be lower-case letters, digits and underscores, got {item.name!r}")
        if any(item.name == other.name for other in frontends[:index]):
            raise Rejected("frontends", f"inlaid_frontends returned {item.name} twice")
        if not callable(item.load) or not callable(item.recognizes):
            raise Rejected("frontends", f"load and recognizes of {item.name} must be functions")
        malformed_suffixes = [suffix for suffix in item.suffixes if not _SUFFIX.fullmatch(suffix)]
        if malformed_suffixes:
            raise Rejected(
                "frontends", f"suffix {malformed_suffixes[0]!r} of {item.name} must be a dot and lower-case characters, as in .onnx"
            )
    return frontends
