"""Rows, and products, of symbolic number and length, also where the number is a product of several computed sizes."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import constant, function, tuple_, var
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

B, H, W = SizeVar("batch"), SizeVar("height"), SizeVar("width")
EXTENTS = {
    "quotients": (B, ((H + 15) // 48) * ((W + 3) // 8)),
    "a frame count": (B, (H - 64) // 32 + 1),
    "halves": (B, (H + 1) // 2, (W + 1) // 2),
    "a choice": (B, arith.select(arith.compare("<", H, 3), W, H), arith.minimum(H, W)),
    "what is left": (B, H - arith.maximum(H - 1, 0)),
}


@pytest.mark.parametrize("name", EXTENTS)
@pytest.mark.parametrize("merged", [True, False])
def test_rows_of_computed_number(name: str, merged: bool) -> None:
    """A product with an epilogue, and a softmax of it; `merged`: reshaped to one axis of rows first."""
    lead = EXTENTS[name]
    rows = (arith.product(lead),) if merged else lead
    rng = np.random.default_rng(0)
    weights = constant(rng.integers(-2, 3, (8, 24)).astype(np.float32))
    x, y = var("x", TensorType((*lead, 8), "float32")), var("y", TensorType((*lead, 24), "float32"))
    sizes = var("sizes", TensorType((B, H, W), "float32"))
    left, right = (ops.reshape(item, shape=(*rows, item.type.shape[-1])) for item in (x, y))
    total = ops.relu(ops.add(ops.matmul(left, weights), right))
    unit = function([sizes, x, y], tuple_([total, ops.softmax(total, axis=len(rows))]))
    executable = inlaid.compile(unit, ["x86:threads=2"])
    for b, h, w in ((1, 200, 60), (2, 97, 9), (3, 64, 13)):
        values = {B: b, H: h, W: w}
        shape = tuple(arith.evaluate(dim, values) for dim in lead)
        feeds = {
            "sizes": np.zeros((b, h, w), np.float32),
            "x": rng.integers(-3, 4, (*shape, 8)).astype(np.float32),
            "y": rng.integers(-3, 4, (*shape, 24)).astype(np.float32),
        }
        reference = evaluate(unit, list(feeds.values()))
        for actual, expected in zip(executable.run(feeds).values(), reference, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "x86-64-v2"])
def test_rows_of_any_number_and_length(cpu: str) -> None:
    """Fewer rows than are taken together, as many, and more; columns that fill vectors, and that do not."""
    x = var("x", TensorType((B, H), "float32"))
    centered = ops.sub(x, ops.reduce_max(x, axes=(1,), keepdims=True))
    spread = ops.reduce_sum(ops.mul(centered, centered), axes=(1,), keepdims=True)
    unit = function([x], tuple_([ops.softmax(x, axis=1), ops.mul(centered, spread)]))
    executable = inlaid.compile(unit, [f"x86:threads=1,cpu={cpu}"])
    rng = np.random.default_rng(0)
    for rows in (0, 1, 3, 4, 5, 8, 9):
        for columns in (1, 7, 16, 55, 64, 130):
            array = rng.normal(size=(rows, columns)).astype(np.float32)
            for actual, expected in zip(executable.run({"x": array}).values(), evaluate(unit, [array]), strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
