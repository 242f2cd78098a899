"""Padding rules that the ONNX operators over sliding windows share."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid import arith
from inlaid.arith import Dim
from inlaid.frontends.onnx.node import Node
from inlaid.types import TensorType


def spatial_shape(node: Node) -> tuple[Dim, ...]:
    """The spatial dimensions of the data, which is N C spatial. Raises `ModelImportError` where there are none."""
    data: TensorType = node.tensor(0)
    if data.rank < 3:
        raise node.error(f"the data has rank {data.rank}, but needs a batch, a channel and a spatial dimension")
    return data.shape[2:]


def ints(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    """An attribute with one integer per spatial dimension. Raises `ModelImportError` where it has another number of them."""
    values = tuple(node.attrs.get(name) or (default,) * rank)
    if len(values) != rank:
        raise node.error(f"{name} has {len(values)} values, but the data has {rank} spatial dimensions")
    return values


def explicit_pads(node: Node, rank: int) -> tuple[int, ...]:
    """The attribute `pads`: all before, then all after."""
    pads = tuple(node.attrs.get("pads") or (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise node.error(f"pads has {len(pads)} values, but the data has {rank} spatial dimensions")
    return pads


def window_pads(node: Node, spatial: Sequence[Dim], spans: Sequence[Dim], strides: Sequence[int]) -> tuple[Dim, ...]:
    """The padding that `auto_pad` and `pads` ask for; a window reaches over `spans` elements.

    SAME_UPPER and SAME_LOWER make ceil(extent / stride) outputs; the odd element of padding goes after or before.
    """
    auto_pad = node.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    rank = len(spatial)
    if auto_pad == "NOTSET":
        return explicit_pads(node, rank)
    if auto_pad == "VALID":
        return (0,) * (2 * rank)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error(f"auto_pad {auto_pad!r} is unknown")
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
