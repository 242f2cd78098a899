"""Mathematical functions expanded into arithmetic (fma, shifts, selects, bitcasts), so that they vectorize without a library.

The maximum errors, in units in the last place of the result, are

* float32: exp, exp2, log, log1p 1; expm1, erf, rsqrt 1.5; tanh, sigmoid 2.5; asin, acos 0.7; all others 0.6;
* float64: log, log1p, sin, cos, acos, pow 1; exp, exp2 1.1; log2, rsqrt, asinh 1.5; expm1, tan, asin, atan, atan2, acosh, atanh,
  cosh, erf 2; tanh, sinh, sigmoid 2.5,

as measured by the tests over all exponents and special values. Some functions of float32 compute in float64. If `wide` is false,
for targets whose float64 is slow or missing, these functions compute in pairs of float32s and integers instead, with a maximum
error of 1.5 units; the other functions are the same. These bounds hold for correctly rounded quotients and roots. Denormals,
infinities, NaN and signed zeros follow IEEE 754's recommendations. Arguments of sin, cos and tan may be arbitrarily large.
Functions of narrower floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable

from inlaid.tensor import ir
from inlaid.tensor.ir import Expr, const, unary
from inlaid.tensor.math import exponential as e
from inlaid.tensor.math import pairs as p
from inlaid.tensor.math import trigonometric as t
from inlaid.tensor.math.floats import FLOAT32, FLOAT64, Format, scale
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime.types import dtype as as_dtype


def _rsqrt(x: Expr, form: Format) -> Expr:
    return const(1, x.dtype) / unary("sqrt", x)


_EITHER_FORMAT: dict[str, Callable[[Expr, Format], Expr]] = {
    "exp": e.exp,
    "exp2": e.exp2,
    "expm1": e.expm1,
    "log": lambda x, form: e.log(x, form),
    "log1p": e.log1p,
    "log2": e.log2,
    "erf": e.erf,
    "sigmoid": e.sigmoid,
    "tanh": e.tanh,
    "rsqrt": _rsqrt,
}
"""Implementations for float32 and float64, by function. The second argument is the format to compute in."""
_FROM_FLOAT64 = frozenset(("log2",))
"""Functions that are computed in float64 even for float32, for accuracy near 1."""

_WIDE: dict[str, Callable[..., Expr]] = {
    "asin": t.asin,
    "acos": t.acos,
    "atan": t.atan,
    "atan2": t.atan2,
    "pow": lambda x, y: e.power(x, y, FLOAT64),
    "sinh": e.sinh,
    "cosh": e.cosh,
    "asinh": e.asinh,
    "acosh": e.acosh,
    "atanh": e.atanh,
}
"""Implementations in float64, by function."""
_SHORT: dict[str, Callable[..., Expr]] = {"asin": t.asin_short, "acos": t.acos_short, "pow": e.power_short}
"""Specialized implementations for float32, by function."""
_PAIRS: dict[str, Callable[..., Expr]] = {
    "acosh": p.acosh,
    "asin": t.asin_short,
    "asinh": p.asinh,
    "acos": t.acos_short,
    "atan": p.atan,
    "atan2": p.atan2,
    "atanh": p.atanh,
    "cos": p.cos,
    "cosh": p.cosh,
    "log2": p.log2,
    "pow": lambda x, y: e.power(x, y, FLOAT32),
    "sin": p.sin,
    "sinh": p.sinh,
    "tan": p.tan,
}
"""Implementations for float32 without float64, by function."""
_TRIGONOMETRIC: dict[str, Callable[..., Expr]] = {"sin": t.sin, "cos": t.cos, "tan": t.tan}
"""Implementations in float64 that take whether the argument is a float32 (`short`), by function."""


def expand(expr: Expr, keep: frozenset[str] = frozenset(), wide: bool = True) -> Expr:
    """Replace the mathematical functions in an expression by arithmetic, except those in `keep`. `wide`: whether functions of
    float32 and narrower floats may compute in float64."""
    for rewriter in _rewriters(keep, wide):
        expr = rewriter.expr(expr)
    return expr


def expand_program(program: ir.LoopProgram, keep: frozenset[str] = frozenset(), wide: bool = True) -> ir.LoopProgram:
    """Replace the mathematical functions in a program by arithmetic. `keep` names functions that the target implements. `wide` is
    as for `expand`."""
    if not any(type(node) is ir.CallMath and node.name not in keep for node in ir.values_in(program.body)):
        return program
    for rewriter in _rewriters(keep, wide):
        program = rewriter.program(program)
    return program


def _rewriters(keep: frozenset[str], wide: bool) -> tuple[Rewriter, Rewriter]:
    """Return a rewriter for all functions, some of which expand to `scalb`, and a rewriter for `scalb`."""
    return _rewriter(keep | {"scalb"}, wide), _rewriter(keep | set(ir.MATH) - {"scalb"}, wide)


def _rewriter(keep: frozenset[str], wide: bool) -> Rewriter:
    return Rewriter(expr=lambda node: _call(node, wide) if isinstance(node, ir.CallMath) and node.name not in keep else None)


def _call(node: ir.CallMath, wide: bool) -> Expr:
    name, args, dtype = node.name, node.args, node.dtype
    if name == "flush":
        return args[0]
    if dtype.bits < 32:
        return ir.cast(_call(ir.CallMath(FLOAT32.dtype, name, tuple(ir.cast(arg, FLOAT32.dtype) for arg in args)), wide), dtype)
    short = dtype is as_dtype("float32")
    if name == "scalb":
        return scale(args[0], args[1], FLOAT32 if short else FLOAT64)
    if short and not wide and name in _PAIRS:
        return _PAIRS[name](*args)
    if name in _EITHER_FORMAT and not (short and name in _FROM_FLOAT64):
        return _EITHER_FORMAT[name](args[0], FLOAT32 if short else FLOAT64)
    if short and name in _SHORT:
        return _SHORT[name](*args)
    widened = tuple(ir.cast(arg, FLOAT64.dtype) for arg in args)
    if name in _EITHER_FORMAT:
        value = _EITHER_FORMAT[name](widened[0], FLOAT64)
    elif name in _TRIGONOMETRIC:
        value = _TRIGONOMETRIC[name](*widened, short)
    elif short and name == "atan":
        value = t.atan_short(*widened)
    else:
        value = _WIDE[name](*widened)
    return ir.cast(value, dtype)
