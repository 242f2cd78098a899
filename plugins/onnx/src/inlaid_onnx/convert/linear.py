"""Linear algebra."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.conditions import require_broadcast_to
from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, expr_type, scalar, widened
from inlaid.ops.elementwise import add, mul
from inlaid.ops.linear import det, matmul
from inlaid.ops.shape import transpose
from inlaid_onnx.node import Converter, Node


def _gemm(node: Node) -> Expr:
    if node.rank(0) != 2 or node.rank(1) != 2:
        raise node.error(f"A and B must be matrices, got {node.tensor(0)!r} and {node.tensor(1)!r}")
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    # Scale in the working dtype: a product of narrow floats could overflow before it is scaled down.
    wide = node.dtype(0).is_float and (alpha, beta) != (1, 1)
    a, b = (widened(node.input(index)) if wide else node.input(index) for index in range(2))
    a = transpose(a, perm=(1, 0)) if node.attrs.get("transA", 0) else a
    b = transpose(b, perm=(1, 0)) if node.attrs.get("transB", 0) else b
    product = _scaled(node, matmul(a, b), alpha)
    c = node.optional(2)
    if c is not None:
        with node.relations():
            require_broadcast_to(node.tensor(2).shape, expr_type(product).shape, "C")
        product = add(product, _scaled(node, widened(c) if wide else c, beta))
    return cast_to(product, node.dtype(0))


def _scaled(node: Node, value: Expr, factor: float) -> Expr:
    dtype = expr_type(value).dtype
    if factor == 1:
        return value
    if dtype.is_int and factor != int(factor):
        raise node.error(f"the factor of {dtype} must be an integer, got {factor}")
    return mul(value, scalar(factor, dtype))


def _matmul(node: Node) -> Expr:
    return matmul(node.input(0), node.input(1))


def _det(node: Node) -> Expr:
    return det(node.input(0))


CONVERTERS: Mapping[str, Converter] = {"Det": _det, "Gemm": _gemm, "MatMul": _matmul}
