"""Plugin discovery with isolation of broken plugins.

A plugin that fails to import, was written for another contract version, misspells a hook, or declares a target of another plugin is
unregistered and listed with the reason. pluggy handles neither load errors nor rejected registrations. Only this module uses
pluggy's manager. The compiler discovers its half of the plugins in the same way.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Generic, TypeVar

import pluggy

from inlaid_runtime.errors import InlaidError, PluginError
from inlaid_runtime.plugins.blame import blame, describe
from inlaid_runtime.plugins.entry_points import EntryPoint
from inlaid_runtime.plugins.hookspecs import PROJECT
from inlaid_runtime.plugins.target import PLUGIN_API_VERSION, TargetKind
from inlaid_runtime.records import dataclass

DISABLED = "INLAID_DISABLED_PLUGINS"
"""Environment variable with names of plugins not to load, separated by commas."""

CORE = "inlaid-core"
"""Distribution of the core. Its plugins have precedence over others of the same name."""
CHANGES = "the table of names in docs/development-log.md"
"""Where changes of the contract are listed, for the error of a plugin for an older version."""

MARK = f"{PROJECT}_impl"
"""Attribute of a function that is marked as a hook."""
NAME = re.compile(r"[a-z][a-z0-9_]*")
"""Pattern of the names of target kinds."""
_OPTION_TYPES = (bool, int, float, str)

Kind = TypeVar("Kind", bound=TargetKind)
T = TypeVar("T")


@dataclass(frozen=True)
class PluginProblem:
    """Reason why a plugin is not in use: the stage of loading that failed ("disabled", "import", "version", "hooks", "targets" or
    "frontends"), and the message."""

    plugin: str
    stage: str
    message: str


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin. `distribution` and `version` are the name and version of its package, "" if it was not installed from
    one. `kinds` are its targets, `formats` the names of its frontends. `problem` is None for a plugin in use."""

    name: str
    distribution: str
    version: str
    kinds: tuple[str, ...]
    problem: PluginProblem | None = None
    formats: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """ "ok", or the failed stage and the reason."""
        return "ok" if self.problem is None else f"{self.problem.stage}: {self.problem.message}"


@dataclass(frozen=True)
class DiscoveryResult(Generic[Kind]):
    """Result of discovery: pluggy's manager with the plugins in use; all plugins, by name; and target kinds by name, each with the
    name of its plugin."""

    manager: pluggy.PluginManager
    plugins: tuple[PluginInfo, ...]
    specs: dict[str, tuple[str, Kind]]


class Rejected(Exception):
    """Raised if a plugin cannot be used."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclass(frozen=True)
class DiscoveredPlugin:
    """A plugin to load: its name, its distribution and version, and its entry point."""

    name: str
    distribution: str
    version: str
    entry_point: EntryPoint


class Discovery:
    """State of one discovery of the modules that implement the hooks of `halves`, which are modules of hook specifications.
    `other_half` names a function. A module that defines it may have hooks that are unknown here, since it belongs to the other half
    of the contract too."""

    def __init__(self, halves: Sequence[ModuleType], other_half: str = "") -> None:
        self.manager = pluggy.PluginManager(PROJECT)
        for half in halves:
            self.manager.add_hookspecs(half)
        self.problems: list[tuple[DiscoveredPlugin, PluginProblem]] = []
        self.loaded: dict[str, DiscoveredPlugin] = {}
        self._hooks = tuple(name for half in halves for name in vars(half) if name.startswith("inlaid_"))
        self._other_half = other_half

    def load(self, entry_points: Iterable[EntryPoint]) -> None:
        """Load and register plugins."""
        disabled = {name.strip() for name in os.environ.get(DISABLED, "").split(",")}
        for candidate in sorted(map(_candidate, entry_points), key=_rank):
            try:
                if candidate.name in disabled:
                    raise Rejected("disabled", f"disabled by {DISABLED}")
                if candidate.name in self.loaded:
                    raise Rejected("import", f"{_origin(self.loaded[candidate.name])} has a plugin of the same name")
                self._load(candidate)
                self.loaded[candidate.name] = candidate
            except Rejected as error:
                self._reject(candidate, error)

    def declared(self, declare: Callable[[pluggy.PluginManager, str], T]) -> dict[str, T]:
        """Return what each plugin in use declares, by its name."""
        declarations: dict[str, T] = {}
        for name, candidate in self._usable():
            try:
                declarations[name] = declare(self.manager, name)
            except Rejected as error:
                self._reject(candidate, error)
        return declarations

    def shared(
        self,
        declared: Mapping[str, Sequence[T]],
        key: Callable[[T], str],
        precedence: Callable[[str], object],
        stage: str,
        noun: str,
    ) -> dict[str, tuple[str, T]]:
        """Assign each declared item to one plugin, and return it with the plugin's name, by its key. Plugins come in the order of
        `precedence`, then of their names. A plugin that declares an item of an earlier one is rejected."""
        items: dict[str, tuple[str, T]] = {}
        usable = dict(self._usable())
        for name in sorted((name for name in declared if name in usable), key=lambda name: (precedence(name), name)):
            conflicting_keys = [key(item) for item in declared[name] if key(item) in items]
            if conflicting_keys:
                owner = items[conflicting_keys[0]][0]
                self._reject(usable[name], Rejected(stage, f"{noun} {conflicting_keys[0]} is already provided by plugin {owner}"))
                continue
            items.update({key(item): (name, item) for item in declared[name]})
        return items

    def kinds(self, declared: Mapping[str, Sequence[Kind]]) -> dict[str, tuple[str, Kind]]:
        """Assign each target kind to one plugin. A plugin with the same name as the kind has precedence, so that no plugin takes
        over the target by coming first in the alphabet."""

        def precedence(name: str) -> bool:
            return name not in {spec.kind for spec in declared[name]}

        return self.shared(declared, lambda spec: spec.kind, precedence, "targets", "target")

    def infos(self, kinds: Mapping[str, Sequence[str]], formats: Mapping[str, Sequence[str]]) -> tuple[PluginInfo, ...]:
        """Return all plugins by name. `kinds` and `formats` are the declared names of plugins."""
        infos = [PluginInfo(c.name, c.distribution, c.version, (), problem) for c, problem in self.problems]
        for name, candidate in self._usable():
            names = tuple(kinds.get(name, ())), tuple(formats.get(name, ()))
            infos.append(PluginInfo(name, candidate.distribution, candidate.version, names[0], formats=names[1]))
        return tuple(sorted(infos, key=lambda info: info.name))

    def _usable(self) -> list[tuple[str, DiscoveredPlugin]]:
        return [(name, self.loaded[name]) for name, plugin in self.manager.list_name_plugin() if plugin is not None]

    def _reject(self, candidate: DiscoveredPlugin, error: Rejected) -> None:
        self.problems.append((candidate, PluginProblem(candidate.name, error.stage, str(error))))
        # A plugin whose name is already in use was never registered, so unregistering the name would remove the other one.
        if error.stage not in ("disabled", "import") and self.manager.has_plugin(candidate.name):
            self.manager.unregister(name=candidate.name)

    def _load(self, candidate: DiscoveredPlugin) -> None:
        try:
            plugin = candidate.entry_point.load()
        except (Exception, SystemExit) as error:
            raise Rejected("import", describe(error)) from error
        version = getattr(plugin, "PLUGIN_API_VERSION", None)
        if version != PLUGIN_API_VERSION:
            written = (
                "does not state PLUGIN_API_VERSION"
                if version is None
                else f"was written for version {version!r} of the plugin contract"
            )
            changes = f"; what changed until then: {CHANGES}" if isinstance(version, int) and version < PLUGIN_API_VERSION else ""
            raise Rejected("version", f"{written}; this Inlaid has version {PLUGIN_API_VERSION}{changes}")
        for hook in self._hooks:
            function = getattr(plugin, hook, None)
            if function is not None and not hasattr(function, MARK):
                raise Rejected("hooks", f"{hook} is not marked with @hookimpl")
        if not (self._other_half and hasattr(plugin, self._other_half)):
            for name, function in vars(plugin).items():
                if hasattr(function, MARK) and name not in self._hooks:
                    raise Rejected("hooks", f"unknown hook {name!r}; known hooks are {', '.join(self._hooks)}")
        try:
            self.manager.register(plugin, name=candidate.name)
        except (Exception, SystemExit) as error:
            raise Rejected("hooks", describe(error)) from error


def _candidate(entry_point: EntryPoint) -> DiscoveredPlugin:
    dist = getattr(entry_point, "dist", None)
    return DiscoveredPlugin(entry_point.name, "" if dist is None else dist.name, "" if dist is None else dist.version, entry_point)


def _rank(candidate: DiscoveredPlugin) -> tuple[object, ...]:
    """Compute a sort key: by name; among equal names, plugins of the core first."""
    return candidate.name, candidate.distribution != CORE, candidate.distribution, candidate.entry_point.value


def _origin(candidate: DiscoveredPlugin) -> str:
    return f"distribution {candidate.distribution}" if candidate.distribution else candidate.entry_point.value


def declared_kinds(manager: pluggy.PluginManager, plugin: str, hook: str, element: type[Kind]) -> tuple[Kind, ...]:
    """Return the target kinds that a plugin declares by a hook. Raises `Rejected`."""
    try:
        specs: tuple[Kind, ...] = sequence(call(manager, plugin, hook), element, plugin, hook)
    except InlaidError as error:
        raise Rejected("targets", error.message) from error
    for index, spec in enumerate(specs):
        if not NAME.fullmatch(spec.kind):
            raise Rejected("targets", f"a target kind must be lower-case letters, digits and underscores, got {spec.kind!r}")
        if any(spec.kind == other.kind for other in specs[:index]):
            raise Rejected("targets", f"{hook} returned {spec.kind} twice")
        _check_options(spec)
    return specs


def _check_options(spec: TargetKind) -> None:
    options = spec.options
    if not (dataclasses.is_dataclass(options) and getattr(options, "__dataclass_params__").frozen):  # noqa: B009
        raise Rejected("targets", f"the options of {spec.kind} must be a frozen dataclass")
    for item in dataclasses.fields(options):
        if type(item.default) not in _OPTION_TYPES:
            raise Rejected("targets", f"option {item.name} of {spec.kind} must have a bool, int, float or string as its default")


def call(manager: pluggy.PluginManager, plugin: str, hook: str, **arguments: object) -> object:
    """Call one plugin's implementation of a hook. Returns None if it has none."""
    module = manager.get_plugin(plugin)
    other_plugins = [other for other in manager.get_plugins() if other is not module]
    caller: Callable[..., list[object]] = manager.subset_hook_caller(hook, remove_plugins=other_plugins)
    with blame(plugin, hook):
        answers = caller(**arguments)
    return answers[0] if answers else None


def sequence(answer: object, element: type, plugin: str, hook: str) -> tuple[Any, ...]:
    """Return a hook's answer as a tuple, empty for None. Raises `PluginError` unless it is a sequence of `element`."""
    if answer is None:
        return ()
    if not isinstance(answer, (list, tuple)):
        raise PluginError(f"{hook} must return a list or tuple, got {type(answer).__name__}", plugin=plugin)
    for item in answer:
        expect(item, element, plugin, hook)
    return tuple(answer)


def expect(value: object, expected_type: type, plugin: str, hook: str) -> object:
    """Return a hook's answer. Raises `PluginError` unless it is an instance of `expected_type`."""
    if not isinstance(value, expected_type):
        raise PluginError(f"{hook} must return {expected_type.__name__}, got {type(value).__name__}", plugin=plugin)
    return value
