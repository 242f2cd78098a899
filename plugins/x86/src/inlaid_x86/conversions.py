"""Vectorizable conversion of floats to int64 by float64 arithmetic. AVX2 has no instruction for this."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

from inlaid.tensor import ir
from inlaid.tensor.ir import Expr, bitcast, cast, const, select, unary
from inlaid.tensor.math.floats import FLOAT64, clamp_min
from inlaid.tensor.transform.rewrite import Rewriter

_HALF = 2.0**32
_LIMIT = 2.0**63
_UPPER_MAGIC = FLOAT64.magic + float(-(FLOAT64.magic_bits >> 32) % (1 << 32))
"""Magic constant for the upper half of the result. Its low bits also cancel the bits of `FLOAT64.magic` in the lower half."""


def expand_conversions(program: ir.LoopProgram, present: Collection[str]) -> ir.LoopProgram:
    """Expand conversions of float32 and float64 to int64 to arithmetic, on processors on which the arithmetic is faster."""
    if "avx2" not in present or "avx512dq" in present or not any(map(_expands, ir.values_in(program.body))):
        return program
    return Rewriter(expr=lambda node: to_int64(node.a) if _expands(node) else None).program(program)


def _expands(node: Expr) -> TypeGuard[ir.Cast]:
    return isinstance(node, ir.Cast) and node.dtype.name == "int64" and node.a.dtype.name in ("float32", "float64")


def to_int64(x: Expr) -> Expr:
    """Truncate a float to int64, saturating, NaN to 0. Computes two 32-bit halves, each in the low bits of a float64."""
    nan_free = select(unary("isnan", x), const(0, x.dtype), x)
    real = unary("trunc", clamp_min(cast(nan_free, FLOAT64.dtype), -_LIMIT))
    upper = real * (1 / _HALF) + _UPPER_MAGIC
    lower = real - (upper - _UPPER_MAGIC) * _HALF + FLOAT64.magic
    integer = (bitcast(upper, FLOAT64.integer) << 32) + bitcast(lower, FLOAT64.integer)
    return select(real >= _LIMIT, const(FLOAT64.integer.limits[1], FLOAT64.integer), integer)
