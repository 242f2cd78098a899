"""The target that the suite checks, with cached results of frequent queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar, cast

from inlaid import ops
from inlaid.driver.build import package_alone
from inlaid.driver.candidates import build_candidate
from inlaid.driver.compile import compile_module, cut
from inlaid.driver.context import DriverContext
from inlaid.driver.region import request_borders
from inlaid.driver.standalone import check_standalone
from inlaid.graph import ir
from inlaid.graph.keys import structural_key
from inlaid.graph.operator import Operator
from inlaid.partitioning import Partitioned
from inlaid.partitioning.annotate import Candidate, Claim, annotate, in_full
from inlaid.partitioning.assignment import by_priority
from inlaid.partitioning.compose import alone
from inlaid.partitioning.outline import outlined
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
from inlaid_runtime.cache import caches
from inlaid_runtime.errors import InlaidError, PluginError, Unsupported
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.package import Package

T = TypeVar("T")
RECENT = 8
"""Number of recent executables that are cached for equal functions."""
EXAMPLES = 2
"""Default number of random examples per operator and common element type."""


class TargetUnderTest:
    """A target by its string, such as `acme` or `acme:cores=2`, in a registry. The plugin is queried lazily. `examples` is the
    number of random examples per operator and element type."""

    def __init__(self, text: str, registry: PluginRegistry, examples: int = EXAMPLES) -> None:
        self.text = text
        self.registry = registry
        self.examples = examples
        self._cache: dict[Callable[[TargetUnderTest], Any], Any] = {}
        self._recent: dict[str, Executable] = {}
        self._cuts: dict[str, tuple[Partitioned, tuple[Candidate, ...]]] = {}

    @cached_property
    def problem(self) -> str | None:
        """Why the plugin is unusable, None if it is usable."""
        try:
            self.registry.target(self.text)
        except InlaidError as error:
            problems = [item for item in self.registry.problems() if item.plugin == self.text.partition(":")[0]]
            return f"{problems[0].stage}: {problems[0].message}" if problems else str(error)
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
        """Input of the target's code generator: graphs or loop programs."""
        return self.registry.spec(self.target.kind).level

    @cached_property
    def capabilities(self) -> Capabilities:
        """The target's declared capabilities."""
        return self.registry.capabilities(self.target)

    @cached_property
    def device(self) -> DeviceStatus:
        """Whether the target can run here."""
        return self.registry.probe(self.target)

    @cached_property
    def conformance(self) -> Conformance:
        """The target's tolerances, expected failures and examples."""
        return self.registry.conformance(self.target)

    @cached_property
    def candidate(self) -> Candidate:
        """The target and its rules, as input of the partitioner. Raises `PluginError` for unusable rules."""
        return build_candidate(self.target, self.registry)

    @cached_property
    def unruly(self) -> str | None:
        """Why the target's rules are unusable, None if they are usable."""
        try:
            _ = self.candidate
        except PluginError as error:
            return str(error)
        return None

    @cached_property
    def codegen(self) -> Codegen:
        """The target's code generator."""
        return self.registry.codegen(self.target)

    def once(self, work: Callable[[TargetUnderTest], T]) -> T:
        """Return `work(self)`, evaluated at the first call and cached."""
        if work not in self._cache:
            self._cache[work] = work(self)
        return cast("T", self._cache[work])

    def claim(self, function: ir.Function, rule: OpRule | None = None) -> Claim | Reject:
        """Find the claim by which the target accepts a function as a whole, as the partitioner would choose it or by a given
        `rule`; else a rejection. The body is one call or several that give one value. A rule that raises counts as a rejection."""
        try:
            annotated = annotate(function, (self.candidate,))
        except PluginError as error:
            return Reject(f"a rule failed: {error}")
        root = function.body
        assert isinstance(root, ir.Call)
        if rule is None:
            root_claim = next((claim for claim in by_priority(annotated) if claim.root is root), None)
        else:
            root_claim = next((claim for claim in annotated.claims if claim.root is root and claim.composite is rule), None)
        if root_claim is not None and len(root_claim.members) == len(annotated.calls):
            return root_claim
        (verdict,) = annotated.verdicts[id(root)]
        if not isinstance(verdict, Reject):
            return Reject("the target supports only a part")
        assert isinstance(root.callee, Operator)
        by_name = rule is not None or {root.callee.name, ANY} & {*self.candidate.by_name}
        return verdict if by_name else in_full(verdict, root, self.candidate)

    def verdict(self, function: ir.Function) -> Verdict:
        """Return the verdict of the target's rules on an operator. The body of `function` is a call of the operator."""
        claim = self.claim(function)
        return claim if isinstance(claim, Reject) else claim.verdict

    def claims(self, function: ir.Function) -> bool:
        """Test whether the target accepts an operator, perhaps under a condition. The body of `function` is a call of it."""
        return isinstance(self.claim(function), Claim)

    def context(self, keep: bool = True) -> DriverContext:
        """Create compiler services for the code generator; with `keep`, the user's cache is used."""
        return DriverContext(self.target, self.registry, ops.TABLE, objects=caches(keep).objects)

    def unit(self, region: Region, keep: bool = True) -> Any:
        """Return the input of the code generator for a region: the region, or its loop programs. Raises errors of lowering."""
        return self.context(keep).unit(region) if self.level is Level.LOOP else region

    def region(self, symbol: str, function: ir.Function) -> Region:
        """Outline a function as a region with the borders that the code generator asks for, and raise its errors."""
        return self._bordered(Region(symbol, outlined(self.composed(function), self.target), self.target))

    def _bordered(self, region: Region) -> Region:
        return replace(region, borders=request_borders(region, self.registry))

    def composed(self, function: ir.Function) -> ir.Function:
        """Wrap the body of a function, one call, in the composite by which the target accepts it; without one, return
        `function`."""
        is_operator_call = isinstance(function.body, ir.Call) and isinstance(function.body.callee, Operator)
        claim = self.claim(function) if is_operator_call else None
        return alone(function, claim) if isinstance(claim, Claim) else function

    def package(self, function: ir.Function, keep: bool = True) -> Package:
        """Compile a whole function as one region for the target, regardless of its rules."""
        return package_alone(self.composed(function), self.candidate, self.registry, keep=keep)

    def load(self, function: ir.Function) -> Executable:
        """Compile with `package`, and load the result."""
        return Executable(self.package(function), registry=self.registry)

    def load_once(self, function: ir.Function) -> Executable:
        """Load a function as `load` does, or reuse a recent executable: functions of examples are often equal."""
        key = structural_key(function)
        executable = self._recent.pop(key, None) or self.load(function)
        self._recent[key] = executable
        for oldest in list(self._recent)[:-RECENT]:
            del self._recent[oldest]
        return executable

    def load_model(self, module: ir.Module) -> Executable:
        """Compile a model that is not `refused`. The host fallback runs the parts that the target does not support."""
        return compile_module(module, [self.text], self.registry)

    def cut(self, module: ir.Module) -> tuple[Region, ...]:
        """Partition a model and return the target's regions."""
        partitioned, _ = self._cut(module)
        return self._target_regions(partitioned)

    def refused(self, module: ir.Module) -> str | None:
        """Explain why a model does not run on the target, even with the host fallback. Returns None if it runs."""
        partitioned, candidates = self._cut(module)
        try:
            check_standalone(partitioned, candidates, 1, self.registry)
        except Unsupported as error:
            return error.message
        if self._target_regions(partitioned):
            return None
        verdicts = [
            call_verdicts[0] for placement in partitioned.placements for call_verdicts in placement.annotated.verdicts.values()
        ]
        reasons = Counter(verdict.reason for verdict in verdicts if isinstance(verdict, Reject))
        return f"it supports no part of the model: {reasons.most_common(1)[0][0]}"

    def _cut(self, module: ir.Module) -> tuple[Partitioned, tuple[Candidate, ...]]:
        """Partition a module, and cache the result for equal modules, since many cases use the same few models."""
        key = structural_key(module)
        if key not in self._cuts:
            self._cuts[key] = cut(module, [self.text], self.registry)
        return self._cuts[key]

    def _target_regions(self, partitioned: Partitioned) -> tuple[Region, ...]:
        names = [name for name, number in partitioned.regions.items() if number == 0]
        return tuple(self._bordered(Region(name, partitioned.module[name], self.target)) for name in names)
