"""Discrete Fourier transforms as products with matrices of cosines and sines, for the frontends."""

from __future__ import annotations

import math

from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, count, expand_dims, expr_type, join, scalar, slice_axis, squeeze
from inlaid.ops.elementwise import add, cos, div, mod, mul, neg, sin, sub
from inlaid.ops.linear import matmul
from inlaid.ops.shape import iota, pad, transpose
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import DType


def waves(rows: Dim, columns: Dim, length: Dim, dtype: DType) -> tuple[Expr, Expr]:
    """Build the matrices cos and sin of 2 pi t k / length for t in [0, rows), k in [0, columns).

    t * k is reduced modulo the length in integers, so that the angles are rounded only once.
    """
    t, k = (iota(shape=(rows, columns), axis=axis, dtype="int64") for axis in (0, 1))
    cycles = div(cast_to(mod(mul(t, k), count((length,), "int64")), "float64"), count((length,), "float64"))
    angle = mul(cycles, scalar(2 * math.pi, "float64"))
    return cast_to(cos(angle), dtype), cast_to(sin(angle), dtype)


def resize_axis(x: Expr, axis: int, length: Dim) -> Expr:
    """Crop or zero-pad the tensor at the end to a length along an axis."""
    type_ = expr_type(x)
    extent = type_.shape[axis]
    if extent == length:
        return x
    if isinstance(extent, int) and isinstance(length, int) and length < extent:
        return slice_axis(x, axis, 0, length)
    padding = arith.unwrap(arith.maximum(length - arith.wrap(extent), 0))
    after = tuple(padding if index == axis else 0 for index in range(type_.rank))
    x = pad(x, scalar(0, type_.dtype), pads=(*(0,) * type_.rank, *after))
    return slice_axis(x, axis, 0, length)


def transform(real: Expr, imaginary: Expr | None, length: Dim, inverse: bool, bins: Dim) -> tuple[Expr, Expr]:
    """Build the real and imaginary parts of the first `bins` values of the transform along the last axis, of `length` elements."""
    dtype = expr_type(real).dtype
    cosine, sine = waves(length, bins, length, dtype)
    sine = sine if inverse else neg(sine)
    out_real, out_imaginary = matmul(real, cosine), matmul(real, sine)
    if imaginary is not None:
        out_real = sub(out_real, matmul(imaginary, sine))
        out_imaginary = add(out_imaginary, matmul(imaginary, cosine))
    if not inverse:
        return out_real, out_imaginary
    scale = count((length,), dtype)
    return div(out_real, scale), div(out_imaginary, scale)


def swap_axes(x: Expr, axis: int) -> Expr:
    """Swap an axis with the last one."""
    last = expr_type(x).rank - 1
    perm = list(range(last + 1))
    perm[axis], perm[last] = last, axis
    return x if axis == last else transpose(x, perm=tuple(perm))


def stack_parts(*parts: Expr) -> Expr:
    """Stack parts along a new last axis."""
    rank = expr_type(parts[0]).rank
    return join([expand_dims(part, rank) for part in parts], rank)


def select_part(x: Expr, number: int) -> Expr:
    """Return part `number` along the last axis, such as the real (0) or the imaginary part (1)."""
    last = expr_type(x).rank - 1
    return squeeze(slice_axis(x, last, number, number + 1), last)
