"""Conversion of regions to steps, for code generators that take graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inlaid.graph.ir import Call, in_order
from inlaid.graph.operator import Operator
from inlaid.lowering.steps import Step, StepProgram, convert_to_steps
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.borders import stored_function, stored_type
from inlaid.plugins import Form, MemoryScope, Region, Reject, Scratch
from inlaid_runtime.errors import Unsupported


def region_steps(
    region: Region,
    candidate: Candidate,
    scopes: Sequence[MemoryScope],
    form: Form | None,
    scratch: Callable[[Step], Sequence[Scratch]] | None,
) -> StepProgram:
    """Convert a region to steps; see `DriverContext.steps`. `scopes` are the memory scopes of the target."""
    for expr in in_order(region.function.body):
        if isinstance(expr, Call) and isinstance(expr.callee, Operator):
            verdict = candidate.judge(expr)
            if isinstance(verdict, Reject):
                raise Unsupported(verdict.reason, operator=expr.callee.name, node=str(expr.span or "") or None)
    outer_function = region.function if region.borders is None else stored_function(region.function, region.borders)
    inner_type = (lambda type_: type_) if form is None else (lambda type_: stored_type(type_, form(type_)))
    return convert_to_steps(region.symbol, region.function, candidate.rules, outer_function, inner_type, scratch, scopes)
