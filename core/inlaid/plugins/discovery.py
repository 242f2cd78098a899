"""Plugin discovery with isolation of broken plugins.

A plugin that fails to import, was written for another contract version, misspells a hook, or declares a target or format of another
plugin is unregistered and listed with the reason. pluggy handles neither load errors nor rejected registrations. Only this module
uses pluggy's manager.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pluggy

from inlaid.errors import InlaidError, PluginError
from inlaid.plugins import hookspecs
from inlaid.plugins.blame import blame, describe
from inlaid.plugins.entry_points import EntryPoint
from inlaid.plugins.frontend import Frontend
from inlaid.plugins.target import PLUGIN_API_VERSION, TargetSpec
from inlaid.records import dataclass

DISABLED = "INLAID_DISABLED_PLUGINS"
"""Environment variable with names of plugins not to load, separated by commas."""

Stage = Literal["disabled", "import", "version", "hooks", "targets", "frontends"]

CORE, RUNTIME = "inlaid", "inlaid-runtime"
"""Distributions of the core and of the runtime. The core's plugins have precedence over others of the same name. The runtime
contains the run-time halves of plugins, under the same entry points as the complete plugins."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SUFFIX = re.compile(r"\.[^./\\A-Z\s]+")
_HOOKS = tuple(name for name in vars(hookspecs) if name.startswith("inlaid_"))
_OPTION_TYPES = (bool, int, float, str)


@dataclass(frozen=True)
class Problem:
    """Reason why a plugin is not in use: the stage of loading that failed, and the message."""

    plugin: str
    stage: Stage
    message: str


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin. `distribution` and `version` are the name and version of its package, "" if it was not installed from
    one. `kinds` are its targets, `formats` the names of its frontends. `problem` is None for a plugin in use."""

    name: str
    distribution: str
    version: str
    kinds: tuple[str, ...]
    problem: Problem | None = None
    formats: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """ "ok", or the failed stage and the reason."""
        return "ok" if self.problem is None else f"{self.problem.stage}: {self.problem.message}"


@dataclass(frozen=True)
class Found:
    """Result of discovery: pluggy's manager with the plugins in use; all plugins, by name; targets by kind and frontends by name,
    each with the name of its plugin. Frontends of the core come first."""

    manager: pluggy.PluginManager
    plugins: tuple[PluginInfo, ...]
    specs: dict[str, tuple[str, TargetSpec]]
    frontends: dict[str, tuple[str, Frontend]]


def discover(entry_points: Iterable[EntryPoint]) -> Found:
    """Load plugins. A plugin that fails is recorded, not raised."""
    return _Discovery().run(tuple(entry_points))


class _Rejected(Exception):
    """Raised if a plugin cannot be used."""

    def __init__(self, stage: Stage, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@dataclass(frozen=True)
class _Candidate:
    name: str
    distribution: str
    version: str
    entry_point: EntryPoint


class _Discovery:
    """State of one discovery."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("inlaid")
        self.manager.add_hookspecs(hookspecs)
        self.problems: list[tuple[_Candidate, Problem]] = []

    def run(self, entry_points: Sequence[EntryPoint]) -> Found:
        disabled = {name.strip() for name in os.environ.get(DISABLED, "").split(",")}
        loaded: dict[str, _Candidate] = {}
        for candidate in _distinct(entry_points):
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
        targets: dict[str, tuple[TargetSpec, ...]] = {}
        formats: dict[str, tuple[Frontend, ...]] = {}
        for name, candidate in list(loaded.items()):
            try:
                targets[name], formats[name] = _declared_targets(self.manager, name), _declared_frontends(self.manager, name)
            except _Rejected as error:
                self._reject(candidate, error)
        frontends = self._share_formats(formats, loaded)
        specs = self._share_kinds({name: specs for name, specs in targets.items() if self.manager.has_plugin(name)}, loaded)
        infos = [PluginInfo(c.name, c.distribution, c.version, (), problem) for c, problem in self.problems]
        for name in sorted(set(formats) & set(self._registered())):
            candidate = loaded[name]
            kinds, names = tuple(spec.kind for spec in targets[name]), tuple(item.name for item in formats[name])
            infos.append(PluginInfo(name, candidate.distribution, candidate.version, kinds, formats=names))
        usable = {name: found for name, found in frontends.items() if self.manager.has_plugin(found[0])}
        return Found(self.manager, tuple(sorted(infos, key=lambda info: info.name)), specs, usable)

    def _registered(self) -> list[str]:
        return [name for name, plugin in self.manager.list_name_plugin() if plugin is not None]

    def _reject(self, candidate: _Candidate, error: _Rejected) -> None:
        self.problems.append((candidate, Problem(candidate.name, error.stage, str(error))))
        # A plugin whose name is already in use was never registered, so unregistering the name would remove the other one.
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
                self._reject(loaded.pop(name), _Rejected("hooks", f"{error}; known hooks are {', '.join(_HOOKS)}"))

    def _share_kinds(
        self, declared: dict[str, tuple[TargetSpec, ...]], loaded: dict[str, _Candidate]
    ) -> dict[str, tuple[str, TargetSpec]]:
        """Assign each target kind to one plugin. A plugin with the same name as the kind has precedence, so that no plugin takes
        over the target by coming first in the alphabet."""
        specs: dict[str, tuple[str, TargetSpec]] = {}
        for name in sorted(declared, key=lambda name: (name not in {spec.kind for spec in declared[name]}, name)):
            taken = [spec.kind for spec in declared[name] if spec.kind in specs]
            if taken:
                owner = specs[taken[0]][0]
                self._reject(loaded[name], _Rejected("targets", f"target {taken[0]} is already provided by plugin {owner}"))
                continue
            specs.update({spec.kind: (name, spec) for spec in declared[name]})
        return specs

    def _share_formats(
        self, declared: dict[str, tuple[Frontend, ...]], loaded: dict[str, _Candidate]
    ) -> dict[str, tuple[str, Frontend]]:
        """Assign each frontend name to one plugin: the core's first, then by plugin name."""
        found: dict[str, tuple[str, Frontend]] = {}
        for name in sorted(declared, key=lambda name: (loaded[name].distribution != CORE, name)):
            taken = [item.name for item in declared[name] if item.name in found]
            if taken:
                owner = found[taken[0]][0]
                self._reject(loaded[name], _Rejected("frontends", f"frontend {taken[0]} is already provided by plugin {owner}"))
                continue
            found.update({item.name: (name, item) for item in declared[name]})
        return found


def _distinct(entry_points: Iterable[EntryPoint]) -> Iterable[_Candidate]:
    """Return the plugins in order, each module once: the runtime and a plugin's own distribution may declare the same module."""
    found: dict[tuple[str, str], _Candidate] = {}
    for candidate in sorted(map(_candidate, entry_points), key=_rank):
        found.setdefault((candidate.name, candidate.entry_point.value), candidate)
    return found.values()


def _candidate(entry_point: EntryPoint) -> _Candidate:
    dist = getattr(entry_point, "dist", None)
    return _Candidate(entry_point.name, "" if dist is None else dist.name, "" if dist is None else dist.version, entry_point)


def _rank(candidate: _Candidate) -> tuple[object, ...]:
    """Compute a sort key: by name; among equal names, plugins of the core first and plugins of the runtime last."""
    distribution = candidate.distribution
    return candidate.name, distribution != CORE, distribution == RUNTIME, distribution, candidate.entry_point.value


def _whence(candidate: _Candidate) -> str:
    return f"distribution {candidate.distribution}" if candidate.distribution else candidate.entry_point.value


def _declared_targets(manager: pluggy.PluginManager, plugin: str) -> tuple[TargetSpec, ...]:
    try:
        specs: tuple[TargetSpec, ...] = sequence(call(manager, plugin, "inlaid_targets"), TargetSpec, plugin, "inlaid_targets")
    except InlaidError as error:
        raise _Rejected("targets", error.message) from error
    for index, spec in enumerate(specs):
        if not _NAME.fullmatch(spec.kind):
            raise _Rejected("targets", f"a target kind must be lower-case letters, digits and underscores, got {spec.kind!r}")
        if any(spec.kind == other.kind for other in specs[:index]):
            raise _Rejected("targets", f"inlaid_targets returned {spec.kind} twice")
        if not callable(spec.capabilities):
            raise _Rejected("targets", f"the capabilities of {spec.kind} must be a function of its options")
        _check_options(spec)
    return specs


def _declared_frontends(manager: pluggy.PluginManager, plugin: str) -> tuple[Frontend, ...]:
    try:
        found: tuple[Frontend, ...] = sequence(call(manager, plugin, "inlaid_frontends"), Frontend, plugin, "inlaid_frontends")
    except InlaidError as error:
        raise _Rejected("frontends", error.message) from error
    for index, item in enumerate(found):
        if not _NAME.fullmatch(item.name):
            raise _Rejected("frontends", f"a frontend name must be lower-case letters, digits and underscores, got {item.name!r}")
        if any(item.name == other.name for other in found[:index]):
            raise _Rejected("frontends", f"inlaid_frontends returned {item.name} twice")
        if not callable(item.load) or not callable(item.recognises):
            raise _Rejected("frontends", f"load and recognises of {item.name} must be functions")
        wrong = [suffix for suffix in item.suffixes if not _SUFFIX.fullmatch(suffix)]
        if wrong:
            raise _Rejected("frontends", f"suffix {wrong[0]!r} of {item.name} must be a dot and lower-case characters, as in .onnx")
    return found


def _check_options(spec: TargetSpec) -> None:
    options = spec.options
    if not (dataclasses.is_dataclass(options) and getattr(options, "__dataclass_params__").frozen):  # noqa: B009
        raise _Rejected("targets", f"the options of {spec.kind} must be a frozen dataclass")
    for item in dataclasses.fields(options):
        if type(item.default) not in _OPTION_TYPES:
            raise _Rejected("targets", f"option {item.name} of {spec.kind} must have a bool, int, float or string as its default")


def call(manager: pluggy.PluginManager, plugin: str, hook: str, **arguments: object) -> object:
    """Call one plugin's implementation of a hook. Returns None if it has none."""
    module = manager.get_plugin(plugin)
    others = [other for other in manager.get_plugins() if other is not module]
    caller: Callable[..., list[object]] = manager.subset_hook_caller(hook, remove_plugins=others)
    with blame(plugin, hook):
        answers = caller(**arguments)
    return answers[0] if answers else None


def sequence(answer: object, element: type, plugin: str, hook: str) -> tuple[Any, ...]:
    if answer is None:
        return ()
    if not isinstance(answer, (list, tuple)):
        raise PluginError(f"{hook} must return a list or tuple, got {type(answer).__name__}", plugin=plugin)
    for item in answer:
        expect(item, element, plugin, hook)
    return tuple(answer)


def expect(value: object, wanted: type, plugin: str, hook: str) -> object:
    if not isinstance(value, wanted):
        raise PluginError(f"{hook} must return {wanted.__name__}, got {type(value).__name__}", plugin=plugin)
    return value
