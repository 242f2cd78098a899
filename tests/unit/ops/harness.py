"""Holds an operator's type relation, numpy reference and tensor-level meaning to one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inlaid.graph.interp import Interpreter
from inlaid.graph.ir import Call, Var, function, var
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.tensor import interp
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import KernelFault, TypeInferenceError
from inlaid_runtime.types import TensorType, TupleType, dtype, from_numpy

Array = np.ndarray[Any, Any]


def call(operator: Operator, *arrays: Array, shapes: tuple[tuple[Dim, ...], ...] | None = None, **attrs: Any) -> Call:
    """A call of an operator on parameters of the arrays' types; `shapes` gives symbolic shapes in place of the arrays' own."""
    declared = shapes or tuple(array.shape for array in arrays)
    params = [
        var(f"x{index}", TensorType(shape, from_numpy(array.dtype)))
        for index, (array, shape) in enumerate(zip(arrays, declared, strict=True))
    ]
    return operator(*params, **attrs)


def by_reference(operator_call: Call, *arrays: Array) -> tuple[Array, ...]:
    """The results by the numpy reference, which the graph interpreter checks against the type."""
    result = Interpreter().run(function(_params(operator_call), operator_call), arrays)
    return result if isinstance(result, tuple) else (result,)


def by_program(operator_call: Call, *arrays: Array) -> tuple[Array, ...]:
    """The results by the loop program of the tensor-level meaning."""
    results = interp.run(build(KernelSource(operator_call.callee.name, _params(operator_call), operator_call)), arrays)
    count = len(operator_call.type.fields) if isinstance(operator_call.type, TupleType) else 1
    return tuple(results[:count])


def check(
    operator: Operator,
    *arrays: Any,
    shapes: tuple[tuple[Dim, ...], ...] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    **attrs: Any,
) -> tuple[Array, ...]:
    """The results of an operator. Asserts that reference and loop program agree: exactly, or within the tolerances given."""
    inputs = tuple(map(np.asarray, arrays))
    operator_call = call(operator, *inputs, shapes=shapes, **attrs)
    expected, actual = by_reference(operator_call, *inputs), by_program(operator_call, *inputs)
    for one, other in zip(expected, actual, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert_close(one, other, rtol, atol)
    return expected


def check_decomposition(
    operator: Operator, *arrays: Any, shapes: tuple[tuple[Dim, ...], ...] | None = None, rtol: float, atol: float, **attrs: Any
) -> tuple[Array, ...]:
    """The results of an operator. Asserts that its decomposition has the same type and, within the tolerances, the same results."""
    inputs = tuple(map(np.asarray, arrays))
    operator_call = call(operator, *inputs, shapes=shapes, **attrs)
    assert operator.decompose is not None
    simpler = operator.decompose(operator_call.attrs, operator_call.args)
    assert simpler.type == operator_call.type
    expected = by_reference(operator_call, *inputs)
    actual = Interpreter().run(function(_params(operator_call), simpler), inputs)
    for one, other in zip(expected, actual if isinstance(actual, tuple) else (actual,), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert_close(one, other, rtol, atol)
    return expected


def check_faults(operator: Operator, *arrays: Any, **attrs: Any) -> None:
    """Assert that reference and loop program both refuse the values of the arrays with a `KernelFault`."""
    inputs = tuple(map(np.asarray, arrays))
    operator_call = call(operator, *inputs, **attrs)
    for run in (by_reference, by_program):
        with pytest.raises(KernelFault):
            run(operator_call, *inputs)


def raises_for(operator: Operator, message: str, *arrays: Array, **attrs: Any) -> None:
    """Assert that the type relation refuses the types of the arrays with a message."""
    with pytest.raises(TypeInferenceError, match=message):
        call(operator, *arrays, **attrs)


def assert_close(a: Array, b: Array, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Assert that two arrays are equal, NaN included, or close."""
    if a.dtype.kind not in "biu" and a.dtype.name not in ("float32", "float64"):
        a, b = a.astype(np.float64), b.astype(np.float64)
    if rtol or atol:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(a, b)


def normal(shape: tuple[int, ...], dtype_name: str = "float32", seed: int = 0) -> Array:
    """Normally distributed floats, or integers around zero (from zero on for unsigned types)."""
    element = dtype(dtype_name)
    drawn = np.random.default_rng(seed).standard_normal(shape)
    if element.is_float:
        return drawn.astype(element.numpy)
    return np.clip(np.rint(drawn * 20), max(element.limits[0], -100), 100).astype(element.numpy)


def tolerance(dtype_name: str) -> dict[str, float]:
    """How far sums of a few dozen products of an element type may differ by the order of summation."""
    eps = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}.get(dtype_name, 0.0)
    return {"rtol": eps, "atol": eps}


def _params(operator_call: Call) -> tuple[Var, ...]:
    return tuple(arg for arg in operator_call.args if isinstance(arg, Var))
