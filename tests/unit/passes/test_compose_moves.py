"""Chains of reshapes, transposes and pads, composed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.partitioning.borders import decode, encode
from inlaid.passes.compose_moves import compose_chain, compose_moves
from inlaid.plugins import Border
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import Layout, TensorType

N = SizeVar("n", 1, 9)
FILL = ir.constant(np.array(7, np.int32))


def names(expr: ir.Expr) -> list[str]:
    """The operators of a chain, in order of execution, without reshapes."""
    operators: list[str] = []
    while isinstance(expr, ir.Call):
        operators.insert(0, expr.callee.name)  # type: ignore[attr-defined]
        expr = expr.args[0]
    return [name for name in operators if name != "reshape"]


def tensor_shape(expr: ir.Expr) -> tuple[Dim, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


@st.composite
def chains(draw: Callable[..., Any]) -> tuple[ir.Var, ir.Expr]:
    """A variable, whose first axis may be symbolic, and a chain of moves of it."""
    dims: list[Dim] = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    x = ir.var("x", TensorType(tuple([N, *dims] if draw(st.booleans()) else dims), "int32"))
    value: ir.Expr = x
    for _ in range(draw(st.integers(1, 6))):
        shape = tensor_shape(value)
        kind = draw(st.sampled_from(["transpose", "split", "merge", "unit", "pad"]))
        axis = draw(st.integers(0, len(shape) - 1))
        extent = shape[axis]
        if kind == "transpose":
            value = ops.transpose(value, perm=tuple(draw(st.permutations(range(len(shape))))))
        elif kind == "split" and isinstance(extent, int):
            factor = draw(st.sampled_from([each for each in range(1, extent + 1) if extent % each == 0]))
            value = ops.reshape(value, shape=(*shape[:axis], factor, extent // factor, *shape[axis + 1 :]))
        elif kind == "merge" and all(isinstance(each, int) for each in shape[axis : axis + 2]):
            merged = int(np.prod(shape[axis : axis + 2]))
            value = ops.reshape(value, shape=(*shape[:axis], merged, *shape[axis + 2 :]))
        elif kind == "unit":
            value = ops.reshape(value, shape=(*shape[:axis], 1, *shape[axis:]))
        elif kind == "pad":
            pads = [0] * (2 * len(shape))
            pads[axis] = draw(st.integers(0 if extent is N else -1, 2)) if extent != 1 else draw(st.integers(0, 2))
            pads[len(shape) + axis] = draw(st.integers(0, 2))
            value = ops.pad(value, FILL, pads=tuple(pads))
    return x, value


@settings(max_examples=150, deadline=None)
@given(chains())
def test_composing_keeps_values(chain: tuple[ir.Var, ir.Expr]) -> None:
    x, value = chain
    composed_value = compose_chain(value)
    assert composed_value.type == value.type and names(composed_value).count("pad") == names(value).count("pad")
    assert composed_value is value or names(composed_value).count("transpose") < names(value).count("transpose")
    shape = [4 if dim is N else dim for dim in tensor_shape(x)]
    array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    expected, actual = evaluate(ir.function([x], ir.tuple_([value, composed_value])), {"x": array})
    assert np.array_equal(expected, actual)


LANES = Border(Layout(((1, 32), (1, 16))))
"""N 1 H W C/16 16, for up to 32 channels."""
BLOCKED = Border(Layout(((1, 16),)))
"""N C/16 H W 16."""


@pytest.mark.parametrize("batch", [1, 2, N])
@pytest.mark.parametrize(
    ("border", "channels", "encoding", "decoding"),
    [
        (LANES, 32, [], []),
        (LANES, 21, ["pad"], ["pad"]),
        (LANES, 1, ["pad"], ["pad"]),
        (BLOCKED, 16, [], []),
        (BLOCKED, 5, ["pad"], ["pad"]),
        (BLOCKED, 32, ["transpose"], ["transpose"]),
        (BLOCKED, 21, ["pad", "transpose"], ["transpose", "pad"]),
    ],
)
def test_channels_last_and_blocked_layouts(
    border: Border, channels: int, encoding: list[str], decoding: list[str], batch: Dim
) -> None:
    x = ir.var("x", TensorType((batch, 7, 6, channels), "int8"))
    first = ops.transpose(x, perm=(0, 3, 1, 2))
    stored = ir.var("s", encode(first, border).type)
    assert names(compose_chain(encode(first, border))) == encoding
    assert names(compose_chain(ops.transpose(decode(stored, first.type, border), perm=(0, 2, 3, 1)))) == decoding


def test_functions_compose_what_they_compute_themselves() -> None:
    """Operands of other operators and results compose; results that would be parameters, and bodies of composites, stay."""
    x = ir.var("x", TensorType((2, 3, 4), "float32"))
    twice = ops.transpose(ops.transpose(x, perm=(1, 2, 0)), perm=(2, 0, 1))
    inner = ir.function([x], ops.relu(twice), (("composite", "acme"),))
    y = ir.var("y", TensorType((2, 3, 4), "float32"))
    moved = ops.transpose(ops.transpose(y, perm=(1, 2, 0)), perm=(2, 0, 1))
    function = ir.function([y], ir.tuple_([ops.neg(moved), ir.call(inner, [moved]), moved]))
    negated, composite, result = compose_moves(function).body.fields  # type: ignore[attr-defined]
    assert negated.args[0] is y and composite.args[0] is y and composite.callee is inner and result is moved
