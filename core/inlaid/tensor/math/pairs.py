"""Functions of float32 in float32 and integers, for targets whose float64 is slow or missing.

Where a float32 is too short, a value is the unevaluated sum of two (T. J. Dekker, "A floating-point technique for extending the
available precision", 1971). The maximum errors, in units in the last place, are: log2, sin, cos, sinh, cosh 1; tan, atan, atan2,
pow, atanh 1.25; asinh, acosh 1.5. They hold even if a compiler contracts a product and a sum to an fma.
"""

from __future__ import annotations

from inlaid.tensor.ir import Expr, bitcast, cast, const, fma, select, unary
from inlaid.tensor.math import polynomials
from inlaid.tensor.math.exponential import LOG2_E, LOG2_E_SHORT, log, log_parts, log_special
from inlaid.tensor.math.floats import (
    FLOAT32,
    INFINITY,
    NAN,
    clamp_max,
    copysign,
    exponent,
    horner,
    magnitude,
    nearest,
    quick_two_sum,
    two_product,
    two_sum,
    where_tiny,
    xor_sign,
)
from inlaid_runtime.types import dtype

_TWO_OVER_PI = 0.6366197466850281
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi / 2 as a sum of three float32s."""
_TAN_PI_8 = 0.41421356237309503
_MODERATE = 2.0**17
"""Angles below this limit are reduced by subtracting multiples of pi / 2 in floating point."""
_LARGE = 2.0**12
"""Limit from which asinh(x) and acosh(x) round to log(2 x)."""
_COSH_LIMIT = 90.0
"""An argument whose hyperbolic cosine is infinite, while an eighth of its exponential is not."""


# --- sine, cosine, tangent --------------------------------------------------------------------------------------------


def _reduced(a: Expr) -> tuple[Expr, Expr, Expr]:
    """Reduce a >= 0: a = quadrant pi/2 + high + low with |high| <= pi/4. Only the low two bits of the integer quadrant are
    significant. Both reductions pack their results in one integer, so that a single select chooses between them and can skip the
    longer one."""
    integer = dtype("uint64")
    packed = select(a < _MODERATE, _reduce_moderate(a), _reduce_large(a))
    low = cast(packed, "uint32")
    high = bitcast(cast(packed >> const(32, integer), "uint32"), FLOAT32.dtype)
    return cast(low & 3, "int32"), high, bitcast(low & 0xFFFFFFFC, FLOAT32.dtype)


def _packed(quadrant: Expr, high: Expr, low: Expr) -> Expr:
    """Pack a reduced angle. The quadrant replaces the last two bits of `low`."""
    low_and_quadrant = (bitcast(low, "uint32") & 0xFFFFFFFC) | (cast(quadrant, "uint32") & 3)
    return (cast(bitcast(high, "uint32"), "uint64") << const(32, "uint64")) | cast(low_and_quadrant, "uint64")


def _reduce_moderate(a: Expr) -> Expr:
    """Reduce an angle below `_MODERATE`: pi/2 is a sum of three, whose products with the quadrant are exact or have exact errors
    (W. J. Cody and W. Waite, 1980)."""
    n, quadrant = nearest(a * _TWO_OVER_PI, FLOAT32)
    rest = fma(n, const(-_HALF_PI[0], a.dtype), a)
    product, error = two_product(n, const(-_HALF_PI[1], a.dtype))
    total, lost = two_sum(rest, product)
    low_terms = fma(n, const(-_HALF_PI[2], a.dtype), lost + error)
    return _packed(quadrant, *quick_two_sum(total, low_terms))


def _reduce_large(a: Expr) -> Expr:
    """Reduce a finite angle from `_MODERATE` on: its significand times 96 binary digits of 2/pi, modulo 4 (M. Payne and R. Hanek,
    "Radian reduction for trigonometric functions", 1983). Digits of higher weight contribute multiples of 4. The fraction then has
    62 digits, while no float32 is closer to a multiple of pi/2 than 2^-30."""
    bits = bitcast(a, "uint32")
    significand = cast((bits & 0x7FFFFF) | 0x800000, "uint64")
    # The significand's last place is 2^(exponent - 23): the first digit has weight 2^-(exponent - 24). Eight zeros precede 2/pi.
    first = (bits >> 23) - (127 + 17)
    words = [const((polynomials.TWO_OVER_PI >> (1288 - 32 * position)) & 0xFFFFFFFF, "uint64") for position in range(1, 8)]
    digit_words = []
    for position in range(4):
        word: Expr = words[position]
        for step in range(1, 4):
            word = select(first < 32 * step, word, words[position + step])
        digit_words.append(word)
    shift = cast(first & 31, "uint64")
    digits = [(((digit_words[k] << 32) | digit_words[k + 1]) << shift) >> 32 for k in range(3)]
    fraction = ((significand * digits[0]) << 32) + significand * digits[1] + ((significand * digits[2]) >> 32)
    quadrant = cast((fraction + (1 << 61)) >> 62, "int32")
    signed = bitcast(fraction << 2, "int64")
    turns = cast(signed, FLOAT32.dtype)
    rest = cast(signed - cast(turns, "int64"), FLOAT32.dtype)
    unit = 2.0**-64
    high, low = two_product(turns * unit, const(_HALF_PI[0], a.dtype))
    low = fma(turns * unit, const(_HALF_PI[1], a.dtype), fma(rest * unit, const(_HALF_PI[0], a.dtype), low))
    return _packed(quadrant, *quick_two_sum(high, low))


def _sine_and_cosine(y: Expr, low: Expr) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
    """Compute the sine and the cosine of a reduced angle y + low, each as a sum of two."""
    z = y * y
    half = z * 0.5
    sine = fma(y * z, horner(z, polynomials.SIN_32), fma(low, -half, low))
    cosine, lost = quick_two_sum(const(1, y.dtype), -half)
    # Corrects the rounding error of `half`.
    half_error = fma(y, y, -z) * -0.5
    return (y, sine), (cosine, lost + fma(z * z, horner(z, polynomials.COS_32), fma(-y, low, half_error)))


def _nan_unless_finite(x: Expr, value: Expr) -> Expr:
    """Return `value`, or NaN if x is infinite or NaN."""
    return select(magnitude(x) < INFINITY, value, const(NAN, x.dtype))


def _in_quadrant(quadrant: Expr, sine: Expr, cosine: Expr) -> Expr:
    value = select((quadrant & 1).equal(0), sine, cosine)
    return select((quadrant & 2).equal(0), value, -value)


def sin(x: Expr) -> Expr:
    """Compute the sine."""
    quadrant, high, low = _reduced(magnitude(x))
    sine, cosine = _sine_and_cosine(high, low)
    value = _in_quadrant(quadrant, sine[0] + sine[1], cosine[0] + cosine[1])
    return where_tiny(x, FLOAT32, _nan_unless_finite(x, xor_sign(value, x, FLOAT32)))


def cos(x: Expr) -> Expr:
    """Compute the cosine."""
    quadrant, high, low = _reduced(magnitude(x))
    sine, cosine = _sine_and_cosine(high, low)
    return _nan_unless_finite(x, _in_quadrant(quadrant + 1, sine[0] + sine[1], cosine[0] + cosine[1]))


def tan(x: Expr) -> Expr:
    """Compute the tangent."""
    quadrant, high, low = _reduced(magnitude(x))
    sine, cosine = (quick_two_sum(*pair) for pair in _sine_and_cosine(high, low))
    even = (quadrant & 1).equal(0)
    numerator = [select(even, a, -b) for a, b in zip(sine, cosine, strict=True)]
    denominator = [select(even, b, a) for a, b in zip(sine, cosine, strict=True)]
    quotient, rest = _quotient(*numerator, *denominator)
    return where_tiny(x, FLOAT32, _nan_unless_finite(x, xor_sign(quotient + rest, x, FLOAT32)))


def _quotient(a: Expr, a_low: Expr, b: Expr, b_low: Expr) -> tuple[Expr, Expr]:
    """Divide sums of two. The second part also corrects an inexact division."""
    quotient = a / b
    return quotient, (fma(-quotient, b, a) + fma(-quotient, b_low, a_low)) / b


# --- inverse tangent --------------------------------------------------------------------------------------------------


def _atan_ratio(small: Expr, large: Expr) -> tuple[Expr, Expr]:
    """Compute atan(small / large) for 0 <= small <= large < infinity, as a sum of two; 0 if both arguments are 0."""
    zero = const(0, small.dtype)
    # Above tan(pi / 8): atan(t) = pi / 4 + atan((t - 1) / (t + 1)).
    is_rotated = large * _TAN_PI_8 < small
    difference, sum_ = two_sum(small, -large), two_sum(small, large)
    numerator, numerator_low = select(is_rotated, difference[0], small), select(is_rotated, difference[1], zero)
    denominator, denominator_low = select(is_rotated, sum_[0], large), select(is_rotated, sum_[1], zero)
    denominator = select(denominator.equal(0.0), const(1, small.dtype), denominator)
    t, t_low = _quotient(numerator, numerator_low, denominator, denominator_low)
    z = t * t
    higher_terms = fma(t * z, horner(z, polynomials.ATAN_32), t_low)
    high, low = two_sum(select(is_rotated, const(_HALF_PI[0] / 2, small.dtype), zero), t)
    return quick_two_sum(high, low + (higher_terms + select(is_rotated, const(_HALF_PI[1] / 2, small.dtype), zero)))


def _subtracted(angle: tuple[float, float], high: Expr, low: Expr) -> Expr:
    """Compute angle - (high + low) for 0 <= high <= angle."""
    total, lost = quick_two_sum(const(angle[0], high.dtype), -high)
    return total + (lost + (const(angle[1], high.dtype) - low))


def atan(x: Expr) -> Expr:
    """Compute the arctangent."""
    one = const(1, x.dtype)
    # From 2^26 on the result rounds to pi / 2.
    a = clamp_max(magnitude(x), 2.0**26)
    steep = a > 1.0
    high, low = _atan_ratio(select(steep, one, a), select(steep, a, one))
    return where_tiny(x, FLOAT32, copysign(select(steep, _subtracted(_HALF_PI[:2], high, low), high + low), x, FLOAT32))


def atan2(y: Expr, x: Expr) -> Expr:
    """Compute the angle of the point (x, y), in [-pi, pi]."""
    one, zero = const(1, x.dtype), const(0, x.dtype)
    a, b = magnitude(y), magnitude(x)
    both_infinite = a.equal(INFINITY) & b.equal(INFINITY)
    a, b = select(both_infinite, one, a), select(both_infinite, one, b)
    # Scaled down if the sum would overflow, and up if the remainder of the division would underflow. A finite number divided by
    # an infinite one is 0.
    huge, small_both = (a >= 2.0**125) | (b >= 2.0**125), (a < 2.0**-90) & (b < 2.0**-90)
    scale = select(huge, const(2.0**-4, x.dtype), select(small_both, const(2.0**60, x.dtype), one))
    a, b = a * scale, b * scale
    steep = b < a
    small, large = select(steep, b, a), select(steep, a, b)
    is_infinite = large.equal(INFINITY)
    high, low = _atan_ratio(select(is_infinite, zero, small), select(is_infinite, one, large))
    is_negative = copysign(one, x, FLOAT32) < 0.0
    pi = (2 * _HALF_PI[0], 2 * _HALF_PI[1])
    steep_angle = select(is_negative, _subtracted(_HALF_PI[:2], -high, -low), _subtracted(_HALF_PI[:2], high, low))
    value = select(steep, steep_angle, select(is_negative, _subtracted(pi, high, low), high + low))
    return select(unary("isnan", x) | unary("isnan", y), x + y, copysign(value, y, FLOAT32))


# --- logarithms, hyperbolic functions and their inverses ---------------------------------------------------------------


def log2(x: Expr) -> Expr:
    """Compute the logarithm to base 2."""
    k, f, t = log_parts(x, FLOAT32)
    high, low = quick_two_sum(f, -t)
    product, rest = two_product(high, const(LOG2_E_SHORT[0], x.dtype))
    rest = fma(high, const(LOG2_E_SHORT[1], x.dtype), fma(low, const(LOG2_E_SHORT[0], x.dtype), rest))
    total, lost = two_sum(k, product)
    return log_special(x, total + (lost + rest))


def _log1p(x: Expr, low: Expr) -> Expr:
    """Compute log(1 + x + low) for x >= 0."""
    u, lost = two_sum(const(1, x.dtype), x)
    return log(u, FLOAT32, (lost + low) / u)


def _eighth_exp(a: Expr) -> tuple[Expr, Expr]:
    """Compute e ** a / 8 for 0 <= a <= `_COSH_LIMIT`, as a sum of two."""
    n, power = exponent(a * LOG2_E[0], FLOAT32, -3)
    remainder = fma(n, const(-FLOAT32.ln2[0], a.dtype), a)
    r, low = two_sum(remainder, n * -FLOAT32.ln2[1])
    first, rest = quick_two_sum(const(1, a.dtype), r)
    high, low_sum = quick_two_sum(first, fma(r * r, horner(r, polynomials.EXPM1_32), low))
    return high * power, (low_sum + rest) * power


def _hyperbolic(a: Expr, sign: int) -> Expr:
    """Compute (e ** a + sign e ** -a) / 2 for a >= 0."""
    high, low = _eighth_exp(clamp_max(a, _COSH_LIMIT))
    # A quarter of the result is high + low + sign / 64 / (high + low).
    inverse = 0.015625 / high
    correction = (fma(-inverse, high, const(0.015625, a.dtype)) - inverse * low) * (inverse * 64.0)
    total, lost = quick_two_sum(high, inverse * sign)
    return (total + (lost + (low + correction * sign))) * 4.0


def sinh(x: Expr) -> Expr:
    """Compute the hyperbolic sine."""
    a, z = magnitude(x), x * x
    small_result = fma(x * z, horner(z, polynomials.SINH_32), x)
    return select(a < 1.0, small_result, copysign(_hyperbolic(a, -1), x, FLOAT32))


def cosh(x: Expr) -> Expr:
    """Compute the hyperbolic cosine."""
    return _hyperbolic(magnitude(x), 1)


def _log_2x(x: Expr) -> Expr:
    """Compute log(2 x) for x from `_LARGE` on."""
    return log(x, FLOAT32) + FLOAT32.ln2[0]


def asinh(x: Expr) -> Expr:
    """Compute the inverse hyperbolic sine."""
    a = magnitude(x)
    square = a * a
    moderate_result = _log1p(*quick_two_sum(a, square / (unary("sqrt", square + 1.0) + 1.0)))
    return where_tiny(x, FLOAT32, copysign(select(a < _LARGE, moderate_result, _log_2x(a)), x, FLOAT32))


def acosh(x: Expr) -> Expr:
    """Compute the inverse hyperbolic cosine."""
    excess = x - 1.0
    square, square_low = two_product(excess, excess + 2.0)
    root = unary("sqrt", square)
    # The error of the root is (square - root^2) / (2 root).
    lost = (fma(-root, root, square) + square_low) / select(root.equal(0.0), const(1, x.dtype), root + root)
    high, low = two_sum(root, excess)
    value = select(x < _LARGE, _log1p(high, low + lost), _log_2x(x))
    return select(x < 1.0, const(NAN, x.dtype), value)


def atanh(x: Expr) -> Expr:
    """Compute the inverse hyperbolic tangent."""
    a = magnitude(x)
    denominator, denominator_low = two_sum(const(1, x.dtype), -a)
    in_domain = a < 1.0
    safe_denominator = select(in_domain, denominator, const(1, x.dtype))
    value = _log1p(*_quotient(a + a, const(0, x.dtype), safe_denominator, denominator_low)) * 0.5
    outside_result = select(a.equal(1.0), const(INFINITY, x.dtype), const(NAN, x.dtype))
    return where_tiny(x, FLOAT32, copysign(select(in_domain, value, outside_result), x, FLOAT32))
