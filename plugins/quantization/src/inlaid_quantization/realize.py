"""Builds the integer function of a plan with its scales."""

from __future__ import annotations

import dataclasses

from inlaid.graph.ir import Constant, Expr, Function, Tuple, Var, children, constant, function, rebuild, tuple_, var
from inlaid.graph.rewrite import spread_span
from inlaid.ops.compose import expr_type
from inlaid.passes.tables import tabulate
from inlaid_quantization.calibrate import Scales, observed
from inlaid_quantization.choices import FLOAT
from inlaid_quantization.forms import Form, Move
from inlaid_quantization.match import is_real
from inlaid_quantization.plan import Plan, Step
from inlaid_quantization.settings import Quantization
from inlaid_quantization.totals import Stored, Total, as_real, dequantized, limited, quantized, store
from inlaid_runtime.types import TensorType


@dataclasses.dataclass(frozen=True)
class Realized:
    """The quantized function `main`, and `probe`, a function for measurements. `probe` returns, in order, the stored values of
    observed expressions, the floats of expressions that are never stored, and the model's float32 outputs."""

    main: Function
    probe: Function


def realize(plan: Plan, scales: Scales, settings: Quantization) -> Realized:
    """Build the function of a plan, with tables for functions of one stored tensor."""
    builder = _Builder(plan, scales, settings)
    builder.run()
    results = [builder.result(expr) for expr in plan.outputs]
    layer_values = [*(builder.stored[id(expr)] for expr in observed(plan)), *(builder.real[id(expr)] for expr in plan.direct)]
    # Build one function first, so that both have the same tables.
    tabulated = tabulate(function(builder.params, tuple_([*layer_values, *results])), cheap=True)
    assert isinstance(tabulated.body, Tuple)
    fields = tabulated.body.fields
    outputs = fields[len(layer_values) :]
    body = tuple_(outputs) if isinstance(plan.main.body, Tuple) else outputs[0]
    real_outputs = [field for field, expr in zip(outputs, plan.outputs, strict=True) if is_real(expr)]
    return Realized(
        function(tabulated.params, body, plan.main.attrs, span=plan.main.span),
        function(tabulated.params, tuple_([*fields[: len(layer_values)], *real_outputs])),
    )


class _Builder:
    def __init__(self, plan: Plan, scales: Scales, settings: Quantization) -> None:
        self.plan = plan
        self.scales = scales
        self.stored: dict[int, Expr] = {}
        self.real: dict[int, Expr] = {}
        self._settings = settings
        self._stored_ids = {id(expr) for expr in plan.stored}
        self._direct = {id(expr) for expr in plan.direct}
        self.params = [self._param(param) for param in plan.main.params]

    def _param(self, param: Var) -> Var:
        if not self.plan.is_int8(param):
            return param
        stored_param = var(param.name, TensorType(expr_type(param).shape, "int8"), span=param.span)
        self.stored[id(param)] = stored_param
        return stored_param

    def run(self) -> None:
        """Build all needed expressions in topological order."""
        for expr in self.plan.order:
            step = self.plan.steps.get(id(expr))
            if step is None:
                if id(expr) in self.plan.real:
                    self.real[id(expr)] = self._as_in_the_model(expr)
                if id(expr) in self._stored_ids and id(expr) not in self.stored:
                    self.stored[id(expr)] = self._quantized(expr)
            elif id(expr) in self._direct:
                self.real[id(expr)] = spread_span(as_real(self._total(step), step.low, step.high), expr.span)
            elif id(expr) in self._stored_ids:
                self.stored[id(expr)] = spread_span(self._computed(expr, step), expr.span)
                if id(expr) in self.plan.real:
                    self.real[id(expr)] = self._dequantized(expr)

    def result(self, expr: Expr) -> Expr:
        """Return an output of the model, stored or as a float, as the plan requires."""
        if self.plan.is_int8(expr):
            return self.stored[id(expr)]
        if id(expr) in self._stored_ids and id(expr) not in self.plan.steps:
            return self._dequantized(expr)  # the result of a table
        return self.real[id(expr)] if id(expr) in self.real else self._dequantized(expr)

    def _total(self, step: Step) -> Total:
        assert isinstance(step.form, Form)
        return step.form.total(self._operands(step), self._settings)

    def _operands(self, step: Step) -> list[Stored]:
        return [Stored(self.stored[id(operand)], self.scales[operand]) for operand in step.operands]

    def _computed(self, expr: Expr, step: Step) -> Expr:
        if isinstance(step.form, Move):
            return step.form.moved(self._operands(step), [self.real.get(id(arg), arg) for arg in step.form.call.args])
        scale = self.scales[expr]
        real = step.form.real(self._operands(step)) if self._settings.arithmetic == FLOAT else None
        if real is not None:
            return limited(quantized(real, scale), scale, step.low, step.high)
        return store(self._total(step), scale, step.low, step.high, self._settings)

    def _quantized(self, expr: Expr) -> Expr:
        scale = self.scales[expr]
        if isinstance(expr, Constant):
            return constant(scale.stored_array(expr.data), span=expr.span)
        real = expr if isinstance(expr, Var) else self.real[id(expr)]
        return quantized(real, scale, expr.span)

    def _as_in_the_model(self, expr: Expr) -> Expr:
        """Return the expression computed on floats, as in the source model."""
        if isinstance(expr, Var) and self.plan.is_int8(expr):
            return self._dequantized(expr)
        return rebuild(expr, tuple(self.real[id(child)] for child in children(expr)))

    def _dequantized(self, expr: Expr) -> Expr:
        return dequantized(self.stored[id(expr)], self.scales[expr], expr.span)
