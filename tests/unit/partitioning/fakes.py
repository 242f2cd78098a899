"""Region-level targets that take what they are told to, through the real registry, and run it by the reference interpreter."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tests.plugin_registry import REFERENCE, both_halves

from inlaid.driver.compile import candidates_for
from inlaid.graph.ir import Call
from inlaid.graph.operator import Operator
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.borders import stored_function
from inlaid.plugins import (
    Accept,
    Border,
    Borders,
    Capabilities,
    CompileContext,
    NoOptions,
    OpRule,
    Phase,
    Region,
    Reject,
    Target,
    TargetSpec,
    Verdict,
    hookimpl,
)
from inlaid.plugins.registry import PluginRegistry
from inlaid.reference.codegen import ReferenceCodegen
from inlaid.reference.runtime import ReferenceRuntime
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.types import TupleType, Type

Judge = Callable[[Call], Verdict] | tuple[OpRule, ...]
"""A predicate on every operator, or all the rules."""


def taking(*names: str) -> Judge:
    """A predicate that takes operators by name."""

    def judge(call: Call) -> Verdict:
        assert isinstance(call.callee, Operator)
        return Accept() if call.callee.name in names else Reject(f"takes no {call.callee.name}")

    return judge


Form = Callable[[Type], Border]
"""The border that a code generator wants of a tensor of that type."""


class FormsCodegen(ReferenceCodegen):
    """The reference's, of what is stored, in the forms that it is told to want."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def borders(self, region: Region) -> Borders | None:
        """A form for each tensor."""
        results = region.function.body.type
        assert isinstance(results, TupleType)
        inputs = tuple(self.form(param.type) for param in region.function.params)
        return Borders(inputs, tuple(map(self.form, results.fields)))

    def compile(self, unit: Region, context: CompileContext) -> Artifact:
        """The region, with conversions inside of it."""
        if unit.borders is not None:
            unit = replace(unit, function=stored_function(unit.function, unit.borders))
        return super().compile(unit, context)


def plugin(
    kind: str, judge: Judge, dtypes: tuple[str, ...], form: Form | None = None, passes: Sequence[Any] = (), **facts: Any
) -> types.ModuleType:
    """A module that is a plugin for one target. `form` is what its code generator wants at borders, `passes` run before
    partitioning."""
    module: Any = types.ModuleType(f"fake_{kind}")
    module.PLUGIN_API_VERSION = 3

    @hookimpl
    def inlaid_targets() -> list[TargetSpec]:
        return [TargetSpec(kind, "of a test", lambda options: Capabilities(dtypes, **facts), options=NoOptions)]

    @hookimpl
    def inlaid_op_rules(target: Target) -> list[OpRule]:
        if target.kind != kind:
            return []
        return list(judge) if isinstance(judge, tuple) else [OpRule("*", "rule", judge)]

    @hookimpl
    def inlaid_codegen(target: Target) -> ReferenceCodegen:
        return ReferenceCodegen() if form is None else FormsCodegen(form)

    @hookimpl
    def inlaid_runtime(target: Target) -> ReferenceRuntime:
        return ReferenceRuntime()

    @hookimpl
    def inlaid_passes(target: Target, phase: Phase) -> Sequence[Any]:
        return passes if target.kind == kind and phase is Phase.BEFORE_PARTITION else ()

    for hook in (inlaid_targets, inlaid_op_rules, inlaid_codegen, inlaid_runtime, inlaid_passes):
        setattr(module, hook.__name__, hook)
    return module  # type: ignore[no-any-return]


FAKE_DTYPES = ("float32", "float64", "int64", "int32", "bool")


def make_registry(
    judges: Mapping[str, Judge],
    dtypes: tuple[str, ...] = FAKE_DTYPES,
    forms: Mapping[str, Form] = MappingProxyType({}),
    **facts: Any,
) -> PluginRegistry:
    """A registry with a fake target per judge, by kind, and the reference target. `forms` are by kind, too."""
    points = []
    for kind, judge in judges.items():
        module = plugin(kind, judge, dtypes, forms.get(kind), **facts)
        sys.modules[module.__name__] = module
        points += both_halves(kind, module.__name__)
    try:
        registry = PluginRegistry.discover([*points, *REFERENCE])
        assert not registry.runtimes.problems()
    finally:
        for point in points[::2]:
            del sys.modules[point.value]
    assert not registry.problems(), registry.problems()
    return registry


def fake_candidates(judges: Mapping[str, Judge], **facts: Any) -> tuple[Candidate, ...]:
    """The fake targets in order, the reference target last, as the partitioner sees them."""
    return candidates_for(list(judges), make_registry(judges, **facts))
