"""Copy the pixels that a strided 1x1 convolution reads, so that its tiles read contiguous pixels.

    conv(x, w, strides=(2, 2))    =>    conv(strided_slice(x, 2, 2), w)

The copy is shared by all convolutions of the same data.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from inlaid import ops
from inlaid.graph.ir import Call, Expr, Function, call
from inlaid.graph.transform import transform_function
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.plugins.costs import CostConstants
from inlaid_runtime.types import TensorType


def subsample(target: Function, costs: CostConstants, supports: Supports = supports_everything) -> Function:
    """Rewrite strided convolutions with windows of one element and at least `costs.subsampled_outputs` output channels, if the
    target supports the copy. Returns the same object if it rewrites none."""
    copies: dict[tuple[int, tuple[int, ...]], Expr] = {}

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.conv or not _is_strided(new, costs.subsampled_outputs):
            return new
        x, w = new.args
        attrs: Any = new.attrs
        assert isinstance(x.type, TensorType)
        shape, steps = x.type.shape, (1, 1, *attrs.strides)
        key = id(x), steps
        if key not in copies:
            copies[key] = ops.strided_slice(x, begin=(0,) * len(shape), end=shape, strides=steps, span=new.span)
        replacement = call(ops.conv, (copies[key], w), dataclasses.replace(attrs, strides=()), new.span)
        return replacement if replacement.type == new.type and is_supported(replacement, supports, x, w) else new

    return transform_function(target, visit)


def _is_strided(conv: Call, min_outputs: int) -> bool:
    attrs: Any = conv.attrs
    assert isinstance(conv.type, TensorType) and isinstance(conv.args[1].type, TensorType)
    outputs, _, *window = conv.args[1].type.shape
    is_pointwise = all(size == 1 for size in window) and not any(attrs.pads)
    return is_pointwise and max((1, *attrs.strides)) > 1 and isinstance(outputs, int) and outputs // attrs.groups >= min_outputs
