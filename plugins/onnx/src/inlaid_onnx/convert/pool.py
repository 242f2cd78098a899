"""Pooling."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr, call, tuple_item
from inlaid.ops.compose import cast_to, count, expr_type, scalar, widened
from inlaid.ops.elementwise import abs, mul, pow
from inlaid.ops.pool import AvgPoolAttrs, MaxPoolIndicesAttrs, PoolAttrs, avg_pool, max_pool, max_pool_indices
from inlaid.ops.scatter import scatter_along_axis
from inlaid.ops.shape import full, pad, reshape
from inlaid_onnx.convert.window import explicit_pads, ints, spatial_shape, window_pads
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass


def _kernel(node: Node, rank: int) -> tuple[int, ...]:
    if not node.attrs.get("kernel_shape"):
        raise node.error("the attribute kernel_shape is missing")
    return ints(node, "kernel_shape", rank, 1)


@dataclass(frozen=True)
class _Window:
    """Attributes of a pooling operator. `pads` is the node's padding, `ceil_pads` the padding that ceil_mode adds for extra
    windows."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    ceil_pads: tuple[Dim, ...]

    @property
    def total_pads(self) -> tuple[Dim, ...]:
        return tuple(arith.unwrap(arith.wrap(a + b)) for a, b in zip(self.pads, self.ceil_pads, strict=True))


def _window(node: Node) -> _Window:
    spatial = spatial_shape(node)
    rank = len(spatial)
    kernel = _kernel(node, rank)
    strides, dilations = ints(node, "strides", rank, 1), ints(node, "dilations", rank, 1)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    pads = window_pads(node, spatial, spans, strides)
    if not node.attrs.get("ceil_mode", 0):
        return _Window(kernel, strides, dilations, pads, (0,) * (2 * rank))
    end_pads: list[Dim] = []
    for extent, span, stride, before, after in zip(spatial, spans, strides, pads[:rank], pads[rank:], strict=True):
        outputs = arith.ceildiv(extent + before + after - span, stride) + 1
        # A window that would start in the padding after the data is dropped.
        starts = arith.compare("<", (outputs - 1) * stride, extent + before)
        outputs = outputs - arith.select(starts, 0, 1)
        reach = (outputs - 1) * stride + span
        end_pads.append(arith.unwrap(arith.maximum(0, reach - (extent + before + after))))
    return _Window(kernel, strides, dilations, pads, (0,) * rank + tuple(end_pads))


def _max_pool(node: Node) -> Expr | tuple[Expr | None, ...]:
    window = _window(node)
    plain = PoolAttrs(window.strides, window.total_pads, window.dilations, window.kernel)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return call(max_pool, (node.input(0),), plain)
    column_major = bool(node.attrs.get("storage_order", 0))
    attrs = MaxPoolIndicesAttrs(plain.strides, plain.pads, plain.dilations, plain.kernel, column_major)
    maxima_and_indices = call(max_pool_indices, (node.input(0),), attrs)
    return tuple_item(maxima_and_indices, 0), tuple_item(maxima_and_indices, 1)


def _avg_pool(node: Node) -> Expr:
    window = _window(node)
    x, pads = node.input(0), window.total_pads
    include = bool(node.attrs.get("count_include_pad", 0))
    if include and any(dim != 0 for dim in window.ceil_pads):
        # The average counts the padding in `pads`, but not that of ceil_mode: pad the data with the former.
        rank = len(window.kernel)
        before, after = window.pads[:rank], window.pads[rank:]
        x = pad(x, scalar(0, node.dtype(0)), pads=(0, 0, *before, 0, 0, *after), mode="constant")
        pads, include = window.ceil_pads, False
    return call(avg_pool, (x,), AvgPoolAttrs(window.strides, pads, window.dilations, window.kernel, include))


def _global_avg_pool(node: Node) -> Expr:
    return avg_pool(node.input(0), kernel=spatial_shape(node))


def _global_max_pool(node: Node) -> Expr:
    return max_pool(node.input(0), kernel=spatial_shape(node))


def _lp_pool(node: Node) -> Expr:
    window = _window(node)
    return _lp(node, AvgPoolAttrs(window.strides, window.total_pads, window.dilations, window.kernel, count_include_pad=True))


def _global_lp_pool(node: Node) -> Expr:
    return _lp(node, AvgPoolAttrs(kernel=spatial_shape(node)))


def _lp(node: Node, attrs: AvgPoolAttrs) -> Expr:
    """Build (sum of |x| ** p) ** (1 / p) over windows. Computed in the working dtype, as powers of narrow floats could overflow."""
    x, p = widened(node.input(0)), float(node.attrs.get("p", 2))
    dtype = expr_type(x).dtype
    mean = call(avg_pool, (pow(abs(x), scalar(p, dtype)),), attrs)
    return cast_to(pow(mul(mean, count(attrs.kernel, dtype)), scalar(1 / p, dtype)), node.dtype(0))


def _max_unpool(node: Node) -> Expr:
    """Convert MaxUnpool: scatter each element to its index in the flattened unpooled tensor. Other elements are 0.

    A larger `output_shape` appends zeros.
    """
    x, indices, shape = node.input(0), node.input(1), node.tensor(0).shape
    rank = len(spatial_shape(node))
    kernel, strides, pads = _kernel(node, rank), ints(node, "strides", rank, 1), explicit_pads(node, rank)
    unpooled = list(shape[:2])
    for axis in range(rank):
        unpooled.append((shape[2 + axis] - 1) * strides[axis] - pads[axis] - pads[rank + axis] + kernel[axis])
    with node.relations():
        require_shape(node.tensor(1).shape, shape, "the indices")
    dtype = node.dtype(0)
    zeros = full(scalar(0, dtype), shape=(arith.product(tuple(unpooled)),))
    flat = arith.product(shape)
    placed = scatter_along_axis(zeros, reshape(indices, shape=(flat,)), reshape(x, shape=(flat,)), axis=0)
    result = reshape(placed, shape=tuple(unpooled))
    if node.optional(2) is None:
        return result
    output_shape = node.sizes(2, "output_shape")
    if len(output_shape) != len(unpooled):
        raise node.error(f"output_shape must have {len(unpooled)} elements, got {len(output_shape)}")
    extra_sizes = tuple(arith.unwrap(arith.wrap(new - old)) for new, old in zip(output_shape, unpooled, strict=True))
    return pad(result, scalar(0, dtype), pads=(0,) * len(extra_sizes) + extra_sizes)


CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": _avg_pool,
    "GlobalAveragePool": _global_avg_pool,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global_max_pool,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
