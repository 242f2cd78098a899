"""Typed access to the plugins in use, each asked only what is its to answer.

It imports no compiler package, so that a program that only runs packages can use it.
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
from inlaid.plugins.runtime_module import RuntimeModule
from inlaid.plugins.target import DeviceStatus, Target, TargetSpec, parse_options

if TYPE_CHECKING:
    from inlaid.plugins.contract import Capabilities, Codegen, Conformance, Exporter, OpRule, Phase
    from inlaid.schedules.rule import ScheduleRule
    from inlaid.tensor.primitives import TensorIntrin

LEAST_REGISTERS = 4
"""Vector registers of a target that has any: schedules keep sums, operands and a broadcast element in them."""


class PluginRegistry:
    """The plugins in use, and typed access to their hooks. Immutable once built; make one with `discover`. `entry_points` are those
    that it was made from, the unusable ones included."""

    def __init__(self, found: Found, entry_points: Sequence[EntryPoint]) -> None:
        self._manager = found.manager
        self._plugins = found.plugins
        self._specs = found.specs
        self._frontends = found.frontends
        self.entry_points = tuple(entry_points)

    @classmethod
    def discover(cls, entry_points: Iterable[EntryPoint] | None = None) -> PluginRegistry:
        """Load plugins: those given, or else every installed one. Never raises on account of a plugin."""
        if entry_points is None:
            entry_points = installed(hookspecs.GROUP)
        points = tuple(entry_points)
        return cls(discover(points), points)

    # --- facts ------------------------------------------------------------------------------------------------------------

    def plugins(self) -> tuple[PluginInfo, ...]:
        """Every plugin found, the unusable ones with their reason, by name."""
        return self._plugins

    def problems(self) -> tuple[Problem, ...]:
        """Why plugins are not in use, by name of plugin."""
        return tuple(info.problem for info in self._plugins if info.problem is not None)

    def kinds(self) -> tuple[str, ...]:
        """The kinds of target that can be named, sorted."""
        return tuple(sorted(self._specs))

    def spec(self, kind: str) -> TargetSpec:
        """The declaration of a kind of target. Raises `TargetError` when no usable plugin provides it."""
        return self._owned(kind)[1]

    def owner(self, kind: str) -> str:
        """The name of the plugin that provides a kind of target. Raises `TargetError` when none does."""
        return self._owned(kind)[0]

    def module(self, plugin: str) -> str:
        """The name of the module that a plugin in use is."""
        return cast("str", getattr(self._manager.get_plugin(plugin), "__name__", ""))

    def modules(self) -> dict[str, str]:
        """The names of the modules that plugins are, by name of plugin: of those in use, and of those that would be if they could,
        so that another process finds the same."""
        broken = {problem.plugin for problem in self.problems() if problem.stage != "disabled"}
        return {point.name: point.value for point in self.entry_points if point.name in broken} | {
            info.name: self.module(info.name) for info in self._plugins if info.problem is None
        }

    def target(self, text: str) -> Target:
        """The target that a string such as `x86` or `x86:threads=1` names. Raises `TargetError`, which says what is installed,
        what is broken and why, and what could be installed."""
        return parse_options(text, self.spec(text.partition(":")[0]))

    def capabilities(self, target: Target) -> Capabilities:
        """What the target can do. Raises `PluginError` when its plugin fails to say, or gives fewer vector registers than a tile of
        one row and one column takes."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "capabilities"):
            result = spec.capabilities(target.options)
        found = cast("Capabilities", expect(result, plugins.Capabilities, owner, "capabilities"))
        if found.vector_bits and found.vector_registers < LEAST_REGISTERS:
            problem = f"expected at least {LEAST_REGISTERS} vector registers, got {found.vector_registers}"
            raise PluginError(f"capabilities: {problem}", plugin=owner, remedy="give vector_registers, or vector_bits=0")
        return found

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """`sources` as they were when this was first asked for, which is what this process has loaded."""
        return self.sources()

    def sources(self) -> str | None:
        """Says what code compiles here: a hash of the sources of Inlaid and of the packages that the plugins in use are in, as they
        are now. None where a plugin is no module that lies in files."""
        from inlaid.cache import digest, tree_digest

        core = Path(__file__).parents[1]
        hashes = {core: tree_digest(core)}
        parts = [sys.version, hashes[core]]
        for info in self._plugins:
            if info.problem is None:
                folder = _folder(self._manager.get_plugin(info.name))
                if folder is None:
                    return None
                if folder not in hashes:
                    hashes[folder] = tree_digest(folder)
                parts += [info.name, info.version, hashes[folder]]
        return digest(*parts)

    def surroundings(self, target: Target) -> str:
        """What code for a target depends on besides its options and sources. Raises `PluginError` when its plugin fails to say."""
        owner, spec = self._owned(target.kind)
        spec.check_compiles()
        with blame(owner, "surroundings"):
            result = spec.surroundings(target.options)
        return cast("str", expect(result, str, owner, "surroundings"))

    def versions(self, target: Target) -> tuple[Target, ...]:
        """The targets that a region for this one is compiled for, the least demanding first. Raises `PluginError` when its plugin
        gives none, or fails to say."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "versions"):
            found = sequence(spec.versions(target.options), spec.options, owner, "versions")
            if not found:
                raise PluginError(f"target {target} has no versions, and compiles to at least one")
        return tuple(Target(target.kind, options) for options in found)

    def frontends(self) -> tuple[tuple[str, Frontend], ...]:
        """The frontends, each with the name of its plugin: those of the core first, then others', by name of plugin."""
        return tuple(self._frontends.values())

    # --- hooks that the owner of the kind answers -------------------------------------------------------------------------

    def codegen(self, target: Target) -> Codegen:
        """The target's code generator. Raises `Unsupported` or `PluginError` when its plugin has none, and `TargetError` where a
        module that it imports is not installed."""
        self.spec(target.kind).check_compiles()
        return cast("Codegen", self._ask_owner("inlaid_codegen", plugins.Codegen, target=target))

    def runtime(self, target: Target, device: int = 0) -> RuntimeModule:
        """The target's runtime module for device number `device`. Raises `PluginError` when its plugin has none."""
        return cast("RuntimeModule", self._ask_owner("inlaid_runtime", RuntimeModule, target=target, device=device))

    def exporter(self, target: Target) -> Exporter | None:
        """What writes models for the target as files; None where its plugin writes none."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, "inlaid_exporter", target=target)
        if answer is not None and not callable(getattr(answer, "export", None)):
            raise PluginError(f"inlaid_exporter returned {type(answer).__name__}, which has no method export", plugin=owner)
        return cast("Exporter | None", answer)

    def probe(self, target: Target) -> DeviceStatus:
        """Whether the target can run here. A plugin that does not implement the hook is taken to be available; one whose hook
        fails is not."""
        owner = self.owner(target.kind)
        try:
            answer = self.ask(owner, "inlaid_probe", target=target)
            return (
                DeviceStatus(True) if answer is None else cast("DeviceStatus", expect(answer, DeviceStatus, owner, "inlaid_probe"))
            )
        except InlaidError as error:
            return DeviceStatus(False, str(error))

    def intrinsics(self, target: Target) -> tuple[TensorIntrin, ...]:
        """The tensor intrinsics that the target's code generator prints; none where its plugin does not implement the hook."""
        owner = self.owner(target.kind)
        self.spec(target.kind).check_compiles()
        return sequence(self.ask(owner, "inlaid_intrinsics", target=target), object, owner, "inlaid_intrinsics")

    def conformance(self, target: Target) -> Conformance:
        """What the target's plugin says to the conformance suite; nothing where it does not implement the hook."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, "inlaid_conformance", target=target)
        if answer is None:
            return plugins.Conformance()
        return cast("Conformance", expect(answer, plugins.Conformance, owner, "inlaid_conformance"))

    # --- hooks that every plugin answers ----------------------------------------------------------------------------------

    def op_rules(self, target: Target, check: Callable[[OpRule], None] = lambda rule: None) -> tuple[OpRule, ...]:
        """Operator annotations and composite patterns for a target: the owner's first, then others', by name of plugin. `check`
        raises for a rule that cannot be used; its plugin is blamed."""
        found: list[OpRule] = []
        for plugin, rules in self._answers("inlaid_op_rules", plugins.OpRule, target=target):
            with blame(plugin, "inlaid_op_rules"):
                for rule in rules:
                    check(rule)
            found.extend(rules)
        return tuple(found)

    def passes(self, target: Target, phase: Phase) -> tuple[Any, ...]:
        """Passes for a target in a phase, the owner's first."""
        return self._collect("inlaid_passes", object, target=target, phase=phase)

    def schedules(self, target: Target) -> tuple[ScheduleRule, ...]:
        """Schedule rules for a target, the owner's first."""
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
                f"{hook} returned {type(answer).__name__}, which is no {wanted.__name__}",
                plugin=owner,
                remedy=f"derive its class from inlaid.plugins.{wanted.__name__}",
            )
        return answer

    def _collect(self, hook: str, element: type, *, target: Target, **arguments: object) -> tuple[Any, ...]:
        return tuple(item for _, answer in self._answers(hook, element, target=target, **arguments) for item in answer)

    def _answers(self, hook: str, element: type, *, target: Target, **arguments: object) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Each plugin's answer to a hook, by its name: the owner's first, then others', by name."""
        owner, spec = self._owned(target.kind)
        spec.check_compiles()
        others = sorted(info.name for info in self._plugins if info.problem is None and info.name != owner)
        for plugin in (owner, *others):
            yield plugin, sequence(self.ask(plugin, hook, target=target, **arguments), element, plugin, hook)

    def ask(self, plugin: str, hook: str, **arguments: object) -> object:
        """What a plugin's implementation of a hook returns, as it is; None where it has none. Raises `PluginError`."""
        return call(self._manager, plugin, hook, **arguments)

    def _unknown(self, kind: str) -> TargetError:
        facts = [f"installed: {', '.join(self.kinds()) or 'none'}"]
        facts += [f"unusable: {problem.plugin} ({problem.stage}: {problem.message})" for problem in self.problems()]
        extras = sorted(_extras() - set(self._specs))
        broken = {problem.plugin: problem for problem in self.problems()}
        if kind in broken and broken[kind].stage == "disabled":
            hint = f"unset {DISABLED}, or take {kind} out of it"
        elif kind in extras:
            hint = f'pip install "inlaid[{kind}]"' if kind not in broken else f'repair it, or pip install "inlaid[{kind}]" again'
        elif extras:
            hint = "more can be had by " + " or ".join(f'pip install "inlaid[{extra}]"' for extra in extras)
        else:
            hint = 'targets are added by pip install "inlaid[<extra>]" or by installing a vendor\'s plugin'
        return TargetError(f"no target {kind!r} is installed{suggestion(kind, self.kinds())}", remedy="; ".join([*facts, hint]))


@functools.cache
def default_registry() -> PluginRegistry:
    """The registry of the installed plugins, discovered once in a process."""
    return PluginRegistry.discover()


def _folder(plugin: object) -> Path | None:
    """The folder of the package that a plugin's module is in."""
    name = getattr(plugin, "__name__", "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if file is None or Path(file).name != "__init__.py" else Path(file).parent


def _extras() -> set[str]:
    """The extras of the installed core that bring a target: names of the back ends that pip can add."""
    import importlib.metadata

    try:
        facts = importlib.metadata.metadata("inlaid")
    except importlib.metadata.PackageNotFoundError:
        return set()
    needed = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in facts.get_all("Requires-Dist") or ()]
    return {
        extra.replace("-", "_") for extra in facts.get_all("Provides-Extra") or () if f"inlaid-{extra.replace('_', '-')}" in needed
    }
