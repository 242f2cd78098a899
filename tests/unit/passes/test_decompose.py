"""Decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Loop, Span, constant, function, post_order, tuple_item, var
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.decompose import decompose
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import TensorType


def test_loops_that_decompositions_bring_in_keep_their_variables() -> None:
    """Marking new expressions with a span must not tell a variable from the parameter that binds it."""
    rng = np.random.default_rng(0)
    shapes = ((20, 2, 3), (1, 2, 3), (1, 2, 2), (1, 4), (1, 2, 2))
    x, *weights = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    param = var("x", TensorType(x.shape, "float32"))
    layer = ops.rnn(param, *map(constant, weights), activations=("Tanh",), alphas=(0.0,), betas=(0.0,), span=Span("m", "layer"))
    unit = function((param,), tuple_item(layer, 0))
    simpler = decompose(unit, lambda call: False)
    verify(simpler)
    expressions = list(post_order(simpler))
    assert any(isinstance(expr, Loop) for expr in expressions)
    assert all(expr.span == Span("m", "layer") for expr in expressions if isinstance(expr, Call))
    expected, result = (evaluate(target, [x]) for target in (unit, simpler))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_decomposition_that_fails_is_named() -> None:
    broken = Operator("my.broken", lambda attrs, x: x, decompose=lambda attrs, args: args[3])
    param = var("x", TensorType((2,), "float32"))
    with pytest.raises(CompileError, match=r"decompose raised IndexError.*operator my\.broken, at m:node") as caught:
        decompose(function((param,), broken(param, span=Span("m", "node"))), lambda call: False)
    assert isinstance(caught.value.__cause__, IndexError)
