"""Calibration: value ranges of a float model, and the resulting scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Module, Var
from inlaid.graph.operator import Operator
from inlaid.ops.compose import expr_type
from inlaid_quantization.forms import Move, Softmax, Sum
from inlaid_quantization.histogram import Array, Histogram
from inlaid_quantization.plan import Plan
from inlaid_quantization.ranges import Scale, choose_scale, compute_scales
from inlaid_quantization.settings import Quantization
from inlaid_runtime.errors import InputError, Remedy

MASK_MARGIN = 12.0
"""Margin by which the range of a tensor with masked values is extended downwards: after quantization, the exponential of a masked
value is 0 relative to that of the least unmasked value."""
Sample = Mapping[str, Any]
Run = Callable[[Sample], Sequence[Array]]
"""Runs a module on one sample and returns its outputs in order."""
Compile = Callable[[Module], Run]
"""Compiles a module to a `Run` function."""


class Scales:
    """Scales of the stored expressions of a plan. The result of a data-moving operator shares the scale of its operands."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parent: dict[int, int] = {id(expr): id(expr) for expr in plan.stored}
        for expr in plan.stored:
            if plan.is_moved(expr):
                for operand in plan.steps[id(expr)].operands:
                    self._parent[self._root(operand)] = self._root(expr)
        self._scales: dict[int, Scale] = {}

    def _root(self, expr: Expr) -> int:
        key = id(expr)
        while self._parent[key] != key:
            self._parent[key] = self._parent[self._parent[key]]
            key = self._parent[key]
        return key

    def __getitem__(self, expr: Expr) -> Scale:
        return self._scales[self._root(expr)]

    def get(self, expr: Expr) -> Scale | None:
        """Return the scale of an expression; None if the expression is not stored."""
        return self[expr] if id(expr) in self._parent else None

    def choose(self, histograms: Mapping[int, Histogram], settings: Quantization) -> None:
        """Choose all scales from the observed values. `histograms` maps the id of an expression to its histogram."""
        groups: dict[int, list[Expr]] = {}
        for expr in self._plan.stored:
            groups.setdefault(self._root(expr), []).append(expr)
        for root, members in groups.items():
            group_histogram = Histogram()
            for expr in members:
                for histogram in _contributed_histograms(expr, self._plan, histograms):
                    group_histogram.merge(histogram)
            margin = MASK_MARGIN + self._spread(members, histograms) if group_histogram.masked else 0.0
            if all(self._is_softmax_or_moved(expr) for expr in members):
                scales, zero_points = compute_scales(np.zeros(1), np.array([255 / 256]), settings)
                self._scales[root] = Scale(float(scales[0]), int(zero_points[0]))
            else:
                self._scales[root] = choose_scale(group_histogram, settings, margin)

    def _spread(self, members: Sequence[Expr], histograms: Mapping[int, Histogram]) -> float:
        """Return the widest range of unmasked values among sums that have a member as operand; 0 without such a sum."""
        member_ids = {id(expr) for expr in members}
        widest = 0.0
        for expr in self._plan.stored:
            step = self._plan.steps.get(id(expr))
            if step is not None and isinstance(step.form, Sum) and any(id(operand) in member_ids for operand in step.operands):
                widest = max(widest, histograms[id(expr)].greatest - histograms[id(expr)].least)
        return widest

    def _is_softmax_or_moved(self, expr: Expr) -> bool:
        """Test whether an expression is a softmax or a moved value. In a group of only these, values are always between 0 and 1."""
        step = self._plan.steps.get(id(expr))
        return step is not None and (isinstance(step.form, Softmax) or self._plan.is_moved(expr))


def _contributed_histograms(expr: Expr, plan: Plan, histograms: Mapping[int, Histogram]) -> Sequence[Histogram]:
    """Return histograms of the values that an expression contributes to the scale of its group."""
    if isinstance(expr, Constant):
        return [_counted(expr.data, id(expr) in plan.masked)]
    if not plan.is_moved(expr):
        return [histograms[id(expr)]]
    step = plan.steps[id(expr)]
    assert isinstance(step.form, Move)
    fill = None if step.form.fill is None else step.form.call.args[step.form.fill]
    # Minus infinity as the padding of a maximum is stored as the least value.
    return [_counted(fill.data)] if isinstance(fill, Constant) and np.isfinite(fill.data).all() else []


def _counted(data: Array, masked: bool = False) -> Histogram:
    histogram = Histogram()
    (histogram.add_unmasked if masked else histogram.add)(data)
    return histogram


def observed(plan: Plan) -> tuple[Expr, ...]:
    """Return the stored expressions to observe: all except constants and results of data-moving operators."""
    return tuple(expr for expr in plan.stored if not isinstance(expr, Constant) and not plan.is_moved(expr))


def gather(plan: Plan, samples: Sequence[Sample], run: Run) -> dict[int, Histogram]:
    """Return a histogram of each observed expression over all samples, by id. Only one sample is in memory at a time. The first
    outputs of `run` are the observed values. Raises `InputError` for non-finite values, and for a sample that does not fit the
    model."""
    observed_exprs = observed(plan)
    histograms = {id(expr): Histogram() for expr in observed_exprs}
    for number, sample in enumerate(samples):
        try:
            outputs = run(sample)
        except InputError as error:
            raise InputError(f"sample {number}: {error.message}", remedy=error.remedy) from error
        for expr, values in zip(observed_exprs, outputs, strict=False):
            try:
                (histograms[id(expr)].add_unmasked if id(expr) in plan.masked else histograms[id(expr)].add)(values)
            except ValueError as error:
                raise InputError(
                    f"sample {number} gives {error} at {node_name(expr)}",
                    remedy=Remedy("leave the sample out, or keep the operator float with keep_float", "leave the sample out"),
                ) from None
    return histograms


def node_name(expr: Expr) -> str:
    """Return the name of an expression in reports: its source node."""
    if isinstance(expr, Var):
        return f"input {expr.name}"
    if expr.span is not None:
        return expr.span.node
    return expr.callee.name if isinstance(expr, Call) and isinstance(expr.callee, Operator) else repr(expr_type(expr))
