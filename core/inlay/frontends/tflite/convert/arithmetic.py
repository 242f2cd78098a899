"""Element by element, and softmax."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlay import ops
from inlay.frontends.tflite.node import Converter, Node
from inlay.graph.ir import Expr, constant


def _softmax(node: Node) -> Expr:
    axis = len(node.tensor(0).shape) - 1
    beta = np.float32(node.options.Beta())
    if node.is_float():
        data = node.input(0) if beta == 1 else ops.mul(node.input(0), constant(beta))
        return ops.softmax(data, axis=axis)
    node.require("int8")
    scale, _ = node.pair(node.tensor(0))
    result, zero_point = node.pair(node.result)
    wide = ops.cast(node.input(0), dtype="int32")
    below = ops.sub(ops.reduce_max(wide, axes=(axis,), keepdims=True), wide)
    # There are 256 differences: their exponentials are a table, which is worked out with the model.
    table = np.exp((np.float32(-scale) * beta) * np.arange(256, dtype=np.float32)).astype(np.float32)
    powers = ops.take(constant(table), below, axis=0)
    total = ops.reduce_sum(powers, axes=(axis,), keepdims=True)
    factor = ops.div(constant(np.float32(1)), ops.mul(total, constant(result)))
    rounded = ops.floor(ops.add(ops.mul(powers, factor), constant(np.float32(0.5))))
    moved = ops.add(rounded, constant(np.float32(zero_point)))
    least, greatest = map(float, node.result.dtype.limits)
    return ops.cast(ops.clip(moved, minimum=least, maximum=greatest), dtype="int8")


CONVERTERS: Mapping[str, Converter] = {"SOFTMAX": _softmax}
