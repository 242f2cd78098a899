"""Random legal inputs of operators, and the property that holds for every operator on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, mutually_broadcastable_shapes

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import function
from inlaid.graph.operator import Operator
from inlaid_conformance import values
from inlaid_conformance.values import Mix
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import DType, dtype, from_numpy

from .harness import Array, assert_close, call, check

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz")
INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (64, 32, 16, 8, 4, 2))
NUMBERS = FLOATS + INTEGERS

# Relative to the greatest magnitude in a result. About two units in the last place of the element type.
_TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
_TOLERANCE_8_BITS = 0.26


def random_array(
    seed: int, shape: Sequence[int], dtype_name: str | DType, low: float | None = None, high: float | None = None
) -> Array:
    """Values of an element type: small ones, or in [low, high].

    Without bounds, some integers are of all of the range, so that arithmetic wraps, and some floats are zeros of either sign,
    infinities and NaN.
    """
    element = dtype(dtype_name)
    odd: Mix = "edge" if element.is_int and element.bits >= 8 else "special"
    mix: Mix = odd if np.random.default_rng(seed).random() < 0.4 else "plain"
    return values.random_array(seed, shape, element, low, high, mix)


def shapes(min_rank: int = 0, max_rank: int = 4, min_side: int = 0, max_side: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes, those with no elements and those of 0-d tensors included."""
    arrays_with_axes = array_shapes(min_dims=max(min_rank, 1), max_dims=max_rank, min_side=min_side, max_side=max_side)
    return arrays_with_axes | st.just(()) if min_rank == 0 else arrays_with_axes


def broadcasting(count: int) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Shapes that broadcast together."""
    return mutually_broadcastable_shapes(num_shapes=count, min_side=0, max_side=4, max_dims=4).map(
        lambda broadcast_shapes: broadcast_shapes.input_shapes
    )


def axes(rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Some axes of a tensor of a rank in rising order; none and all included."""
    return st.sets(st.integers(0, rank - 1)).map(lambda axis_set: tuple(sorted(axis_set))) if rank else st.just(())


@st.composite
def arrays(draw: st.DrawFn, shapes_: st.SearchStrategy[Any], dtype_name: str | Sequence[str], *bounds: float) -> list[Array]:
    """Arrays of one element type, one of `dtype_name`, for each of the shapes that a strategy gives (one shape or several)."""
    drawn_shapes = draw(shapes_)
    several = drawn_shapes if drawn_shapes and isinstance(drawn_shapes[0], tuple) else (drawn_shapes,)
    name = dtype_name if isinstance(dtype_name, str) else draw(st.sampled_from(dtype_name))
    seed = draw(st.integers(0, 2**32 - 1))
    return [random_array(seed + index, shape, name, *bounds) for index, shape in enumerate(several)]


def agree(operator: Operator, *inputs: Array, **attrs: Any) -> Array:
    """The first result of an operator on inputs.

    Asserts that reference, loop program and decomposition agree, with the dimensions as they are and with them symbolic; exactly
    for integers, for floats within about two units in the last place of the greatest.
    """
    operator_call = call(operator, *inputs, **attrs)
    expected = operator.reference(operator_call.attrs, *inputs)  # type: ignore[misc]
    first = expected[0] if isinstance(expected, tuple) else expected
    dtype = from_numpy(first.dtype)
    rtol = _TOLERANCE.get(dtype.name, _TOLERANCE_8_BITS) if dtype.is_float else 0.0
    wide = first.astype(np.float64) if dtype.is_float else np.zeros(0)
    atol = rtol * float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    symbolic = tuple(tuple(SizeVar(f"n{dim}") if dim > 1 else dim for dim in item.shape) for item in inputs)
    for declared in (None, symbolic):
        check(operator, *inputs, shapes=declared, rtol=rtol, atol=atol, **attrs)
    if operator.decompose is not None:
        body = operator.decompose(operator_call.attrs, operator_call.args)
        assert body.type == operator_call.type, f"{operator.name} has type {operator_call.type!r}, its decomposition {body.type!r}"
        assert_close(evaluate(function(operator_call.args, body), list(inputs)), first, rtol, atol)  # type: ignore[arg-type]
    return first
