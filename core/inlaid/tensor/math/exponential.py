"""Exponentials, logarithms and related functions as arithmetic.

Each function takes a value of the format's dtype and returns a value expression. The methods are the textbook ones: argument
reduction, exact to working precision, then a polynomial (J.-M. Muller, "Elementary Functions", chapters 3 and 11).
"""

from __future__ import annotations

from inlaid.tensor.ir import Expr, bitcast, cast, const, fma, math, select, unary
from inlaid.tensor.math import polynomials
from inlaid.tensor.math.floats import (
    FLOAT32,
    FLOAT64,
    INFINITY,
    NAN,
    Format,
    clamp_max,
    clamp_min,
    copysign,
    exponent,
    horner,
    magnitude,
    quick_two_sum,
    to_float,
    two_product,
    two_sum,
    where_tiny,
)

LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
"""log2(e) as a sum of two float64s."""
LOG2_E_SHORT = (1.4426950216293335, 1.925963033500011e-08)
"""log2(e) as a sum of two float32s."""
_TWO_THIRDS = {FLOAT32: (0.6666666865348816, -1.9868215517249155e-08), FLOAT64: (2 / 3, 3.700743415417188e-17)}
"""2/3 as a sum of two numbers of the format."""
_LOG_LATE = {FLOAT32: polynomials.LOG_LATE_64[:6], FLOAT64: polynomials.LOG_LATE_64}
_EXP = {FLOAT32: polynomials.EXP_32, FLOAT64: polynomials.EXP_64}
_EXPM1 = {FLOAT32: polynomials.EXPM1_32, FLOAT64: polynomials.EXPM1_64}
_EXP_RANGE = {FLOAT32: (-104.0, 89.0), FLOAT64: (-746.0, 710.0)}
"""The lower and upper limit of arguments. exp gives 0 below the lower limit, and infinity above the upper one."""
_EXP2_RANGE = {FLOAT32: (-151.0, 129.0), FLOAT64: (-1076.0, 1025.0)}
_MINUS_ONE_BELOW = {FLOAT32: -18.0, FLOAT64: -38.0}
"""The argument below which exp(x) - 1 rounds to -1."""


def _reduce(x: Expr, form: Format, ahead: int = 0) -> tuple[Expr, Expr, Expr]:
    """Reduce x to n ln(2) + r with |r| <= ln(2) / 2. Returns n, 2 ** (n + ahead), and r."""
    n, power = exponent(x * LOG2_E[0], form, ahead)
    r = fma(n, const(-form.ln2[0], form.dtype), x)
    return n, power, fma(n, const(-form.ln2[1], form.dtype), r)


def _exp_reduced(r: Expr, form: Format) -> Expr:
    """Compute exp(r) for |r| <= ln(2) / 2."""
    return fma(r, fma(r, horner(r, _EXP[form]), const(1, form.dtype)), const(1, form.dtype))


def exp(x: Expr, form: Format) -> Expr:
    """Compute e ** x."""
    low, high = _EXP_RANGE[form]
    n, _, r = _reduce(clamp_min(clamp_max(x, high), low), form, form.bias)
    return math("scalb", _exp_reduced(r, form), n)


def exp2(x: Expr, form: Format) -> Expr:
    """Compute 2 ** x."""
    low, high = _EXP2_RANGE[form]
    x = clamp_min(clamp_max(x, high), low)
    n, _ = exponent(x, form, form.bias)
    return math("scalb", _exp_reduced((x - n) * form.ln2[0], form), n)


def expm1(x: Expr, form: Format) -> Expr:
    """Compute e ** x - 1."""
    return where_tiny(x, form, _expm1_between(clamp_min(clamp_max(x, _EXP_RANGE[form][1]), _MINUS_ONE_BELOW[form]), form))


def _expm1_between(x: Expr, form: Format) -> Expr:
    """Compute e ** x - 1 for x that is not tiny, and for which the result neither overflows nor rounds to -1."""
    # 2^n (exp(r) - 1) + (2^n - 1), computed halved so that n = 128 (or 1024) does not overflow in between.
    _, half, r = _reduce(x, form, -1)
    halved = fma(half, _expm1_reduced(r, form), half - 0.5)
    return halved + halved


def _expm1_reduced(r: Expr, form: Format) -> Expr:
    """Compute exp(r) - 1 for |r| <= ln(2) / 2."""
    return fma(r * r, horner(r, _EXPM1[form]), r)


def sigmoid(x: Expr, form: Format) -> Expr:
    """Compute 1 / (1 + e ** -x)."""
    n, _, r = _reduce(clamp_min(-magnitude(x), _EXP_RANGE[form][0]), form, form.falling)
    small = math("scalb", _exp_reduced(r, form), n)
    return select(x < 0.0, small, const(1, form.dtype)) / (small + 1.0)


def tanh(x: Expr, form: Format) -> Expr:
    """Compute the hyperbolic tangent."""
    # From 22 on the result rounds to 1 in both formats. A tiny x is preserved: 2x / 2.
    _, power, r = _reduce(clamp_max(magnitude(x) * 2.0, 44.0), form)
    exp_minus_one = fma(power, _expm1_reduced(r, form), power - 1.0)
    return copysign(exp_minus_one / (exp_minus_one + 2.0), x, form)


def _split(x: Expr, form: Format) -> tuple[Expr, Expr]:
    """Decompose a positive finite x as m 2^k with m in [sqrt(1/2), sqrt(2)). Returns the integer k, and m."""
    denormal = x < form.least_normal
    shift = form.digits + 1
    bits = bitcast(select(denormal, x * 2.0**shift, x), form.integer)
    root_half = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCC}[form.digits]
    k = (bits - root_half) >> form.digits
    m = bitcast(bits - (k << form.digits), form.dtype)
    return k - select(denormal, const(shift, form.integer), 0), m


def log_special(x: Expr, value: Expr) -> Expr:
    """Add the special cases of logarithms to `value`, which is valid for positive finite x."""
    positive_result = select(x < INFINITY, value, x)
    return select(x <= 0.0, select(x < 0.0, const(NAN, x.dtype), -INFINITY), positive_result)


def log_parts(x: Expr, form: Format) -> tuple[Expr, Expr, Expr]:
    """Decompose log(x) as k ln(2) + f - t, for positive finite x. Returns k as a float, f, and t."""
    k, m = _split(x, form)
    f = m - 1.0
    half_square = f * f * 0.5
    if form is FLOAT32:
        higher_terms = f * f * f * horner(f, polynomials.LOG_32)
    else:
        s = f / (f + 2.0)
        z = s * s
        higher_terms = s * fma(z, horner(z, polynomials.LOG_ODD_64), half_square)
    return to_float(k, form), f, half_square - higher_terms


def log(x: Expr, form: Format, correction: Expr | None = None) -> Expr:
    """Compute the natural logarithm of x, or of x (1 + correction) if `correction` is given."""
    k, f, t = log_parts(x, form)
    high, low = form.ln2_short
    rest = k * low if correction is None else fma(k, const(low, form.dtype), correction)
    return log_special(x, fma(k, const(high, form.dtype), f - (t - rest)))


def log2(x: Expr, form: Format) -> Expr:
    """Compute the logarithm to base 2."""
    k, f, t = log_parts(x, form)
    value = fma(f - t, const(LOG2_E[0], form.dtype), fma(f - t, const(LOG2_E[1], form.dtype), k))
    return log_special(x, value)


def log1p(x: Expr, form: Format) -> Expr:
    """Compute log(1 + x)."""
    u = x + 1.0
    # The rounding error of the addition.
    lost = select(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    correction = select(u < INFINITY, lost / u, const(0, form.dtype))
    return where_tiny(x, form, log(u, form, correction))


def erf(x: Expr, form: Format) -> Expr:
    """Compute the error function."""
    a = magnitude(x)
    small = fma(x, horner(x * x, polynomials.ERF_32 if form is FLOAT32 else polynomials.ERF_64), x)
    if form is FLOAT32:
        # From 4 on the result rounds to 1.
        logarithm = horner(clamp_max(a, 4.0), polynomials.ERFC_LOG2_32)
        n, power = exponent(logarithm, form)
        rest = horner(logarithm - n, polynomials.EXP2_SHORT_32) * power
    else:
        argument = clamp_max(a, 6.0)
        rest = horner((argument - 2.0) / (argument + 2.0), polynomials.ERFC_64) * exp(-argument * argument, form)
    return select(a < 1.0, small, copysign(1.0 - rest, x, form))


def sinh(x: Expr) -> Expr:
    """Compute the hyperbolic sine of a float64."""
    a = magnitude(x)
    exp_minus_one = expm1(a, FLOAT64)
    half = exp(a * 0.5, FLOAT64)
    value = select(a < 700.0, (exp_minus_one + exp_minus_one / (exp_minus_one + 1.0)) * 0.5, half * 0.5 * half)
    return where_tiny(x, FLOAT64, copysign(value, x, FLOAT64))


def cosh(x: Expr) -> Expr:
    """Compute the hyperbolic cosine of a float64."""
    a = magnitude(x)
    exponential, half = exp(a, FLOAT64), exp(a * 0.5, FLOAT64)
    return select(a < 700.0, fma(exponential, const(0.5, x.dtype), 0.5 / exponential), half * 0.5 * half)


def asinh(x: Expr) -> Expr:
    """Compute the inverse hyperbolic sine of a float64."""
    a = magnitude(x)
    square = a * a
    moderate_result = log1p(a + square / (unary("sqrt", square + 1.0) + 1.0), FLOAT64)
    value = select(a < 2.0**28, moderate_result, log(a, FLOAT64) + FLOAT64.ln2[0])
    return where_tiny(x, FLOAT64, copysign(value, x, FLOAT64))


def acosh(x: Expr) -> Expr:
    """Compute the inverse hyperbolic cosine of a float64."""
    excess = x - 1.0
    moderate_result = log1p(excess + unary("sqrt", fma(excess, excess, excess + excess)), FLOAT64)
    value = select(x < 2.0**28, moderate_result, log(x, FLOAT64) + FLOAT64.ln2[0])
    return select(x < 1.0, const(NAN, x.dtype), value)


def atanh(x: Expr) -> Expr:
    """Compute the inverse hyperbolic tangent of a float64."""
    a = magnitude(x)
    value = log1p((a + a) / (1.0 - a), FLOAT64) * 0.5
    return where_tiny(x, FLOAT64, copysign(value, x, FLOAT64))


def _log2_pair(x: Expr, form: Format) -> tuple[Expr, Expr]:
    """Compute log2 of a positive finite number as an unevaluated sum of two, with about 66 bits for float64 and 35 for float32."""
    dtype = x.dtype
    k, m = _split(x, form)
    f, denominator = m - 1.0, m + 1.0
    # s = f / (m + 1) as a sum of two; `lost` is the rounding error of m + 1.
    lost = m - (denominator - 1.0)
    s = f / denominator
    s_low = fma(-s, lost, fma(-s, denominator, f)) / denominator
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    # log(m) = 2 s + s^3 (2/3 + z P(z)).
    two_thirds = tuple(const(part, dtype) for part in _TWO_THIRDS[form])
    tail = z * horner(z, _LOG_LATE[form])
    inner, inner_low = quick_two_sum(two_thirds[0], tail)
    inner_low = inner_low + two_thirds[1]
    cube, cube_low = two_product(z, inner)
    cube_low = fma(z, inner_low, fma(z_low, inner, cube_low))
    higher_terms, higher_terms_low = two_product(s, cube)
    higher_terms_low = fma(s, cube_low, fma(s_low, cube, higher_terms_low))
    high, low = quick_two_sum(s + s, higher_terms)
    low = low + (higher_terms_low + (s_low + s_low))
    # Convert to base 2, and add k.
    factor = LOG2_E if form is FLOAT64 else LOG2_E_SHORT
    scaled, scaled_low = two_product(high, const(factor[0], dtype))
    scaled_low = fma(high, const(factor[1], dtype), fma(low, const(factor[0], dtype), scaled_low))
    total, total_low = two_sum(to_float(k, form), scaled)
    return quick_two_sum(total, total_low + scaled_low)


def _power_special(x: Expr, y: Expr, grows: Expr, value: Expr, form: Format) -> Expr:
    """Add the special cases of x ** y to `value`, which is valid for positive finite x. An x of 0 or infinity gives infinity if
    `grows`, else 0."""
    dtype = x.dtype
    a = magnitude(x)
    value = select((a.equal(0.0)) | (a.equal(INFINITY)), select(grows, const(INFINITY, dtype), const(0, dtype)), value)
    is_integer = unary("floor", y).equal(y)
    odd = is_integer & unary("floor", y * 0.5).not_equal(y * 0.5)
    negative = (x < 0.0) | (x.equal(0.0) & (bitcast(x, form.integer) < 0))
    value = select(negative & odd, -value, value)
    value = select((x < 0.0) & (x.not_equal(-INFINITY)) & ~is_integer, const(NAN, dtype), value)
    value = select(unary("isnan", x) | unary("isnan", y), x + y, value)
    is_one = x.equal(1.0) | y.equal(0.0) | (x.equal(-1.0) & unary("isinf", y))
    return select(is_one, const(1, dtype), value)


def _with_finite_log(a: Expr) -> Expr:
    """Replace a = |x| by 1/2 if it is 0, and by 2 if it is infinite, so that its logarithm is finite and has the correct sign."""
    return select(a.equal(0.0), const(0.5, a.dtype), select(a < INFINITY, a, 2.0))


def power(x: Expr, y: Expr, form: Format) -> Expr:
    """Compute x ** y."""
    high, low = _log2_pair(_with_finite_log(magnitude(x)), form)
    low_edge, high_edge = _EXP2_RANGE[form]
    t, t_low = two_product(high, y)
    t_low = fma(low, y, t_low)
    clamped = clamp_min(clamp_max(t, high_edge), low_edge)
    t_low = select(clamped.equal(t), t_low, 0.0)
    n, _ = exponent(clamped, form, form.bias)
    # 2^(d + t_low) = e^r for small t_low: r = (d + t_low) ln(2), with a single rounding where it matters.
    d = clamped - n
    r = fma(d, const(form.ln2[0], x.dtype), fma(d, const(form.ln2[1], x.dtype), t_low * form.ln2[0]))
    return _power_special(x, y, t >= 0.0, math("scalb", _exp_reduced(r, form), n), form)


def power_short(x: Expr, y: Expr) -> Expr:
    """Compute x ** y for float32. Logarithm and exponential are computed in float64 to the precision that float32 needs."""
    a = magnitude(x)
    k, m = _split(a, FLOAT32)
    f = cast(m, FLOAT64.dtype) - 1.0
    t = fma(f, horner(f, polynomials.LOG2_SHORT_64), cast(k, FLOAT64.dtype)) * cast(y, FLOAT64.dtype)
    low_edge, high_edge = _EXP2_RANGE[FLOAT32]
    t = clamp_min(clamp_max(t, high_edge), low_edge)
    n, power = exponent(t, FLOAT64)
    value = cast(horner(t - n, polynomials.EXP2_SHORT_64) * power, FLOAT32.dtype)
    is_y_negative = y < 0.0
    grows = (a.equal(0.0) & is_y_negative) | (a.equal(INFINITY) & ~is_y_negative)
    return _power_special(x, y, grows, value, FLOAT32)
