"""Finds plugins, keeps the broken ones from the rest, and asks each only what is its to answer.

This is the one module that works with pluggy's manager. It imports no compiler package, so that a program that only runs
packages can use it.

Loading is isolated. A plugin that cannot be imported, was written for another version of the contract, misspells a hook, or
claims a kind of target that is another's is unregistered and listed with the reason; pluggy itself guards neither loading nor a
rejected registration.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pluggy

import inlaid
from inlaid.cache import digest, tree_digest
from inlaid.errors import InlaidError, PluginError, TargetError, suggestion
from inlaid.plugins import hookspecs
from inlaid.plugins.blame import blame, describe
from inlaid.plugins.contract import (
    PLUGIN_API_VERSION,
    Capabilities,
    Codegen,
    Conformance,
    DeviceStatus,
    Exporter,
    OpRule,
    Phase,
    Target,
    TargetSpec,
    parse_options,
)
from inlaid.plugins.runtime_module import RuntimeModule

if TYPE_CHECKING:
    from inlaid.schedules.rule import ScheduleRule
    from inlaid.tensor.primitives import TensorIntrin

DISABLED = "INLAID_DISABLED_PLUGINS"
"""Environment variable: names of plugins, separated by commas, that are not loaded."""

Stage = Literal["disabled", "import", "version", "hooks", "targets"]

_KIND = re.compile(r"[a-z][a-z0-9_]*")
_HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("inlaid_"))
_OPTION_TYPES = (bool, int, float, str)


@dataclass(frozen=True)
class Problem:
    """Why a plugin is not in use: at which stage of loading it failed, and how."""

    plugin: str
    stage: Stage
    message: str


@dataclass(frozen=True)
class PluginInfo:
    """What is known of an installed plugin. `distribution` and `version` are those of the package that brought it, empty where it
    was not installed as one; `kinds` are the targets it provides; `problem` is None for a plugin in use."""

    name: str
    distribution: str
    version: str
    kinds: tuple[str, ...]
    problem: Problem | None = None

    @property
    def status(self) -> str:
        """ "ok", or the stage at which the plugin failed and the reason."""
        return "ok" if self.problem is None else f"{self.problem.stage}: {self.problem.message}"


class PluginRegistry:
    """The plugins in use, and typed access to their hooks. Immutable once built; make one with `discover`. `entry_points` are those
    that it was made from, the unusable ones included."""

    def __init__(
        self,
        manager: pluggy.PluginManager,
        plugins: Sequence[PluginInfo],
        specs: dict[str, tuple[str, TargetSpec]],
        entry_points: Sequence[importlib.metadata.EntryPoint],
    ) -> None:
        self._manager = manager
        self._plugins = tuple(plugins)
        self._specs = specs
        self.entry_points = tuple(entry_points)

    @classmethod
    def discover(cls, entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> PluginRegistry:
        """Load plugins: those given, or else every installed one. Never raises on account of a plugin."""
        if entry_points is None:
            entry_points = importlib.metadata.entry_points(group=hookspecs.GROUP)
        return _Discovery().run(tuple(entry_points))

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
        """What the target can do. Raises `PluginError` when its plugin fails to say."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "capabilities"):
            result = spec.capabilities(target.options)
        return cast("Capabilities", _expect(result, Capabilities, owner, "capabilities"))

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """`sources` as they were when this was first asked for, which is what this process has loaded."""
        return self.sources()

    def sources(self) -> str | None:
        """Says what code compiles here: a hash of the sources of Inlaid and of the packages that the plugins in use are in, as they
        are now. None where a plugin is no module that lies in files."""
        core = Path(inlaid.__file__).parent
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
        with blame(owner, "surroundings"):
            result = spec.surroundings(target.options)
        return cast("str", _expect(result, str, owner, "surroundings"))

    def versions(self, target: Target) -> tuple[Target, ...]:
        """The targets that a region for this one is compiled for, the least demanding first. Raises `PluginError` when its plugin
        gives none, or fails to say."""
        owner, spec = self._owned(target.kind)
        with blame(owner, "versions"):
            found = _sequence(spec.versions(target.options), spec.options, owner, "versions")
            if not found:
                raise PluginError(f"target {target} has no versions, and compiles to at least one")
        return tuple(Target(target.kind, options) for options in found)

    # --- hooks that the owner of the kind answers -------------------------------------------------------------------------

    def codegen(self, target: Target) -> Codegen:
        """The target's code generator. Raises `Unsupported` or `PluginError` when its plugin has none."""
        return cast("Codegen", self._ask_owner("inlaid_codegen", Codegen, target=target))

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
                DeviceStatus(True) if answer is None else cast("DeviceStatus", _expect(answer, DeviceStatus, owner, "inlaid_probe"))
            )
        except InlaidError as error:
            return DeviceStatus(False, str(error))

    def intrinsics(self, target: Target) -> tuple[TensorIntrin, ...]:
        """The tensor intrinsics that the target's code generator prints; none where its plugin does not implement the hook."""
        owner = self.owner(target.kind)
        return _sequence(self.ask(owner, "inlaid_intrinsics", target=target), object, owner, "inlaid_intrinsics")

    def conformance(self, target: Target) -> Conformance:
        """What the target's plugin says to the conformance suite; nothing where it does not implement the hook."""
        owner = self.owner(target.kind)
        answer = self.ask(owner, "inlaid_conformance", target=target)
        return Conformance() if answer is None else cast("Conformance", _expect(answer, Conformance, owner, "inlaid_conformance"))

    # --- hooks that every plugin answers ----------------------------------------------------------------------------------

    def op_rules(self, target: Target, check: Callable[[OpRule], None] = lambda rule: None) -> tuple[OpRule, ...]:
        """Operator annotations and composite patterns for a target: the owner's first, then others', by name of plugin. `check`
        raises for a rule that cannot be used; its plugin is blamed."""
        found: list[OpRule] = []
        for plugin, rules in self._answers("inlaid_op_rules", OpRule, target=target):
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
        owner = self.owner(target.kind)
        others = sorted(info.name for info in self._plugins if info.problem is None and info.name != owner)
        for plugin in (owner, *others):
            yield plugin, _sequence(self.ask(plugin, hook, target=target, **arguments), element, plugin, hook)

    def ask(self, plugin: str, hook: str, **arguments: object) -> object:
        """What a plugin's implementation of a hook returns, as it is; None where it has none. Raises `PluginError`."""
        return _call(self._manager, plugin, hook, **arguments)

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


class _Rejected(Exception):
    """A plugin is unusable."""

    def __init__(self, stage: Stage, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclass(frozen=True)
class _Candidate:
    name: str
    distribution: str
    version: str
    entry_point: importlib.metadata.EntryPoint


class _Discovery:
    """One run of discovery."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("inlaid")
        self.manager.add_hookspecs(hookspecs)
        self.problems: list[tuple[_Candidate, Problem]] = []

    def run(self, entry_points: Sequence[importlib.metadata.EntryPoint]) -> PluginRegistry:
        disabled = {name.strip() for name in os.environ.get(DISABLED, "").split(",")}
        loaded: dict[str, _Candidate] = {}
        for candidate in sorted(map(_candidate, entry_points), key=_rank):
            try:
                if candidate.name in disabled:
                    raise _Rejected("disabled", f"disabled by {DISABLED}")
                if candidate.name in loaded:
                    raise _Rejected("import", f"{_whence(loaded[candidate.name])} has a plugin of the same name")
                self._load(candidate)
                loaded[candidate.name] = candidate
            except _Rejected as error:
                self._reject(candidate, error)
        self._reject_misspelt(loaded)
        declared: dict[str, tuple[TargetSpec, ...]] = {}
        for name, candidate in list(loaded.items()):
            try:
                declared[name] = _declared_targets(self.manager, name)
            except _Rejected as error:
                self._reject(candidate, error)
        specs = self._share_kinds(declared, loaded)
        infos = [PluginInfo(c.name, c.distribution, c.version, (), problem) for c, problem in self.problems]
        for name in sorted(set(declared) & set(self._registered())):
            candidate = loaded[name]
            kinds = tuple(spec.kind for spec in declared[name])
            infos.append(PluginInfo(name, candidate.distribution, candidate.version, kinds))
        return PluginRegistry(self.manager, sorted(infos, key=lambda info: info.name), specs, entry_points)

    def _registered(self) -> list[str]:
        return [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]

    def _reject(self, candidate: _Candidate, error: _Rejected) -> None:
        self.problems.append((candidate, Problem(candidate.name, error.stage, str(error))))
        # A plugin that has the name of one already in use was never registered: leave the other one alone.
        if error.stage not in ("disabled", "import") and self.manager.has_plugin(candidate.name):
            self.manager.unregister(name=candidate.name)

    def _load(self, candidate: _Candidate) -> None:
        try:
            plugin = candidate.entry_point.load()
        except (Exception, SystemExit) as error:
            raise _Rejected("import", describe(error)) from error
        version = getattr(plugin, "PLUGIN_API_VERSION", None)
        if version != PLUGIN_API_VERSION:
            written = (
                "does not state PLUGIN_API_VERSION"
                if version is None
                else f"was written for version {version!r} of the plugin contract"
            )
            raise _Rejected("version", f"{written}; this Inlaid has version {PLUGIN_API_VERSION}")
        for hook in _HOOKS:
            function = getattr(plugin, hook, None)
            if function is not None and not hasattr(function, "inlaid_impl"):
                raise _Rejected("hooks", f"{hook} is not marked with @hookimpl")
        try:
            self.manager.register(plugin, name=candidate.name)
        except (Exception, SystemExit) as error:
            raise _Rejected("hooks", describe(error)) from error

    def _reject_misspelt(self, loaded: dict[str, _Candidate]) -> None:
        while True:
            try:
                self.manager.check_pending()
                return
            except pluggy.PluginValidationError as error:
                name = self.manager.get_name(error.plugin)
                assert name is not None
                self._reject(loaded.pop(name), _Rejected("hooks", f"{error}; the hooks are {', '.join(_HOOKS)}"))

    def _share_kinds(
        self, declared: dict[str, tuple[TargetSpec, ...]], loaded: dict[str, _Candidate]
    ) -> dict[str, tuple[str, TargetSpec]]:
        """Give each kind to one plugin. A plugin named like one of its kinds comes before others, so that no plugin takes over
        the target of another by its name's place in the alphabet."""
        specs: dict[str, tuple[str, TargetSpec]] = {}
        for name in sorted(declared, key=lambda name: (name not in {spec.kind for spec in declared[name]}, name)):
            taken = [spec.kind for spec in declared[name] if spec.kind in specs]
            if taken:
                owner = specs[taken[0]][0]
                self._reject(loaded[name], _Rejected("targets", f"target {taken[0]} is provided by plugin {owner} already"))
                continue
            specs.update({spec.kind: (name, spec) for spec in declared[name]})
        return specs


def _folder(plugin: object) -> Path | None:
    """The folder of the package that a plugin's module is in."""
    name = getattr(plugin, "__name__", "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if file is None or Path(file).name != "__init__.py" else Path(file).parent


def _candidate(entry_point: importlib.metadata.EntryPoint) -> _Candidate:
    dist = getattr(entry_point, "dist", None)
    return _Candidate(entry_point.name, "" if dist is None else dist.name, "" if dist is None else dist.version, entry_point)


def _rank(candidate: _Candidate) -> tuple[object, ...]:
    """By name; the core's own plugins before others of the same name."""
    return candidate.name, candidate.distribution != "inlaid", candidate.distribution, candidate.entry_point.value


def _whence(candidate: _Candidate) -> str:
    return f"distribution {candidate.distribution}" if candidate.distribution else candidate.entry_point.value


def _declared_targets(manager: pluggy.PluginManager, plugin: str) -> tuple[TargetSpec, ...]:
    try:
        specs = cast(
            "tuple[TargetSpec, ...]", _sequence(_call(manager, plugin, "inlaid_targets"), TargetSpec, plugin, "inlaid_targets")
        )
    except InlaidError as error:
        raise _Rejected("targets", error.message) from error
    for index, spec in enumerate(specs):
        if not _KIND.fullmatch(spec.kind):
            raise _Rejected("targets", f"{spec.kind!r} is not a kind: lower-case letters, digits and underscores are")
        if any(spec.kind == other.kind for other in specs[:index]):
            raise _Rejected("targets", f"inlaid_targets gives {spec.kind} twice")
        if not callable(spec.capabilities):
            raise _Rejected("targets", f"the capabilities of {spec.kind} are not a function of its options")
        _check_options(spec)
    return specs


def _check_options(spec: TargetSpec) -> None:
    options = spec.options
    if not (dataclasses.is_dataclass(options) and getattr(options, "__dataclass_params__").frozen):  # noqa: B009
        raise _Rejected("targets", f"the options of {spec.kind} are not a frozen dataclass")
    for item in dataclasses.fields(options):
        if type(item.default) not in _OPTION_TYPES:
            raise _Rejected("targets", f"option {item.name} of {spec.kind} has no default that is a bool, int, float or string")


def _call(manager: pluggy.PluginManager, plugin: str, hook: str, **arguments: object) -> object:
    """What one plugin's implementation of a hook returns; None when it has none."""
    module = manager.get_plugin(plugin)
    others = [other for other in manager.get_plugins() if other is not module]
    caller: Callable[..., list[object]] = manager.subset_hook_caller(hook, remove_plugins=others)
    with blame(plugin, hook):
        answers = caller(**arguments)
    return answers[0] if answers else None


def _sequence(answer: object, element: type, plugin: str, hook: str) -> tuple[Any, ...]:
    if answer is None:
        return ()
    if not isinstance(answer, (list, tuple)):
        raise PluginError(f"{hook} returned {type(answer).__name__}, not a list or tuple", plugin=plugin)
    for item in answer:
        _expect(item, element, plugin, hook)
    return tuple(answer)


def _expect(value: object, wanted: type, plugin: str, hook: str) -> object:
    if not isinstance(value, wanted):
        raise PluginError(f"{hook} gave {type(value).__name__} where {wanted.__name__} is due", plugin=plugin)
    return value


def _extras() -> set[str]:
    """The extras of the installed core that bring a target: names of the back ends that pip can add."""
    try:
        facts = importlib.metadata.metadata("inlaid")
    except importlib.metadata.PackageNotFoundError:
        return set()
    needed = [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in facts.get_all("Requires-Dist") or ()]
    return {
        extra.replace("-", "_") for extra in facts.get_all("Provides-Extra") or () if f"inlaid-{extra.replace('_', '-')}" in needed
    }
