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


def of_operator(tested: TargetUnderTest, name: str, exact: bool, element: str) -> Tolerance:
    """Return the tolerance for an element type in an operator's result: the plugin's declaration for the operator; else zero for an
    operator that does not round; else the plugin's declaration for all operators; else the suite's default."""
    own = tested.conformance.tolerance(element, name)
    if own is not None:
        return own
    if exact:
        return Tolerance(element, 0.0)
    return tested.conformance.tolerance(element) or OPERATORS.get(element) or Tolerance(element, NARROW)


def of_composite(tested: TargetUnderTest, name: str, exact: bool, element: str) -> Tolerance:
    """Return the tolerance for an element type in a composite's result: the plugin's declaration under the rule's name; otherwise
    zero if the result is defined exactly, and a model's tolerance if not."""
    own = tested.conformance.tolerance(element, name)
    return own or (Tolerance(element, 0.0) if exact else of_model(tested, element))


def of_model(tested: TargetUnderTest, element: str) -> Tolerance:
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
        wanted = evaluate(function, inputs)
    except KernelFault as error:
        raise Undefined(f"the reference cannot run {what}: {error}") from error
    try:
        executable = tested.load_once(function if composed is None else composed)
        names = [spec.name for spec in executable.inputs]
        found = list(executable.run(dict(zip(names, inputs, strict=True))).values())
    except Exception as error:  # whatever a plugin raises
        raise Failed(f"{what} is accepted by the rules, but fails: {fault_text(error)}") from error
    try:
        compare(function.body.type, wanted, found, allowed)
    except Failed as error:
        raise Failed(f"{what}: {error}") from None


def compare(type_: Type, wanted: Any, found: Sequence[Any], allowed: Callable[[str], Tolerance]) -> None:
    """Compare results with the reference's results. `allowed` returns the tolerance for an element type. Raises `Failed`."""
    parts = flat(type_, wanted)
    if len(parts) != len(found):
        raise Failed(f"expected {len(parts)} results, got {len(found)}")
    for number, ((part, expected), actual) in enumerate(zip(parts, found, strict=True)):
        wrong = _wrong(part, expected, actual, allowed)
        if wrong is not None:
            raise Failed(wrong if len(parts) == 1 else f"result {number}: {wrong}")


def _wrong(type_: Type, wanted: Any, found: Any, allowed: Callable[[str], Tolerance]) -> str | None:
    """Describe the error of a result. Returns None if the result is correct."""
    if not isinstance(type_, TensorType):
        return None if _same(wanted, found) else "a host value differs from the reference's"
    wanted = np.asarray(wanted)
    if not isinstance(found, np.ndarray):
        return f"expected an array, got {type(found).__name__}"
    if found.dtype != wanted.dtype:
        return f"expected dtype {wanted.dtype}, got {found.dtype}"
    limit = allowed(type_.dtype.name)
    difference = deviation(type_, wanted, found, limit).error
    return None if difference is None else f"it differs from the reference: {difference}"


def _same(wanted: Any, found: Any) -> bool:
    """Test whether two host objects are equal. A sequence is a list; an optional is None or its value."""
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_same, wanted, found))
    if isinstance(wanted, np.ndarray) and isinstance(found, np.ndarray):
        return wanted.dtype == found.dtype and wanted.shape == found.shape and repr(wanted.tolist()) == repr(found.tolist())
    return type(wanted) is type(found) and bool(wanted == found)
