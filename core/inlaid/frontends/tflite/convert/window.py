"""Images and windows: TensorFlow Lite has channels last, canonical operators have them second."""

from __future__ import annotations

from typing import Any

from inlaid import ops
from inlaid.frontends.tflite.node import Node, tensor_type
from inlaid.graph.ir import Expr, constant

SAME, VALID = 0, 1


def channels_second(value: Expr) -> Expr:
    """N H W C as N C H W, and so for three dimensions of space."""
    rank = tensor_type(value).rank
    return ops.transpose(value, perm=(0, rank - 1, *range(1, rank - 1)))


def channels_last(value: Expr) -> Expr:
    """N C H W as N H W C, and so for three dimensions of space."""
    return ops.transpose(value, perm=(0, *range(2, tensor_type(value).rank), 1))


def window_pads(node: Node, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    """Elements of padding before and after each dimension of space of input 0, by the padding of the options."""
    sizes = node.tensor(0).shape[1:-1]
    mode = node.options.Padding()
    if mode == VALID:
        return (0,) * (2 * len(sizes))
    if mode != SAME:
        raise node.error(f"there is no padding {mode}")
    if not all(isinstance(size, int) for size in sizes):
        raise node.error(
            f"an image of {' by '.join(map(str, sizes))} is not supported with padding SAME: give its sizes as numbers"
        )
    missing = []
    for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        missing.append(max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0))
    before = [each // 2 for each in missing]
    return (*before, *(each - first for each, first in zip(missing, before, strict=True)))


def padded(value: Expr, pads: tuple[int, ...], fill: Any) -> Expr:
    """N C H W with rows and columns of a value around each image; `pads` are before the rows and columns, then after them."""
    if not any(pads):
        return value
    return ops.pad(value, constant(fill), pads=(0, 0, *pads[:2], 0, 0, *pads[2:]))


def strides_of(node: Node) -> tuple[int, int]:
    """The strides of the options, down and across. Raises `ModelImportError` for ones that are not positive."""
    found = (node.options.StrideH(), node.options.StrideW())
    if min(found) < 1:
        raise node.error(f"strides are {found}")
    return found
