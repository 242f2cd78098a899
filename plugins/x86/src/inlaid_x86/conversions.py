"""Floats to int64 where no instruction converts vectors of them, before AVX-512DQ: by arithmetic in float64, not lane by lane."""

from __future__ import annotations

from collections.abc import Collection

from inlaid.tensor import ir
from inlaid.tensor.ir import Expr, bitcast, cast, const, select, unary
from inlaid.tensor.math.floats import FLOAT64, at_least
from inlaid.tensor.transform.rewrite import Rewriter

_HALF = 2.0**32
_LIMIT = 2.0**63
_UPPER_MAGIC = FLOAT64.magic + float(-(FLOAT64.magic_bits >> 32) % (1 << 32))
"""What the upper half gets in its low bits takes the bits of `magic` off the lower half."""


def expand_conversions(program: ir.LoopProgram, present: Collection[str]) -> ir.LoopProgram:
    """The program with its conversions of float32 and float64 to int64 as arithmetic, on processors that are faster so."""
    return Rewriter(expr=_expanded).program(program) if "avx2" in present and "avx512dq" not in present else program


def _expanded(node: Expr) -> Expr | None:
    if isinstance(node, ir.Cast) and node.dtype.name == "int64" and node.a.dtype.name in ("float32", "float64"):
        return to_int64(node.a)
    return None


def to_int64(x: Expr) -> Expr:
    """A float truncated to int64, saturated, NaN as 0: in two halves of 32 bits, each in the low bits of a float64."""
    known = select(unary("isnan", x), const(0, x.dtype), x)
    real = unary("trunc", at_least(cast(known, FLOAT64.dtype), -_LIMIT))
    upper = real * (1 / _HALF) + _UPPER_MAGIC
    lower = real - (upper - _UPPER_MAGIC) * _HALF + FLOAT64.magic
    whole = (bitcast(upper, FLOAT64.integer) << 32) + bitcast(lower, FLOAT64.integer)
    return select(real >= _LIMIT, const(FLOAT64.integer.limits[1], FLOAT64.integer), whole)
