"""Convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr
from inlaid.ops.compose import expr_type
from inlaid.ops.convolution import conv
from inlaid.ops.deform import deform_conv
from inlaid.ops.elementwise import add
from inlaid.ops.shape import reshape
from inlaid.ops.transposed import conv_transpose
from inlaid_onnx.convert.window import explicit_pads, ints, spatial_shape, window_pads
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim


def with_bias(node: Node, result: Expr, index: int) -> Expr:
    """Add the per-channel bias at input `index` to `result`, if the node has that input."""
    bias = node.optional(index)
    if bias is None:
        return result
    channels = expr_type(result).shape[1]
    with node.relations():
        require_shape(node.tensor(index).shape, (channels,), "the bias")
    return add(result, reshape(bias, shape=(channels, *(1,) * (node.rank(0) - 2))))


def _kernel(node: Node, rank: int) -> tuple[Dim, ...]:
    """Return the spatial dimensions of the weights at input 1. The attribute `kernel_shape`, if present, must equal them."""
    kernel = node.tensor(1).shape[2:]
    if len(kernel) != rank:
        raise node.error(f"the weights must have {rank} spatial dimensions, got {node.tensor(1)!r}")
    if node.attrs.get("kernel_shape"):
        with node.relations():
            require_shape(kernel, ints(node, "kernel_shape", rank, 0), "the window of the weights, as in kernel_shape,")
    return kernel


def convolution(node: Node) -> Expr:
    """Convert a convolution of inputs 0 and 1, plus the bias at 2."""
    spatial = spatial_shape(node)
    rank = len(spatial)
    kernel = _kernel(node, rank)
    strides, dilations = ints(node, "strides", rank, 1), ints(node, "dilations", rank, 1)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    pads = window_pads(node, spatial, spans, strides)
    groups = node.attrs.get("group", 1)
    result = conv(node.input(0), node.input(1), strides=strides, pads=pads, dilations=dilations, groups=groups)
    return with_bias(node, result, 2)


def _conv_transpose(node: Node) -> Expr:
    spatial = spatial_shape(node)
    rank = len(spatial)
    kernel = _kernel(node, rank)
    strides, dilations = ints(node, "strides", rank, 1), ints(node, "dilations", rank, 1)
    extra = ints(node, "output_padding", rank, 0)
    pads = _transposed_pads(node, spatial, kernel, strides, dilations, extra)
    result = conv_transpose(
        node.input(0),
        node.input(1),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=node.attrs.get("group", 1),
        output_padding=extra,
    )
    return with_bias(node, result, 2)


def _transposed_pads(
    node: Node,
    spatial: tuple[Dim, ...],
    kernel: tuple[Dim, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[Dim, ...]:
    """Return the numbers of elements to crop from the full output before and after each axis, by `output_shape`, `auto_pad` or
    `pads`.

    Of an odd number, SAME_UPPER crops the extra element after, all other modes before, as the specification defines.
    """
    rank = len(spatial)
    auto_pad = node.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    output_extents: tuple[Dim, ...] | None = tuple(node.attrs["output_shape"])[-rank:] if node.attrs.get("output_shape") else None
    if output_extents is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_extents = tuple(extent * stride for extent, stride in zip(spatial, strides, strict=True))
    if output_extents is None:
        return (0,) * (2 * rank) if auto_pad == "VALID" else explicit_pads(node, rank)
    before: list[Dim] = []
    after: list[Dim] = []
    for extent, size, stride, dilation, extra_size, length in zip(
        spatial, kernel, strides, dilations, extra, output_extents, strict=True
    ):
        total = arith.wrap((extent - 1) * stride + (size - 1) * dilation + 1 + extra_size - length)
        half = arith.maximum(total, 0) // 2
        first = arith.unwrap(half if auto_pad == "SAME_UPPER" else arith.maximum(total, 0) - half)
        before.append(first)
        # Negative if the output is longer than the input reaches: the elements beyond are 0.
        after.append(arith.unwrap(total - first))
    return (*before, *after)


def _deform_conv(node: Node) -> Expr:
    rank = len(spatial_shape(node))
    _kernel(node, rank)
    mask = node.optional(4)
    operands = (node.input(0), node.input(1), node.input(2))
    result = deform_conv(
        *(operands if mask is None else (*operands, mask)),
        strides=ints(node, "strides", rank, 1),
        pads=explicit_pads(node, rank),
        dilations=ints(node, "dilations", rank, 1),
        groups=node.attrs.get("group", 1),
        offset_groups=node.attrs.get("offset_group", 1),
    )
    return with_bias(node, result, 3)


CONVERTERS: Mapping[str, Converter] = {"Conv": convolution, "ConvTranspose": _conv_transpose, "DeformConv": _deform_conv}
