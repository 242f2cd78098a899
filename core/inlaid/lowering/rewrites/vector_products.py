"""Compute products of a matrix and one vector, or a few, as sums along the rows of the matrix, which is read in memory order.

    matmul(x: (m, k), w: (k, 1))               =>    reduce_sum(x * w^T, axis=k)
    matmul(x: (m, k), w: (k, 3))               =>    concat(the same for each column)
    matmul(x: (1, k), transpose(w: (n, k)))    =>    reduce_sum(w * x, axis=k)

A tiled matrix product would fill few lanes with its columns, or copy the transposed operand at each call. The matrix is read once
for each vector, so reading it in order is all that counts. The matrix must have all batch axes of the result.
"""

from __future__ import annotations

import math

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, constant
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.lowering.rewrites.wide_floats import NARROW, WIDE
from inlaid.ops.compose import cast_to
from inlaid.passes.supported import Supports, is_supported, supports_everything
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.arith import size_hint


def vector_products(function: Function, context: KernelContext, supports: Supports = supports_everything) -> Function:
    """Rewrite products of a matrix and few vectors of one element type whose sums run along rows of the matrix. Returns the same
    object if there are none, or if the target does not support a new operator."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.matmul:
            return new
        types = [tensor_type(item.type) for item in (*new.args, new)]
        if any(item.dtype is not types[-1].dtype for item in types) or min(item.rank for item in types) < 2:
            return new
        products = math.prod(map(size_hint, (*types[-1].shape, types[0].shape[-1])))
        if products < context.capabilities.core.costs.summed_products:
            return new
        columns = types[1].shape[-1]
        # Half a vector of columns, or more, is computed in lanes.
        total = None
        if types[0].shape[-2] == 1:
            total = _row(new)
        elif isinstance(columns, int) and 0 < 2 * columns * types[1].dtype.bits < context.capabilities.vector_bits:
            total = _columns(new, columns)
        return new if total is None or not is_supported(total, supports, *new.args) else total

    return transform_function(function, visit)


def _columns(product: Call, columns: int) -> Expr | None:
    """Rewrite a product with few columns."""
    x, w = product.args
    if isinstance(x, Constant):  # packed at compile time
        return None
    *batch, depth, _ = tensor_type(w.type).shape
    parts = []
    for column in range(columns):
        if isinstance(w, Constant):
            vector: Expr = constant(w.data[..., None, :, column].copy(), span=w.span)
        else:
            strides, starts = (1,) * (len(batch) + 2), (*(0 for _ in batch), 0, column)
            piece = ops.strided_slice(w, begin=starts, end=(*batch, depth, column + 1), strides=strides, span=product.span)
            vector = ops.reshape(piece, shape=(*batch, 1, depth), span=product.span)
        total = _total(product, x, vector)
        if total is None:
            return None
        parts.append(total)
    return ops.concat(*parts, axis=tensor_type(product.type).rank - 1, span=product.span) if columns > 1 else parts[0]


def _row(product: Call) -> Expr | None:
    """Rewrite a product with a single row, if the right operand is transposed."""
    x, w = product.args
    if not isinstance(w, Call) or w.callee is not ops.transpose or isinstance(w.args[0], Constant):
        return None
    perm = w.attrs.perm
    if perm[-2] != len(perm) - 1:
        return None
    matrix, swapped = w.args[0], (*perm[:-2], perm[-1], perm[-2])
    if swapped != tuple(range(len(perm))):
        matrix = ops.transpose(matrix, perm=swapped, span=w.span)
    return _total(product, matrix, x)


def _total(product: Call, matrix: Expr, vector: Expr) -> Expr | None:
    """Sum a matrix times a row vector along rows; None if the matrix does not have all batch axes of the result."""
    shape = tensor_type(product.type).shape
    if tensor_type(matrix.type).shape[:-2] != shape[:-2]:
        return None
    element_type = tensor_type(product.type).dtype
    if element_type.name in NARROW:  # the sum is rounded once
        matrix, vector = cast_to(matrix, WIDE), cast_to(vector, WIDE)
    terms = ops.mul(matrix, vector, span=product.span)
    total: Expr = ops.reduce_sum(terms, axes=(len(shape) - 1,), keepdims=False, span=product.span)
    total = cast_to(total, element_type)
    rows, columns = (1, shape[-1]) if tensor_type(product.args[0].type).shape[-2] == 1 else (shape[-2], 1)
    return ops.reshape(total, shape=(*shape[:-2], rows, columns), span=product.span)
