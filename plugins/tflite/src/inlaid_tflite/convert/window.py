"""Layout conversion and padding of images: channels are last in TensorFlow Lite, second in canonical operators."""

from __future__ import annotations

from typing import Any

from inlaid import ops
from inlaid.graph.ir import Expr, constant
from inlaid_tflite.node import Node, tensor_type

PADDING_SAME, PADDING_VALID = 0, 1


def channels_second(value: Expr) -> Expr:
    """Transpose N H W C to N C H W; likewise for three spatial dimensions."""
    rank = tensor_type(value).rank
    return ops.transpose(value, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(value: Expr) -> Expr:
    """Transpose N C H W to N H W C; likewise for three spatial dimensions."""
    return ops.transpose(value, perm=(0, *range(2, tensor_type(value).rank), 1))


def window_pads(node: Node, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    """Return the padding before and after each spatial dimension of input 0, by the padding mode in the options."""
    sizes = node.tensor(0).shape[1:-1]
    mode = node.options.Padding()
    if mode == PADDING_VALID:
        return (0,) * (2 * len(sizes))
    if mode != PADDING_SAME:
        raise node.error(f"padding must be SAME (0) or VALID (1), got {mode}")
    if not all(isinstance(size, int) for size in sizes):
        raise node.error(f"padding SAME requires static image sizes, got {' by '.join(map(str, sizes))}: set them")
    missing = []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        missing.append(max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0))
    before = [each // 2 for each in missing]
    return (*before, *(each - first for each, first in zip(missing, before, strict=True)))


def padded(value: Expr, pads: tuple[int, ...], fill: Any) -> Expr:
    """Pad N C H W with a value. `pads` are (rows before, columns before, rows after, columns after)."""
    if not any(pads):
        return value
    return ops.pad(value, constant(fill), pads=(0, 0, *pads[:2], 0, 0, *pads[2:]))


def read_strides(node: Node) -> tuple[int, int]:
    """Return the vertical and horizontal stride of the options. Raises `ModelImportError` if one is not positive."""
    strides = (node.options.StrideH(), node.options.StrideW())
    if min(strides) < 1:
        raise node.error(f"strides must be >= 1, got {strides}")
    return strides
