"""Linear algebra."""

from __future__ import annotations

import numpy as np

from inlaid.graph.conditions import broadcast_shapes, require_equal
from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.ops.define import (
    FLOAT,
    NUMERIC,
    PRODUCT_DTYPE,
    Array,
    as_array,
    broadcast_read,
    loop_nest,
    make_family,
    quiet,
    tensor_type,
)
from inlaid.ops.product import accumulator_dtype, product_dtype, rounded
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type, from_numpy


@dataclass(frozen=True)
class MatmulAttrs(Attrs):
    """`out_dtype`: the dtype of the result; "": the operands' dtype, at least int32 for integers."""

    out_dtype: str = ""


def _matmul_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    if not a or not b:
        raise ValueError(f"a and b must have rank >= 1, got shapes {a} and {b}")
    require_equal(a[-1], b[-2] if len(b) > 1 else b[0], "the inner dimension of a")
    batch = broadcast_shapes(a[:-2], b[:-2])
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _infer_matmul(attrs: MatmulAttrs, a: Type, b: Type) -> Type:
    left, right = tensor_type(a, NUMERIC, "a"), tensor_type(b, NUMERIC, "b")
    return TensorType(_matmul_shape(left.shape, right.shape), product_dtype(left.dtype, right.dtype, attrs.out_dtype))


@quiet
def _reference_matmul(attrs: MatmulAttrs, a: Array, b: Array) -> Array:
    result = product_dtype(from_numpy(a.dtype), from_numpy(b.dtype), attrs.out_dtype)
    acc = accumulator_dtype(result).numpy
    return as_array(np.matmul(a.astype(acc, copy=False), b.astype(acc, copy=False)), result)


def _compute_matmul(attrs: MatmulAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    result = product_dtype(a.dtype, b.dtype, attrs.out_dtype)
    acc = accumulator_dtype(result)
    shape = _matmul_shape(a.shape, b.shape)
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    k = te.reduce_axis(a.shape[-1], "k")

    def element(*index: arith.Var) -> ir.Expr:
        outer, rest = index[: len(batch)], list(index[len(batch) :])
        row = (rest.pop(0),) if a.rank > 1 else ()
        column = (rest.pop(0),) if b.rank > 1 else ()
        left = broadcast_read(a, (*batch, *a.shape[-2:]), (*outer, *row, k))
        right = broadcast_read(b, (*batch, *b.shape[-2:]), (*outer, k, *column))
        total: ir.Expr = te.sum_(te.cast(left, acc) * te.cast(right, acc), k)
        return total

    return rounded(te.compute(shape, element, "matmul"), result)


def _infer_det(attrs: Attrs, x: Type) -> Type:
    matrices = tensor_type(x, FLOAT)
    if matrices.rank < 2:
        raise ValueError(f"expected square matrices (..., n, n), got shape {matrices.shape}")
    require_equal(matrices.shape[-1], matrices.shape[-2], "the last dimension of square matrices")
    return TensorType(matrices.shape[:-2], matrices.dtype)


@quiet
def _reference_det(attrs: Attrs, x: Array) -> Array:
    result = from_numpy(x.dtype)
    return as_array(np.linalg.det(x.astype(accumulator_dtype(result).numpy, copy=False)), result)


def _compute_det(attrs: Attrs, x: te.Tensor) -> te.Tensor:
    """Compute determinants by Gaussian elimination with partial pivoting, one matrix after another."""
    size = x.shape[-1]
    acc = accumulator_dtype(x.dtype)

    def body(b: Builder, inputs: tuple[ir.Buffer, ...], outputs: tuple[ir.Buffer, ...]) -> None:
        source, target = inputs[0], outputs[0]
        matrix = b.alloc((size, size), acc, "work")
        det = b.alloc((), acc, "det")
        best = b.alloc((), "int64", "best")
        scratch = b.alloc((), acc, "scratch")
        with loop_nest(b, x.shape[:-2]) as batch:
            with b.loop(size, "i") as i, b.loop(size, "j") as j:
                b.store(matrix, (i, j), te.cast(source[(*batch, i, j)], acc))
            b.store(det, (), te.const(1, acc))
            with b.loop(size, "k") as k:
                b.store(best, (), k)
                b.store(scratch, (), te.unary("abs", matrix[k, k]))
                with b.loop(size - 1 - k, "i") as i, b.if_(te.unary("abs", matrix[k + 1 + i, k]) > scratch[()]):
                    b.store(best, (), k + 1 + i)
                    b.store(scratch, (), te.unary("abs", matrix[k + 1 + i, k]))
                pivot = b.let(best[()], "pivot", (0, size - 1))
                with b.if_(arith.compare("!=", pivot, k)):
                    b.store(det, (), -det[()])
                    with b.loop(size, "j") as j:
                        b.store(scratch, (), matrix[k, j])
                        b.store(matrix, (k, j), matrix[pivot, j])
                        b.store(matrix, (pivot, j), scratch[()])
                b.store(det, (), det[()] * matrix[k, k])
                # Below a zero pivot, the column is zero already.
                with b.if_(matrix[k, k].not_equal(0)), b.loop(size - 1 - k, "i") as i:
                    b.store(scratch, (), matrix[k + 1 + i, k] / matrix[k, k])
                    with b.loop(size - 1 - k, "j") as j:
                        b.store(matrix, (k + 1 + i, k + 1 + j), matrix[k + 1 + i, k + 1 + j] - scratch[()] * matrix[k, k + 1 + j])
            b.store(target, batch, te.cast(det[()], x.dtype))

    return te.extern([(x.shape[:-2], x.dtype)], [x], body, "det")[0]


matmul = Operator(
    "matmul",
    _infer_matmul,
    MatmulAttrs,
    reference=_reference_matmul,
    compute=_compute_matmul,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 2),
    inputs=("a", "b"),
    doc=f"""Matrix product, as numpy.matmul.
Operands: a (..., n, k), b (..., k, m), of one float dtype or any integer dtypes; leading dimensions broadcast. A vector is a row on
the left, a column on the right. Result: (..., n, m), {PRODUCT_DTYPE}.""",
)

det = Operator(
    "det",
    _infer_det,
    reference=_reference_det,
    compute=_compute_det,
    inputs=("x",),
    doc="Determinant of square matrices.\nOperand: x (..., n, n), float. Result: (...), dtype of x.",
)

OPERATORS = make_family(matmul, det)
