"""Tolerances of comparisons with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlaid.driver.deviation import deviation
from inlaid.driver.shadow import flat
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.plugins import Tolerance
from inlaid_conformance.case import Failed, Undefined
from inlaid_conformance.origin import fault_text
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import TensorType, Type

Array = np.ndarray[Any, Any]

OPERATORS = {
    "float64": Tolerance("float64", 1e-9, 1e-12),
    "float32": Tolerance("float32", 1e-4, 1e-5),
    "float16": Tolerance("float16", 2e-3, 1e-5),
    "bfloat16": Tolerance("bfloat16", 1.6e-2, 1e-5),
}
"""Default tolerances of an operator's result. The bound of narrow types is about two units in the last place of the greatest
value."""
NARROW = 0.26
"""Relative tolerance of an operator's result in floats of at most eight bits."""
MODELS = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Relative tolerance of a whole model, with respect to the greatest value."""


def operator_tolerance(tested: TargetUnderTest, name: str, exact: bool, element: str) -> Tolerance:
    """Return the tolerance for an element type in an operator's result: the plugin's declaration for the operator; else zero for an
    operator that does not round; else the plugin's declaration for all operators; else the suite's default."""
    declared = tested.conformance.tolerance(element, name)
    if declared is not None:
        return declared
    if exact:
        return Tolerance(element, 0.0)
    return tested.conformance.tolerance(element) or OPERATORS.get(element) or Tolerance(element, NARROW)


def composite_tolerance(tested: TargetUnderTest, name: str, exact: bool, element: str) -> Tolerance:
    """Return the tolerance for an element type in a composite's result: the plugin's declaration under the rule's name; otherwise
    zero if the result is defined exactly, and a model's tolerance if not."""
    declared = tested.conformance.tolerance(element, name)
    return declared or (Tolerance(element, 0.0) if exact else model_tolerance(tested, element))


def model_tolerance(tested: TargetUnderTest, element: str) -> Tolerance:
    """Return the tolerance for an element type in a model's outputs."""
    return tested.conformance.tolerance(element) or Tolerance(element, MODELS.get(element, NARROW), 1e-5)


def hold(
    tested: TargetUnderTest,
    what: object,
    function: ir.Function,
    inputs: Sequence[Any],
    allowed: Callable[[str], Tolerance],
    composed: ir.Function | None = None,
) -> None:
    """Compare the target's results of a function with the reference. `what` describes the function in messages; `composed` is the
    function as in a region, with composites wrapped; None lets `load` wrap them. Equal functions share an executable. Raises
    `Failed`, and `Undefined` if the reference has no result."""
    try:
        expected = evaluate(function, inputs)
    except KernelFault as error:
        raise Undefined(f"the reference cannot run {what}: {error}") from error
    try:
        executable = tested.load_once(function if composed is None else composed)
        names = [spec.name for spec in executable.inputs]
        actual = list(executable.run(dict(zip(names, inputs, strict=True))).values())
    except Exception as error:  # whatever a plugin raises
        raise Failed(f"{what} is accepted by the rules, but fails: {fault_text(error)}") from error
    try:
        compare(function.body.type, expected, actual, allowed)
    except Failed as error:
        raise Failed(f"{what}: {error}") from None


def compare(type_: Type, expected: Any, actual: Sequence[Any], allowed: Callable[[str], Tolerance]) -> None:
    """Compare results with the reference's results. `allowed` returns the tolerance for an element type. Raises `Failed`."""
    parts = flat(type_, expected)
    if len(parts) != len(actual):
        raise Failed(f"expected {len(parts)} results, got {len(actual)}")
    for number, ((part, expected_part), actual_part) in enumerate(zip(parts, actual, strict=True)):
        error = _error(part, expected_part, actual_part, allowed)
        if error is not None:
            raise Failed(error if len(parts) == 1 else f"result {number}: {error}")


def _error(type_: Type, expected: Any, actual: Any, allowed: Callable[[str], Tolerance]) -> str | None:
    """Describe the error of a result. Returns None if the result is correct."""
    if not isinstance(type_, TensorType):
        return None if _host_equal(expected, actual) else "a host value differs from the reference's"
    expected = np.asarray(expected)
    if not isinstance(actual, np.ndarray):
        return f"expected an array, got {type(actual).__name__}"
    if actual.dtype != expected.dtype:
        return f"expected dtype {expected.dtype}, got {actual.dtype}"
    limit = allowed(type_.dtype.name)
    difference = deviation(type_, expected, actual, limit).error
    return None if difference is None else f"it differs from the reference: {difference}"


def _host_equal(expected: Any, actual: Any) -> bool:
    """Test whether two host objects are equal. A sequence is a list; an optional is None or its value."""
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_host_equal, expected, actual))
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        return (
            expected.dtype == actual.dtype and expected.shape == actual.shape and repr(expected.tolist()) == repr(actual.tolist())
        )
    return type(expected) is type(actual) and bool(expected == actual)
