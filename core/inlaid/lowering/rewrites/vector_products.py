"""Sum products of a matrix and a vector along the matrix's rows, as it lies in memory.

    matmul(x: (m, k), w: (k, 1))               =>    reduce_sum(x * w^T, axis=k)
    matmul(x: (1, k), transpose(w: (n, k)))    =>    reduce_sum(w * x, axis=k)

A tile of a product of matrices would have one column, or copy the transposed operand at each call. The matrix is read once either
way, so reading it in order is all that counts. The matrix may have batch axes; all those of the result.
"""

from __future__ import annotations

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function
from inlaid.graph.transform import transform_function
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.passes.supported import Supports, is_supported, supports_everything


def vector_products(function: Function, supports: Supports = supports_everything) -> Function:
    """Rewrite float products of a matrix and a vector whose sums run along rows of the matrix. Returns the same object if there are
    none, or if the target does not support a new operator."""

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.matmul or not tensor_type(new.type).dtype.is_float:
            return new
        types = [tensor_type(item.type) for item in (*new.args, new)]
        if any(item.dtype is not types[-1].dtype for item in types) or min(item.rank for item in types) < 2:
            return new
        total = _column(new) if types[1].shape[-1] == 1 else _row(new) if types[0].shape[-2] == 1 else None
        return new if total is None or not is_supported(total, supports, *new.args) else total

    return transform_function(function, visit)


def _column(product: Call) -> Expr | None:
    """Rewrite a product with a single column."""
    x, w = product.args
    if isinstance(x, Constant):  # packed at compile time
        return None
    *batch, depth, _ = tensor_type(w.type).shape
    return _total(product, x, ops.reshape(w, shape=(*batch, 1, depth), span=product.span))


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
    terms = ops.mul(matrix, vector, span=product.span)
    total = ops.reduce_sum(terms, axes=(len(shape) - 1,), keepdims=False, span=product.span)
    return ops.reshape(total, shape=shape, span=product.span)
