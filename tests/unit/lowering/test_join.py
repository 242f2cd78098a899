"""Concatenations behind a symbolic batch whose parts are written in place."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Function, constant, function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

from .oracle import lowered, run

GROWTH, LAYERS = 16, 4


def dense_block() -> Function:
    """Layers that each add channels to all those before, as DenseNet does: nested concatenations."""
    rng = np.random.default_rng(0)
    x = var("x", TensorType((SizeVar("batch"), GROWTH, 5, 6), "float32"))
    grow = constant((rng.integers(-1, 2, (GROWTH, GROWTH, 3, 3)) / 8).astype(np.float32))
    features = ops.conv(x, grow, pads=(1, 1, 1, 1))
    for layer in range(1, LAYERS + 1):
        squeeze = constant((rng.integers(-1, 2, (GROWTH, GROWTH * layer, 1, 1)) / 8).astype(np.float32))
        new = ops.relu(ops.conv(ops.conv(features, squeeze), grow, pads=(1, 1, 1, 1)))
        features = ops.concat(features, new, axis=1)
    last = constant((rng.integers(-1, 2, (GROWTH, GROWTH * (LAYERS + 1), 1, 1)) / 8).astype(np.float32))
    return function([x], ops.conv(features, last))


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_nested_parts_are_written_in_place(batch: int) -> None:
    """Each layer's convolution writes elsewhere, and all are one kernel, which takes the place as a size."""
    unit = dense_block()
    region = lowered(unit)
    assert not any("concat" in region.kernels[call.kernel].name for call in region.calls)
    grown = [call for call in region.calls if region.kernels[call.kernel].name == "conv_relu"]
    assert len(grown) == LAYERS and len({call.kernel for call in grown}) == 1
    assert len({call.sizes for call in grown}) == LAYERS
    x = np.random.default_rng(1).integers(-4, 5, (batch, GROWTH, 5, 6)).astype(np.float32)
    expected = evaluate(unit, [x])
    (actual,) = run(region, [x])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)
