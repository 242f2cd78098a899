"""Trigonometric functions and their inverses as arithmetic.

All functions except the arcsine and arccosine of float32 compute in float64; a float32 argument is converted, and the result is
rounded once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.tensor.ir import Expr, const, fma, select, unary
from inlaid.tensor.math import polynomials
from inlaid.tensor.math.floats import (
    FLOAT32,
    FLOAT64,
    clamp_min,
    copysign,
    horner,
    magnitude,
    nearest,
    quick_two_sum,
    two_product,
    two_sum,
    where_tiny,
    xor_sign,
)

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
"""pi / 2 as a sum of two float64s."""
HALF_PI_SHORT = (1.57079637050628662109375, -4.371139000186241e-08)
"""pi / 2 as a sum of two float32s."""
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
PI = (2 * HALF_PI[0], 2 * HALF_PI[1])
_TAN_PI_8 = 0.41421356237309503
"""tan(pi / 8)."""


# --- argument reduction -----------------------------------------------------------------------------------------------
#
# x * 2/pi modulo 4, for any x: 2/pi is split into pieces short enough that x times a piece is exact (or has an exact error term).
# Each product is reduced modulo 4, which is exact too, and only then are they added. This is the method of Payne and Hanek (1983)
# in floating point instead of integers, so that it vectorizes.


def _digits(first: int, count: int) -> int:
    """Return `count` binary digits of 2/pi, from the digit of weight 2**-first on; digits before the point are 0."""
    total = 1280
    skipped_count = first - 1
    if skipped_count < 0:
        return 0 if count + skipped_count <= 0 else _digits(1, count + skipped_count)
    return (polynomials.TWO_OVER_PI >> (total - skipped_count - count)) & ((1 << count) - 1)


def _piece(first: int, count: int, shift: int) -> float:
    """Return the value of `count` digits of 2/pi from weight 2**-first on, times 2**shift."""
    digits = _digits(first, count)
    return float(digits) * 2.0 ** (shift - first - count + 1) if digits else 0.0


def _modulo_four(x: Expr) -> Expr:
    return fma(unary("round", x * 0.25), const(-4, x.dtype), x)


def _reduce_short(x: Expr) -> tuple[Expr, Expr]:
    """Reduce a float64 that holds a float32 value: x = (quadrant + r) pi/2 with |r| <= 1/2. Only the low two bits of the integer
    quadrant are significant."""
    # A float32 of at least 2^k is a multiple of 2^(k - 23), so digits before 2^-(k - 24) contribute multiples of 4. Two pieces of
    # 53 digits then reach 2^-59 after the point, while no float32 is closer to a multiple of pi/2 than 2^-30. The first product is
    # below 2^47: its error term needs no reduction modulo 4, and subtracting n from it is exact.
    pieces: list[Expr] = [const(_piece(1 + 53 * index, 53, 0), x.dtype) for index in range(2)]
    for k in range(44, 128, 22):
        is_larger = magnitude(x) >= 2.0**k
        pieces = [
            select(is_larger, const(_piece(k - 24 + 53 * index, 53, 0), x.dtype), piece) for index, piece in enumerate(pieces)
        ]
    product, error = two_product(x, pieces[0])
    turns = _modulo_four(product)
    n, quadrant = nearest(turns, FLOAT64)
    return quadrant, (turns - n) + fma(x, pieces[1], error)


def _reduce(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Reduce any float64: x = (quadrant + r + e) pi/2. Returns the quadrant, r, and e."""
    dtype = x.dtype
    a = magnitude(x)
    # For x in [2^(128 j), 2^(128 (j + 1))): x 2^(-128 j) times the digits of 2/pi 2^(128 j) from weight 2^53 on, since earlier
    # digits contribute multiples of 4. Six pieces of 53 digits reach 2^-264, i.e. 2^-136 after the point, while no float64 is
    # closer to a multiple of pi/2 than 2^-62.
    scaled = x
    pieces: list[Expr] = [const(_piece(53 * index - 53, 53, 0), dtype) for index in range(6)]
    for j in range(1, 8):
        is_larger = a >= 2.0 ** (128 * j)
        scaled = select(is_larger, x * 2.0 ** (-128 * j), scaled)
        pieces = [
            select(is_larger, const(_piece(128 * j + 53 * index - 53, 53, 128 * j), dtype), piece)
            for index, piece in enumerate(pieces)
        ]
    products = [two_product(scaled, piece) for piece in pieces]
    return _quadrant([_modulo_four(part) for product in products for part in product])


def _quadrant(terms: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    """Add terms in [-2, 2], and split the sum into the quadrant and the rest (as a sum of two)."""
    total, errors = terms[0], []
    for term in terms[1:]:
        total, error = two_sum(total, term)
        errors.append(error)
    rest, lost = errors[0], None
    for error in errors[1:]:
        rest, rest_error = two_sum(rest, error)
        lost = rest_error if lost is None else lost + rest_error
    n, quadrant = nearest(total, FLOAT64)
    r, e = two_sum(total - n, rest)
    return quadrant, r, e if lost is None else e + lost


def _radians(r: Expr, e: Expr) -> tuple[Expr, Expr]:
    """Convert r + e quarter turns to radians."""
    high, low = two_product(r, const(HALF_PI[0], r.dtype))
    return quick_two_sum(high, fma(r, const(HALF_PI[1], r.dtype), fma(e, const(HALF_PI[0], r.dtype), low)))


def _sine_and_cosine(x: Expr, short: bool) -> tuple[Expr, Expr, Expr]:
    """Return the quadrant of an angle, and the sine and cosine of the reduced angle."""
    if short:
        quadrant, r = _reduce_short(x)
        y = r * HALF_PI[0]
        z = y * y
        sine = fma(y * z, horner(z, polynomials.SIN_32), y)
        cosine = fma(z * z, horner(z, polynomials.COS_32), fma(z, const(-0.5, x.dtype), const(1, x.dtype)))
        return quadrant, sine, cosine
    quadrant, r, e = _reduce(x)
    y, low = _radians(r, e)
    z = y * y
    sine = y + fma(y * z, horner(z, polynomials.SIN_64), low * fma(z, const(-0.5, x.dtype), const(1, x.dtype)))
    half = z * 0.5
    leading_term = 1.0 - half
    cosine = leading_term + (((1.0 - leading_term) - half) + fma(z * z, horner(z, polynomials.COS_64), -(y * low)))
    return quadrant, sine, cosine


def _sine_in_quadrant(quadrant: Expr, sine: Expr, cosine: Expr) -> Expr:
    """Return the sine of an angle, given its quadrant and the sine and cosine of the reduced angle."""
    value = select((quadrant & 1).equal(0), sine, cosine)
    return select((quadrant & 2).equal(0), value, -value)


def sin(x: Expr, short: bool) -> Expr:
    """Compute the sine. `short`: x holds a float32 value, and float32 accuracy suffices."""
    quadrant, sine, cosine = _sine_and_cosine(x, short)
    return where_tiny(x, FLOAT64, _sine_in_quadrant(quadrant, sine, cosine))


def cos(x: Expr, short: bool) -> Expr:
    """Compute the cosine. `short` is as for `sin`."""
    quadrant, sine, cosine = _sine_and_cosine(x, short)
    return _sine_in_quadrant(quadrant + 1, sine, cosine)


def tan(x: Expr, short: bool) -> Expr:
    """Compute the tangent. `short` is as for `sin`."""
    quadrant, sine, cosine = _sine_and_cosine(x, short)
    even = (quadrant & 1).equal(0)
    return where_tiny(x, FLOAT64, select(even, sine, -cosine) / select(even, cosine, sine))


# --- inverses ---------------------------------------------------------------------------------------------------------


def _atan_ratio(small: Expr, large: Expr) -> tuple[Expr, Expr]:
    """Compute atan(small / large) for 0 <= small <= large, as a sum of two; 0 if both arguments are 0."""
    dtype = small.dtype
    # Above tan(pi / 8): atan(t) = pi / 4 + atan((t - 1) / (t + 1)).
    is_rotated = large * _TAN_PI_8 < small
    numerator, denominator = select(is_rotated, small - large, small), select(is_rotated, small + large, large)
    t = numerator / select(denominator.equal(0.0), const(1, dtype), denominator)
    z = t * t
    higher_terms = fma(t * z, horner(z, polynomials.ATAN_64), select(is_rotated, const(QUARTER_PI[1], dtype), 0.0))
    return quick_two_sum(select(is_rotated, const(QUARTER_PI[0], dtype), t), select(is_rotated, higher_terms + t, higher_terms))


def atan(x: Expr) -> Expr:
    """Compute the arctangent."""
    return where_tiny(x, FLOAT64, copysign(_first_quadrant_angle(magnitude(x), const(1, x.dtype)), x, FLOAT64))


def atan_short(x: Expr) -> Expr:
    """Compute the arctangent of a float64 that holds a float32 value, to float32 accuracy."""
    a = magnitude(x)
    flat = a < 1.0
    t = select(flat, a, 1.0) / select(flat, const(1, x.dtype), a)
    z = t * t
    value = fma(t * z, horner(z, polynomials.ATAN_SHORT_64), t)
    return copysign(select(flat, value, HALF_PI[0] - value), x, FLOAT64)


def _first_quadrant_angle(y: Expr, x: Expr) -> Expr:
    """Compute the angle of the point (x, y), both non-negative."""
    steep = x < y
    high, low = _atan_ratio(select(steep, x, y), select(steep, y, x))
    return select(steep, HALF_PI[0] - (high - (HALF_PI[1] - low)), high + low)


def atan2(y: Expr, x: Expr) -> Expr:
    """Compute the angle of the point (x, y), in [-pi, pi]."""
    dtype = x.dtype
    infinity = float("inf")
    a, b = magnitude(y), magnitude(x)
    both_infinite = a.equal(infinity) & b.equal(infinity)
    a, b = select(both_infinite, const(1, dtype), a), select(both_infinite, const(1, dtype), b)
    # Scaled down if the sum would overflow. A finite number divided by an infinite one is 0.
    scale = select((a >= 2.0**1000) | (b >= 2.0**1000), const(0.25, dtype), 1.0)
    a, b = a * scale, b * scale
    steep = b < a
    small, large = select(steep, b, a), select(steep, a, b)
    is_infinite = large.equal(infinity)
    high, low = _atan_ratio(select(is_infinite, const(0, dtype), small), select(is_infinite, const(1, dtype), large))
    steep_angle = HALF_PI[0] - (high - (HALF_PI[1] - low))
    value = select(steep, steep_angle, high + low)
    is_negative = copysign(const(1, dtype), x, FLOAT64) < 0.0
    left_angle = select(steep, HALF_PI[0] + (high + (HALF_PI[1] + low)), PI[0] - (high - (PI[1] - low)))
    value = copysign(select(is_negative, left_angle, value), y, FLOAT64)
    return select(unary("isnan", x) | unary("isnan", y), x + y, value)


def _asin_tail(z: Expr) -> Expr:
    """Compute asin(t) / t - 1 for z = t^2 <= 1/4."""
    return z * horner(z, polynomials.ASIN_64)


def asin(x: Expr) -> Expr:
    """Compute the arcsine."""
    a = magnitude(x)
    z = (1.0 - a) * 0.5
    root = unary("sqrt", z)
    # The error of the root is (z - root^2) / (2 root).
    lost = fma(-root, root, z) / select(root.equal(0.0), const(1, x.dtype), root + root)
    small_result = fma(a, _asin_tail(a * a), a)
    half = root + (lost + root * _asin_tail(z))
    large_result = fma(half, const(-2, x.dtype), const(HALF_PI[1], x.dtype)) + HALF_PI[0]
    return where_tiny(x, FLOAT64, copysign(select(a <= 0.5, small_result, large_result), x, FLOAT64))


def acos(x: Expr) -> Expr:
    """Compute the arccosine."""
    a = magnitude(x)
    z = (1.0 - a) * 0.5
    root = unary("sqrt", z)
    lost = fma(-root, root, z) / select(root.equal(0.0), const(1, x.dtype), root + root)
    half = root + (lost + root * _asin_tail(z))
    small_result = HALF_PI[0] - (x - fma(-x, _asin_tail(x * x), const(HALF_PI[1], x.dtype)))
    large_result = select(x < 0.0, PI[0] - (half + half - PI[1]), half + half)
    return select(a <= 0.5, small_result, large_result)


def _asin_short(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Return, for a float32, whether |x| <= 1/2; and asin(|x|) if so, else asin(sqrt((1 - |x|) / 2)), as a sum of two."""
    a = magnitude(x)
    is_small = a <= 0.5
    z = select(is_small, a * a, (1.0 - a) * 0.5)
    root = unary("sqrt", z)
    # As in `asin`. Nonzero roots are greater than this limit.
    lost = fma(-root, root, z) / clamp_min(root + root, 1e-20)
    high = select(is_small, a, root)
    return is_small, high, fma(high * z, horner(z, polynomials.ASIN_32), select(is_small, const(0, x.dtype), lost))


def asin_short(x: Expr) -> Expr:
    """Compute the arcsine of a float32."""
    is_small, high, low = _asin_short(x)
    rest, lost = quick_two_sum(const(HALF_PI_SHORT[0], x.dtype), high * -2.0)
    large_result = rest + (lost + fma(low, const(-2, x.dtype), const(HALF_PI_SHORT[1], x.dtype)))
    return copysign(select(is_small, high + low, large_result), x, FLOAT32)


def acos_short(x: Expr) -> Expr:
    """Compute the arccosine of a float32."""
    is_small, high, low = _asin_short(x)
    # The angle pi, pi/2 or 0, and the factor of the arcsine added to it: -2, -1, 1 or 2.
    angle = select(is_small, const(HALF_PI_SHORT[0], x.dtype), select(x < 0.0, const(2 * HALF_PI_SHORT[0], x.dtype), 0.0))
    factor = xor_sign(select(is_small, const(-1, x.dtype), 2.0), x, FLOAT32)
    rest, lost = quick_two_sum(angle, factor * high)
    return rest + fma(factor, low, fma(angle, const(HALF_PI_SHORT[1] / HALF_PI_SHORT[0], x.dtype), lost))
