"""Pooling."""

from __future__ import annotations

from collections.abc import Mapping

from inlay import arith
from inlay.arith import Dim
from inlay.frontends.onnx.convert.window import explicit_pads, ints, spatial_shape, window_pads
from inlay.frontends.onnx.node import Converter, Node
from inlay.graph.ir import Expr, tuple_item
from inlay.ops.compose import count, scalar
from inlay.ops.elementwise import abs, mul, pow
from inlay.ops.pool import avg_pool, max_pool, max_pool_indices
from inlay.ops.scatter import scatter_along_axis
from inlay.ops.shape import full, pad, reshape


def _kernel(node: Node, rank: int) -> tuple[int, ...]:
    if not node.attrs.get("kernel_shape"):
        raise node.error("the attribute kernel_shape is missing")
    return ints(node, "kernel_shape", rank, 1)


def _window(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[Dim, ...], tuple[Dim, ...]]:
    """(kernel, strides, dilations, pads as asked for, pads that make up the further windows of ceil_mode)."""
    spatial = spatial_shape(node)
    rank = len(spatial)
    kernel = _kernel(node, rank)
    strides, dilations = ints(node, "strides", rank, 1), ints(node, "dilations", rank, 1)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    pads = window_pads(node, spatial, spans, strides)
    if not node.attrs.get("ceil_mode", 0):
        return kernel, strides, dilations, pads, (0,) * (2 * rank)
    more: list[Dim] = []
    for extent, span, stride, before, after in zip(spatial, spans, strides, pads[:rank], pads[rank:], strict=True):
        outputs = arith.ceildiv(extent + before + after - span, stride) + 1
        # A window that would start in the padding behind the data is left out.
        starts = arith.compare("<", (outputs - 1) * stride, extent + before)
        outputs = outputs - arith.select(starts, 0, 1)
        reach = (outputs - 1) * stride + span
        more.append(arith.unwrap(arith.maximum(0, reach - (extent + before + after))))
    return kernel, strides, dilations, pads, (0,) * rank + tuple(more)


def _sum_pads(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple(arith.unwrap(arith.wrap(x + y)) for x, y in zip(a, b, strict=True))


def _max_pool(node: Node) -> Expr | tuple[Expr | None, ...]:
    kernel, strides, dilations, pads, more = _window(node)
    pads = _sum_pads(pads, more)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return max_pool(node.input(0), kernel=kernel, strides=strides, pads=pads, dilations=dilations)
    both = max_pool_indices(
        node.input(0),
        kernel=kernel,
        strides=strides,
        pads=pads,
        dilations=dilations,
        column_major=bool(node.attrs.get("storage_order", 0)),
    )
    return tuple_item(both, 0), tuple_item(both, 1)


def _avg_pool(node: Node) -> Expr:
    kernel, strides, dilations, pads, more = _window(node)
    x = node.input(0)
    include = bool(node.attrs.get("count_include_pad", 0))
    if include and any(dim != 0 for dim in more):
        # Of the padding, only what `pads` asks for counts: make it data.
        rank = len(kernel)
        x = pad(x, scalar(0, node.dtype(0)), pads=(0, 0, *pads[:rank], 0, 0, *pads[rank:]), mode="constant")
        pads, include = more, False
    else:
        pads = _sum_pads(pads, more)
    return avg_pool(x, kernel=kernel, strides=strides, pads=pads, dilations=dilations, count_include_pad=include)


def _global_avg_pool(node: Node) -> Expr:
    return avg_pool(node.input(0), kernel=spatial_shape(node))


def _global_max_pool(node: Node) -> Expr:
    return max_pool(node.input(0), kernel=spatial_shape(node))


def _lp_pool(node: Node) -> Expr:
    kernel, strides, dilations, pads, more = _window(node)
    return _lp(node, kernel, strides, dilations, _sum_pads(pads, more))


def _global_lp_pool(node: Node) -> Expr:
    return _lp(node, spatial_shape(node), (), (), ())


def _lp(node: Node, kernel: tuple[Dim, ...], strides: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[Dim, ...]) -> Expr:
    """(sum of |x| ** p) ** (1 / p) over windows."""
    p = float(node.attrs.get("p", 2))
    of = node.dtype(0)
    powers = pow(abs(node.input(0)), scalar(p, of))
    mean = avg_pool(powers, kernel=kernel, strides=strides, pads=pads, dilations=dilations, count_include_pad=True)
    return pow(mul(mean, count(kernel, of)), scalar(1 / p, of))


def _max_unpool(node: Node) -> Expr:
    """Each element goes to the place that its index names in the vector of the unpooled tensor, 0 to all others.

    An `output_shape` beyond that adds zeros behind.
    """
    x, indices, shape = node.input(0), node.input(1), node.tensor(0).shape
    rank = len(spatial_shape(node))
    kernel, strides, pads = _kernel(node, rank), ints(node, "strides", rank, 1), explicit_pads(node, rank)
    unpooled = list(shape[:2])
    for axis in range(rank):
        unpooled.append((shape[2 + axis] - 1) * strides[axis] - pads[axis] - pads[rank + axis] + kernel[axis])
    of = node.dtype(0)
    zeros = full(scalar(0, of), shape=(arith.product(tuple(unpooled)),))
    flat = arith.product(shape)
    placed = scatter_along_axis(zeros, reshape(indices, shape=(flat,)), reshape(x, shape=(flat,)), axis=0)
    result = reshape(placed, shape=tuple(unpooled))
    if node.optional(2) is None:
        return result
    wanted = node.require_dims(2)
    if len(wanted) != len(unpooled):
        raise node.error(f"output_shape has {len(wanted)} dimensions, not {len(unpooled)}")
    more = tuple(arith.unwrap(arith.wrap(new - old)) for new, old in zip(wanted, unpooled, strict=True))
    return pad(result, scalar(0, of), pads=(0,) * len(more) + more)


CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": _avg_pool,
    "GlobalAveragePool": _global_avg_pool,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global_max_pool,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
