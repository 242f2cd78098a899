"""Quantizes a module: plan, calibrate, choose scales, build, measure accuracy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from inlaid.graph.ir import Call, Expr, Function, Module, Tuple, Var, function, post_order, tuple_
from inlaid.graph.operator import Operator
from inlaid.ops.elementwise import add, mul, sub
from inlaid.ops.quantized import dequantize, quantize, requantize
from inlaid.passes.decompose import decompose
from inlaid.passes.manager import run_passes
from inlaid.passes.pipeline import quantization_passes
from inlaid_quantization.agreement import Agreement
from inlaid_quantization.calibrate import Compile, Run, Sample, Scales, gather, node_name, observed
from inlaid_quantization.histogram import unmasked
from inlaid_quantization.match import is_real
from inlaid_quantization.plan import Plan, make_plan
from inlaid_quantization.realize import realize
from inlaid_quantization.report import BorderReport, Difference, FloatReport, LayerReport, QuantizationReport
from inlaid_quantization.settings import Quantization
from inlaid_runtime.errors import InputError
from inlaid_runtime.types import TensorType

_COMPOSITE = ("attention",)
"""Composite operators that are decomposed and then quantized."""


READ_AS_FLOAT = "its operands or consumers are float"


@dataclass(frozen=True, repr=False)
class QuantizedModule(Module):
    """A quantized module with its report."""

    report: QuantizationReport


def quantize_module(
    module: Module, samples: Sequence[Sample], evaluation_samples: Sequence[Sample], settings: Quantization, compile_: Compile
) -> QuantizedModule:
    """Quantize the products of a module, and the operators between them, to int8.

    Ranges come from `samples`, accuracy is measured on `evaluation_samples`; `compile_` compiles functions. Raises `InputError` for
    a model without anything to quantize, for samples that do not fit the model, and for unknown names.
    """
    names = _names(module)
    module = run_passes(quantization_passes(_decomposed), module)
    names |= _names(module)
    for name in settings.keep_float:
        if name not in names:
            close_matches = get_close_matches(name, sorted(names), 1, 0)
            raise InputError(
                f"keep_float names {name!r}, which is neither a node nor an operator of the model",
                remedy="".join(f"is it {match!r}?" for match in close_matches) or None,
            )
    main = module.main
    plan = make_plan(main, tuple(post_order(main.body)), settings)
    if not any(step.anchors for step in plan.steps.values()):
        raise InputError(
            "expected a float32 convolution or matrix product to quantize, got none",
            remedy="check that the model is not quantized already, or of another precision"
            + (", or keep_float names all" * bool(settings.keep_float)),
        )
    layer_values = [*observed(plan), *plan.direct]
    results = [expr for expr in plan.outputs if is_real(expr)]
    run = compile_(module.with_function("main", function(main.params, tuple_([*layer_values, *results]))))
    scales = Scales(plan)
    scales.choose(gather(plan, samples, run), settings)
    realized = realize(plan, scales, settings)
    probe = compile_(module.with_function("main", realized.probe))
    differences, agreements = _differences(plan, scales, layer_values, results, run, probe, evaluation_samples)
    difference_by_id = {id(expr): difference for expr, difference in zip([*layer_values, *results], differences, strict=True)}
    agreement_by_id = {id(expr): agreement for expr, agreement in zip(results, agreements, strict=True)}
    layer_ids = {id(expr) for expr in layer_values if not isinstance(expr, Var)}
    floats = _floats(plan, realized.main)
    float_operators = {(item.node, item.operator) for item in floats}
    report = QuantizationReport(
        settings,
        len(evaluation_samples),
        tuple(_input(param, plan, scales) for param in main.params),
        tuple(
            _output(name, expr, plan, scales, difference_by_id.get(id(expr)), agreement_by_id.get(id(expr)))
            for name, expr in zip(_output_names(main), plan.outputs, strict=True)
        ),
        tuple(
            _layer(expr, plan, scales, difference_by_id[id(expr)], float_operators) for expr in plan.order if id(expr) in layer_ids
        ),
        floats,
    )
    quantized = replace(realized.main, constraints=main.constraints)
    return QuantizedModule({**module.functions, "main": quantized}, report)


def _names(module: Module) -> set[str]:
    """Return the names that `keep_float` accepts: source nodes and operator names."""
    calls = [expr for expr in post_order(module.main.body) if isinstance(expr, Call)]
    return {_operator(call) for call in calls} | {call.span.node for call in calls if call.span is not None}


def _decomposed(target: Function) -> Function:
    return decompose(target, lambda call: not isinstance(call.callee, Operator) or call.callee.name not in _COMPOSITE)


# --- the accuracy -----------------------------------------------------------------------------------------------------


def _differences(
    plan: Plan,
    scales: Scales,
    layer_values: Sequence[Expr],
    results: Sequence[Expr],
    run: Run,
    quantized: Run,
    samples: Sequence[Sample],
) -> tuple[list[Difference], list[Agreement]]:
    """Compare a float function and its quantized version over samples. Returns the difference of each of `layer_values`, then of
    each result; and the agreement of each result."""
    value_scales = [*map(scales.get, layer_values), *(scales.get(expr) if plan.is_int8(expr) else None for expr in results)]
    value_differences, result_agreements = [Difference() for _ in value_scales], [Agreement() for _ in results]
    masked = [id(expr) in plan.masked for expr in (*layer_values, *results)]
    for sample in samples:
        inputs = {
            param.name: scales[param].stored_array(np.asarray(sample[param.name])) if plan.is_int8(param) else sample[param.name]
            for param in plan.main.params
        }
        for index, (scale, real, value) in enumerate(zip(value_scales, run(sample), quantized(inputs), strict=True)):
            value = value if scale is None else scale.real_array(value)
            selection = unmasked(real) if masked[index] else ...
            value_differences[index] = value_differences[index].with_values(real[selection], value[selection])
            if (result := index - len(layer_values)) >= 0:
                result_agreements[result] = result_agreements[result].with_values(np.asarray(real), np.asarray(value))
    return value_differences, result_agreements


# --- the report -------------------------------------------------------------------------------------------------------


def _input(param: Var, plan: Plan, scales: Scales) -> BorderReport:
    if plan.is_int8(param):
        return BorderReport(param.name, "int8", scales[param].scale, scales[param].zero_point)
    return BorderReport(param.name, _element_type(param), None, None)


def _output(
    name: str, expr: Expr, plan: Plan, scales: Scales, difference: Difference | None, agreement: Agreement | None
) -> BorderReport:
    if plan.is_int8(expr):
        return BorderReport(name, "int8", scales[expr].scale, scales[expr].zero_point, difference, agreement)
    return BorderReport(name, _element_type(expr), None, None, difference, agreement)


def _layer(expr: Expr, plan: Plan, scales: Scales, difference: Difference, floats: set[tuple[str, str]]) -> LayerReport:
    scale = scales.get(expr)
    scale_value, zero_point = (None, None) if scale is None else (scale.scale, scale.zero_point)
    in_floats = id(expr) not in plan.steps and (not isinstance(expr, Call) or (_node(expr), _operator(expr)) in floats)
    return LayerReport(node_name(expr), _operators(expr, plan), in_floats, scale_value, zero_point, difference)


def _element_type(expr: Expr) -> str:
    return expr.type.dtype.name if isinstance(expr.type, TensorType) else repr(expr.type)


def _output_names(main: Function) -> list[str]:
    names = json.loads(main.attr("outputs") or "[]")
    fields = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    return names if len(names) == len(fields) else [f"output{number}" for number in range(len(fields))]


def _operators(expr: Expr, plan: Plan) -> tuple[str, ...]:
    """Return the names of the operators that compute a stored tensor."""
    step = plan.steps.get(id(expr))
    calls = (expr,) if step is None else step.calls
    return tuple(_operator(call) for call in calls if isinstance(call, Call))


def _floats(plan: Plan, main: Function) -> tuple[FloatReport, ...]:
    """Report the operators that stay float, in order of execution. The reasons come from the plan, by node and operator."""
    reasons = {
        (expr.span, _operator(expr)): plan.reasons[id(expr)]
        for expr in plan.order
        if isinstance(expr, Call) and id(expr) in plan.reasons
    }
    reports = []
    for expr in post_order(main.body):
        if isinstance(expr, Call) and _is_float(expr):
            why = reasons.get((expr.span, _operator(expr)))
            if why is not None or not _joins(expr):
                reports.append(FloatReport(_node(expr), _operator(expr), why or READ_AS_FLOAT))
    return tuple(reports)


def _joins(expr: Call) -> bool:
    """Test whether a call adds, subtracts or multiplies two dequantized tensors, as `Quantization.arithmetic` "float" does."""
    return expr.callee in (add, sub, mul) and all(isinstance(arg, Call) and arg.callee is dequantize for arg in expr.args)


def _is_float(expr: Call) -> bool:
    """Test whether a call computes on floats, except to quantize, dequantize or scale accumulators."""
    if not isinstance(expr.callee, Operator) or expr.callee in (quantize, dequantize, requantize):
        return False
    return any(isinstance(part.type, TensorType) and part.type.dtype.is_float for part in (expr, *expr.args))


def _node(call: Call) -> str:
    return call.span.node if call.span else ""


def _operator(call: Call) -> str:
    return call.callee.name if isinstance(call.callee, Operator) else "a function"
