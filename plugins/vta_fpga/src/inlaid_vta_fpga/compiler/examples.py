"""Examples and tolerances of the target for the conformance suite."""

from __future__ import annotations

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, Function, constant, function, var
from inlaid.plugins import Conformance
from inlaid_runtime.types import TensorType


def conformance() -> Conformance:
    """Return example convolutions that have enough input channels. Integer results are exact, so no tolerances are declared."""
    return Conformance(examples=(_convolution(None), _convolution(9)))


def _convolution(shift: int | None) -> Function:
    """Build a padded convolution with a bias. Its result is int32 sums, or with `shift` the sums shifted right and clipped."""
    random = np.random.default_rng(0)
    x = var("x", TensorType((1, 16, 6, 6), "int8"))
    padded = ops.pad(x, constant(np.zeros((), np.int8)), pads=(0, 0, 1, 1, 0, 0, 1, 1))
    weights = constant(random.integers(-127, 128, (20, 16, 3, 3)).astype(np.int8))
    total: Expr = ops.conv(padded, weights, pads=(0, 0, 0, 0), out_dtype="int32")
    total = ops.add(total, constant(random.integers(-9000, 9000, (1, 20, 1, 1)).astype(np.int32)))
    if shift is None:
        return function([x], total)
    total = ops.add(total, constant(np.full((), 1 << (shift - 1), np.int32)))
    total = ops.shift_right(total, constant(np.full((), shift, np.int32)))
    return function([x], ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8"))
