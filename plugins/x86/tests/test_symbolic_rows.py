"""Products and rows whose number is a product of several computed sizes."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import arith, ops
from inlaid.arith import SizeVar
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import constant, function, tuple_, var
from inlaid.types import TensorType

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
        wanted = evaluate(unit, list(feeds.values()))
        for found, expected in zip(executable.run(feeds).values(), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
