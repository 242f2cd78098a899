"""The target that the suite looks at, and what it is asked over and over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar, cast

from inlaid import ops
from inlaid.cache import caches
from inlaid.driver.build import package_alone
from inlaid.driver.compile import compile_module, cut
from inlaid.driver.context import DriverContext, candidate
from inlaid.driver.region import borders_of
from inlaid.driver.standalone import check_whole
from inlaid.errors import InlaidError, PluginError, Unsupported
from inlaid.graph import ir
from inlaid.graph.keys import structural_key
from inlaid.graph.operator import Operator
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate, Claim, annotate, in_full
from inlaid.partitioning.compose import alone
from inlaid.partitioning.outline import outlined
from inlaid.partitioning.place import by_priority
from inlaid.partitioning.rules import ANY
from inlaid.plugins import (
    Capabilities,
    Codegen,
    Conformance,
    DeviceStatus,
    Level,
    OpRule,
    Region,
    Reject,
    Target,
    Verdict,
)
from inlaid.plugins.registry import PluginRegistry
from inlaid.runtime.executable import Executable
from inlaid.runtime.package import Package

T = TypeVar("T")
RECENT = 8
"""Executables that are kept for functions equal to theirs."""
EXAMPLES = 2
"""Drawn examples of each operator and common element type, unless more are asked for."""


class TargetUnderTest:
    """A target by its text, such as `acme` or `acme:cores=2`, among the plugins of a registry. Nothing is asked of the plugin
    before it is needed; `examples` is how many drawn examples an operator and element type are tried on."""

    def __init__(self, text: str, registry: PluginRegistry, examples: int = EXAMPLES) -> None:
        self.text = text
        self.registry = registry
        self.examples = examples
        self._done: dict[Callable[[TargetUnderTest], Any], Any] = {}
        self._recent: dict[str, Executable] = {}
        self._cuts: dict[str, tuple[Partitioned, tuple[Candidate, ...]]] = {}

    @cached_property
    def problem(self) -> str | None:
        """Why the plugin cannot be used at all, None where it can."""
        try:
            self.registry.target(self.text)
        except InlaidError as error:
            own = [item for item in self.registry.problems() if item.plugin == self.text.partition(":")[0]]
            return f"{own[0].stage}: {own[0].message}" if own else str(error)
        return None

    @cached_property
    def target(self) -> Target:
        """The target. Raises `TargetError`."""
        return self.registry.target(self.text)

    @cached_property
    def plugin(self) -> str:
        """The name of the plugin that provides the target."""
        return self.registry.owner(self.target.kind)

    @cached_property
    def level(self) -> Level:
        """What its code generator is given."""
        return self.registry.spec(self.target.kind).level

    @cached_property
    def capabilities(self) -> Capabilities:
        """What it says that it can do."""
        return self.registry.capabilities(self.target)

    @cached_property
    def device(self) -> DeviceStatus:
        """Whether it can run here."""
        return self.registry.probe(self.target)

    @cached_property
    def conformance(self) -> Conformance:
        """Tolerances, and failures that its plugin expects."""
        return self.registry.conformance(self.target)

    @cached_property
    def candidate(self) -> Candidate:
        """The target as the partitioner sees it. Raises `PluginError` for rules that cannot be used."""
        return candidate(self.target, self.registry)

    @cached_property
    def unruly(self) -> str | None:
        """Why its rules cannot be used, None where they can."""
        try:
            _ = self.candidate
        except PluginError as error:
            return str(error)
        return None

    @cached_property
    def codegen(self) -> Codegen:
        """Its code generator."""
        return self.registry.codegen(self.target)

    def once(self, work: Callable[[TargetUnderTest], T]) -> T:
        """What a function makes of the tested, worked out once."""
        if work not in self._done:
            self._done[work] = work(self)
        return cast("T", self._done[work])

    def claim(self, function: ir.Function, rule: OpRule | None = None) -> Claim | Reject:
        """What the target claims of a function that is one call of an operator, or several that make one value: all of it, as the
        partitioner would choose, or by a `rule`. Rules that fail to say reject; see `levels.annotations`."""
        try:
            annotated = annotate(function, (self.candidate,))
        except PluginError as error:
            return Reject(f"its rule fails: {error}")
        root = function.body
        assert isinstance(root, ir.Call)
        if rule is None:
            found = next((claim for claim in by_priority(annotated) if claim.root is root), None)
        else:
            found = next((claim for claim in annotated.claims if claim.root is root and claim.composite is rule), None)
        if found is not None and len(found.members) == len(annotated.calls):
            return found
        (verdict,) = annotated.verdicts[id(root)]
        if not isinstance(verdict, Reject):
            return Reject("it takes a part alone")
        assert isinstance(root.callee, Operator)
        by_name = rule is not None or {root.callee.name, ANY} & {*self.candidate.by_name}
        return verdict if by_name else in_full(verdict, root, self.candidate)

    def verdict(self, function: ir.Function) -> Verdict:
        """What its rules say of the operator whose call a function is."""
        found = self.claim(function)
        return found if isinstance(found, Reject) else found.verdict

    def claims(self, function: ir.Function) -> bool:
        """Whether it takes the operator whose call a function is, under a condition at most."""
        return isinstance(self.claim(function), Claim)

    def context(self, keep: bool = True) -> DriverContext:
        """The compiler's services to its code generator; without `keep`, nothing is taken from the user's cache."""
        return DriverContext(self.target, self.registry, ops.TABLE, objects=caches(keep).objects)

    def unit(self, region: Region, keep: bool = True) -> Any:
        """What its code generator is given for a region. Raises as lowering does."""
        return self.context(keep).unit(region) if self.level is Level.LOOP else region

    def region(self, symbol: str, function: ir.Function) -> Region:
        """A function as a region of its own, as the partitioner would outline it, with the borders that its code generator asks
        for. Raises as that does."""
        return self._bordered(Region(symbol, outlined(self.composed(function), self.target), self.target))

    def _bordered(self, region: Region) -> Region:
        return replace(region, borders=borders_of(region, self.registry))

    def composed(self, function: ir.Function) -> ir.Function:
        """A function that is a call of an operator, as the composite that the target takes it for, where it does so; else as it
        is."""
        single = isinstance(function.body, ir.Call) and isinstance(function.body.callee, Operator)
        found = self.claim(function) if single else None
        return alone(function, found) if isinstance(found, Claim) else function

    def package(self, function: ir.Function, keep: bool = True) -> Package:
        """The whole of a function compiled as one region for the target, whatever its rules say of it."""
        return package_alone(self.composed(function), self.candidate, self.registry, keep=keep)

    def load(self, function: ir.Function) -> Executable:
        """`package`, ready to run."""
        return Executable(self.package(function), registry=self.registry)

    def load_once(self, function: ir.Function) -> Executable:
        """`load`, or the executable of an equal function if that was loaded recently: examples often differ in inputs alone."""
        key = structural_key(function)
        found = self._recent.pop(key, None) or self.load(function)
        self._recent[key] = found
        for oldest in list(self._recent)[:-RECENT]:
            del self._recent[oldest]
        return found

    def load_model(self, module: ir.Module) -> Executable:
        """A model that is not `refused`, compiled for the target, and for the host what the target does not take."""
        return compile_module(module, [self.text], self.registry)

    def cut(self, module: ir.Module) -> tuple[Region, ...]:
        """The regions of the target in a model, as the partitioner cuts it."""
        partitioned, _ = self._cut(module)
        return self._own(partitioned)

    def refused(self, module: ir.Module) -> str | None:
        """Why a model does not run on the target, not even together with the host; None where it does."""
        partitioned, takers = self._cut(module)
        try:
            check_whole(partitioned, takers, 1, self.registry)
        except Unsupported as error:
            return error.message
        if self._own(partitioned):
            return None
        verdicts = [all_[0] for placement in partitioned.placements for all_ in placement.annotated.verdicts.values()]
        reasons = Counter(verdict.reason for verdict in verdicts if isinstance(verdict, Reject))
        return f"it takes no part of the model: {reasons.most_common(1)[0][0]}"

    def _cut(self, module: ir.Module) -> tuple[Partitioned, tuple[Candidate, ...]]:
        """What `cut` makes of a module, worked out once for equal ones: many cases ask about the same few models."""
        key = structural_key(module)
        if key not in self._cuts:
            self._cuts[key] = cut(module, [self.text], self.registry)
        return self._cuts[key]

    def _own(self, partitioned: Partitioned) -> tuple[Region, ...]:
        names = [name for name, number in partitioned.regions.items() if number == 0]
        return tuple(self._bordered(Region(name, partitioned.module[name], self.target)) for name in names)
