"""Non-maximum suppression."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, scalar, slice_axis
from inlaid.ops.shape import simple
from inlaid_runtime import arith
from inlaid_tflite.node import Converter, Node, tensor_type, typed


def _non_max_suppression(node: Node) -> tuple[Expr, Expr, Expr]:
    """Convert (boxes, scores, maximum number, IoU threshold, score threshold) to (selected indices, their scores, their number).

    Unused elements of the results are 0.
    """
    (max_output,) = node.dims(2)
    # LiteRT drops a box whose overlap equals the threshold; the canonical operator drops only boxes above it.
    iou_threshold = np.nextafter(node.array(3).astype(np.float32).reshape(()), np.float32(-np.inf))
    selected = ops.non_max_suppression(
        expand_dims(node.input(0), 0),
        expand_dims(node.input(1), 0, 1),
        constant(iou_threshold),
        ops.reshape(node.input(4), shape=()),
        max_output=max_output,
    )
    count = tensor_type(selected).shape[0]
    box_indices = ops.reshape(slice_axis(selected, 1, 2, 3), shape=(count,))
    padding = (0, simple(arith.add(max_output, arith.mul(count, -1))))
    indices = ops.pad(cast_to(box_indices, "int32"), scalar(0, "int32"), pads=padding)
    scores = ops.pad(ops.take(node.input(1), box_indices, axis=0), scalar(0, "float32"), pads=padding)
    return indices, scores, cast_to(ops.reshape(ops.sizes(dims=(count,)), shape=()), "int32")


def _v4(node: Node) -> tuple[Expr, Expr]:
    indices, _, count = _non_max_suppression(node)
    return indices, count


def _v5(node: Node) -> tuple[Expr, Expr, Expr]:
    if node.array(5).any():
        raise node.error("soft non-maximum suppression is not supported: set soft_nms_sigma to 0")
    return _non_max_suppression(node)


CONVERTERS: Mapping[str, Converter] = {
    "NON_MAX_SUPPRESSION_V4": typed(_v4, "float32"),
    "NON_MAX_SUPPRESSION_V5": typed(_v5, "float32"),
}
