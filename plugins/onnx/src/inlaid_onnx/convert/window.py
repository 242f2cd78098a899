"""Padding rules shared by ONNX operators over sliding windows."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid_onnx.node import Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType


def spatial_shape(node: Node) -> tuple[Dim, ...]:
    """Return the spatial dimensions of data (N, C, spatial...). Raises `ModelImportError` if there are none."""
    data: TensorType = node.tensor(0)
    if data.rank < 3:
        raise node.error(f"the data must be (N, C, spatial...), of rank >= 3, got rank {data.rank}")
    return data.shape[2:]


def ints(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    """Return an attribute with one integer per spatial dimension. Raises `ModelImportError` if it has another length."""
    values = tuple(node.attrs.get(name) or (default,) * rank)
    if len(values) != rank:
        raise node.error(f"{name} must have {rank} elements, one per spatial dimension, got {len(values)}")
    return values


def explicit_pads(node: Node, rank: int) -> tuple[int, ...]:
    """Return the attribute `pads`: the padding before each spatial dimension, then the padding after each."""
    pads = tuple(node.attrs.get("pads") or (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise node.error(f"pads must have {2 * rank} elements for {rank} spatial dimensions, got {len(pads)}")
    return pads


def window_pads(node: Node, spatial: Sequence[Dim], spans: Sequence[Dim], strides: Sequence[int]) -> tuple[Dim, ...]:
    """Return the padding by `auto_pad` and `pads`. `spans` are the extents of the dilated window.

    SAME_UPPER and SAME_LOWER give ceil(extent / stride) outputs. Of an odd padding, SAME_UPPER puts the extra element after,
    SAME_LOWER before.
    """
    auto_pad = node.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    rank = len(spatial)
    if auto_pad == "NOTSET":
        return explicit_pads(node, rank)
    if auto_pad == "VALID":
        return (0,) * (2 * rank)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error(f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, got {auto_pad!r}")
    before: list[Dim] = []
    after: list[Dim] = []
    for extent, span, stride in zip(spatial, spans, strides, strict=True):
        outputs = arith.ceildiv(extent, stride)
        total = arith.maximum(0, (outputs - 1) * stride + span - extent)
        half = arith.unwrap(total // 2)
        rest = arith.unwrap(total - half)
        before.append(half if auto_pad == "SAME_UPPER" else rest)
        after.append(rest if auto_pad == "SAME_UPPER" else half)
    return (*before, *after)
