"""Linear algebra."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.frontends.onnx.node import Converter, Node
from inlaid.graph.ir import Expr
from inlaid.ops.compose import scalar
from inlaid.ops.elementwise import add, mul
from inlaid.ops.linear import det, matmul
from inlaid.ops.shape import transpose


def _gemm(node: Node) -> Expr:
    if node.rank(0) != 2 or node.rank(1) != 2:
        raise node.error("the factors must be matrices")
    a = transpose(node.input(0), perm=(1, 0)) if node.attrs.get("transA", 0) else node.input(0)
    b = transpose(node.input(1), perm=(1, 0)) if node.attrs.get("transB", 0) else node.input(1)
    product = _scaled(node, matmul(a, b), node.attrs.get("alpha", 1.0))
    c = node.optional(2)
    return product if c is None else add(product, _scaled(node, c, node.attrs.get("beta", 1.0)))


def _scaled(node: Node, value: Expr, factor: float) -> Expr:
    of = node.dtype(0)
    if factor == 1:
        return value
    if of.is_int and factor != int(factor):
        raise node.error(f"integers of type {of} cannot be scaled by {factor}")
    return mul(value, scalar(factor, of))


def _matmul(node: Node) -> Expr:
    return matmul(node.input(0), node.input(1))


def _det(node: Node) -> Expr:
    return det(node.input(0))


CONVERTERS: Mapping[str, Converter] = {"Det": _det, "Gemm": _gemm, "MatMul": _matmul}
