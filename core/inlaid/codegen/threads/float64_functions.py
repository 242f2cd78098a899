"""C functions for float64 arithmetic in 64-bit integers, for targets whose float64 is slow or missing.

A float64 is a uint64_t with its bits. Results are those of IEEE 754 with rounding to nearest even, denormals included; the sign and
payload of NaN are unspecified. The algorithms are those of J. Hauser's SoftFloat: significands have extra bits below the last place
of the result, the lowest of which is set if any bit below it is lost.
"""

from __future__ import annotations

FUNCTIONS = {
    # Number of leading zeros, 64 for 0.
    "clz": """\
static inline int32_t inlaid_float64_clz(uint64_t m) {
    int32_t n = 0;
    if (m == 0) return 64;
    if (m >> 32 == 0) { n += 32; m <<= 32; }
    if (m >> 48 == 0) { n += 16; m <<= 16; }
    if (m >> 56 == 0) { n += 8; m <<= 8; }
    if (m >> 60 == 0) { n += 4; m <<= 4; }
    if (m >> 62 == 0) { n += 2; m <<= 2; }
    return n + (m >> 63 == 0);
}""",
    # m 2^-n for n >= 0; the last bit is set if the result is inexact.
    "shift": """\
static inline uint64_t inlaid_float64_shift(uint64_t m, int32_t n) {
    if (n == 0) return m;
    return n > 63 ? (uint64_t)(m != 0) : (m >> n) | (uint64_t)((m << (64 - n)) != 0);
}""",
    # The sign bit and m 2^(e - 1085), rounded.
    "round": """\
static inline uint64_t inlaid_float64_round(uint64_t sign, int32_t e, uint64_t m) {
    int32_t n;
    uint64_t bits;
    if (m == 0) return sign;
    n = inlaid_float64_clz(m) - 1;
    if (n < 0) { m = (m >> 1) | (m & 1); e += 1; } else { m <<= n; e -= n; }
    if (e >= 2047) return sign | UINT64_C(0x7ff0000000000000);
    if (e < 1) { m = inlaid_float64_shift(m, 1 - e); e = 1; }
    bits = ((uint64_t)(e - 1) << 52) + (m >> 10) + (uint64_t)((m & 1023) > 512 || ((m & 1023) == 512 && (m >> 10 & 1)));
    return sign | bits;
}""",
    # The significand with 10 more bits; normal for a normal number.
    "digits": """\
static inline uint64_t inlaid_float64_digits(uint64_t a) {
    const uint64_t m = (a & UINT64_C(0xfffffffffffff)) << 10;
    return (a >> 52 & 2047) != 0 ? m | UINT64_C(0x4000000000000000) : m;
}""",
    "exponent": """\
static inline int32_t inlaid_float64_exponent(uint64_t a) {
    const int32_t e = (int32_t)(a >> 52 & 2047);
    return e == 0 ? 1 : e;
}""",
    "nan": """\
static inline int32_t inlaid_float64_nan(uint64_t a) { return a << 1 > UINT64_C(0xffe0000000000000); }""",
    "add": """\
static inline uint64_t inlaid_float64_add(uint64_t a, uint64_t b) {
    const uint64_t infinite = UINT64_C(0x7ff0000000000000), top = UINT64_C(0x8000000000000000);
    const int32_t apart = (int32_t)((a ^ b) >> 63);
    uint64_t m, n;
    int32_t e;
    if (a << 1 < b << 1) { const uint64_t c = a; a = b; b = c; }
    if (a << 1 >= infinite << 1) return a << 1 > infinite << 1 || (a << 1 == b << 1 && apart) ? UINT64_C(0x7ff8000000000000) : a;
    if (a << 1 == b << 1 && apart) return 0;
    e = inlaid_float64_exponent(a);
    m = inlaid_float64_digits(a);
    n = inlaid_float64_shift(inlaid_float64_digits(b), e - inlaid_float64_exponent(b));
    return inlaid_float64_round(a & top, e, apart ? m - n : m + n);
}""",
    "high": """\
static inline uint64_t inlaid_float64_high(uint64_t a, uint64_t b) {
    const uint64_t low = UINT64_C(0xffffffff), a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & low);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}""",
    # a b + c. An exact product of 128 bits is added to an addend of 128 bits.
    "fma": """\
static inline uint64_t inlaid_float64_fma(uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t infinite = UINT64_C(0x7ff0000000000000), top = UINT64_C(0x8000000000000000);
    const uint64_t nan = UINT64_C(0x7ff8000000000000), product = (a ^ b) & top;
    const int32_t apart = (product ^ (c & top)) != 0;
    uint64_t m, n, high, low, upper, lower, sign = product;
    int32_t e, f, shift;
    if (inlaid_float64_nan(a) || inlaid_float64_nan(b) || inlaid_float64_nan(c)) return nan;
    if ((a | top) == (infinite | top) || (b | top) == (infinite | top)) {
        if (a << 1 == 0 || b << 1 == 0 || ((c | top) == (infinite | top) && apart)) return nan;
        return product | infinite;
    }
    if ((c | top) == (infinite | top)) return c;
    if (a << 1 == 0 || b << 1 == 0) return c << 1 == 0 ? (apart ? 0 : c) : c;
    m = inlaid_float64_digits(a);
    n = inlaid_float64_digits(b);
    e = inlaid_float64_exponent(a) + inlaid_float64_exponent(b) - 1023;
    shift = inlaid_float64_clz(m) - 1;
    m <<= shift;
    e -= shift;
    shift = inlaid_float64_clz(n) - 1;
    n <<= shift;
    e -= shift;
    high = inlaid_float64_high(m, n);
    low = m * n;
    if (c << 1 != 0) {
        n = inlaid_float64_digits(c);
        f = inlaid_float64_exponent(c);
        shift = inlaid_float64_clz(n) - 1;
        n <<= shift;
        f -= shift;
        upper = n >> 2;
        lower = n << 62;
        shift = e - f;
        if (shift < 0) {
            uint64_t t = high;
            high = upper;
            upper = t;
            t = low;
            low = lower;
            lower = t;
            shift = -shift;
            e = f;
            sign = c & top;
        }
        if (shift > 127) {
            lower = 1;
            upper = 0;
        } else if (shift > 63) {
            lower = inlaid_float64_shift(upper, shift - 64) | (uint64_t)(lower != 0);
            upper = 0;
        } else if (shift > 0) {
            lower = inlaid_float64_shift(lower, shift) | upper << (64 - shift);
            upper >>= shift;
        }
        if (!apart) {
            low += lower;
            high += upper + (uint64_t)(low < lower);
        } else {
            if (high < upper || (high == upper && low < lower)) {
                uint64_t t = high;
                high = upper;
                upper = t;
                t = low;
                low = lower;
                lower = t;
                sign ^= top;
            }
            high -= upper + (uint64_t)(low < lower);
            low -= lower;
            if ((high | low) == 0) return 0;
        }
    }
    if (high == 0) {
        high = low;
        low = 0;
        e -= 64;
    }
    shift = inlaid_float64_clz(high) - 1;
    if (shift > 0) {
        high = high << shift | low >> (64 - shift);
        low <<= shift;
        e -= shift;
    }
    return inlaid_float64_round(sign, e + 2, high | (uint64_t)(low != 0));
}""",
    "mul": """\
static inline uint64_t inlaid_float64_mul(uint64_t a, uint64_t b) {
    const uint64_t zero = (a ^ b) & UINT64_C(0x8000000000000000);
    return inlaid_float64_fma(a, b, zero);
}""",
    "div": """\
static inline uint64_t inlaid_float64_div(uint64_t a, uint64_t b) {
    const uint64_t infinite = UINT64_C(0x7ff0000000000000), top = UINT64_C(0x8000000000000000);
    const uint64_t sign = (a ^ b) & top, nan = UINT64_C(0x7ff8000000000000);
    uint64_t m, n, q = 0;
    int32_t e, shift, i;
    if (inlaid_float64_nan(a) || inlaid_float64_nan(b)) return nan;
    a &= ~top;
    b &= ~top;
    if (a == infinite) return b == infinite ? nan : sign | infinite;
    if (b == infinite) return sign;
    if (b == 0) return a == 0 ? nan : sign | infinite;
    if (a == 0) return sign;
    m = inlaid_float64_digits(a);
    n = inlaid_float64_digits(b);
    e = inlaid_float64_exponent(a) - inlaid_float64_exponent(b) + 1023;
    shift = inlaid_float64_clz(m) - 1;
    m <<= shift;
    e -= shift;
    shift = inlaid_float64_clz(n) - 1;
    n <<= shift;
    e += shift;
    for (i = 0; i < 63; ++i) {
        q <<= 1;
        if (m >= n) {
            m -= n;
            q |= 1;
        }
        m <<= 1;
    }
    return inlaid_float64_round(sign, e, q | (uint64_t)(m != 0));
}""",
    "sqrt": """\
static inline uint64_t inlaid_float64_sqrt(uint64_t a) {
    const uint64_t infinite = UINT64_C(0x7ff0000000000000);
    uint64_t m, root = 0, rest = 0;
    int32_t e, shift, i;
    if (a << 1 == 0 || a == infinite) return a;
    if (a > infinite) return UINT64_C(0x7ff8000000000000);
    m = inlaid_float64_digits(a);
    e = inlaid_float64_exponent(a);
    shift = inlaid_float64_clz(m) - 1;
    m <<= shift;
    e -= shift;
    if (e % 2 != 0) {
        e -= 1023;
    } else {
        m <<= 1;
        e -= 1024;
    }
    for (i = 0; i < 57; ++i) {
        rest = rest << 2 | m >> 62;
        m <<= 2;
        root <<= 1;
        if (rest > root << 1) {
            rest -= root << 1 | 1;
            root |= 1;
        }
    }
    return inlaid_float64_round(0, e / 2 + 1023, root << 6 | (uint64_t)(rest != 0));
}""",
    "mod": """\
static inline uint64_t inlaid_float64_mod(uint64_t a, uint64_t b) {
    const uint64_t infinite = UINT64_C(0x7ff0000000000000), top = UINT64_C(0x8000000000000000);
    const uint64_t sign = a & top;
    uint64_t m, n;
    int32_t e, f, shift;
    a &= ~top;
    b &= ~top;
    if (a >= infinite || b > infinite || b == 0) return UINT64_C(0x7ff8000000000000);
    if (a < b) return sign | a;
    m = inlaid_float64_digits(a);
    n = inlaid_float64_digits(b);
    shift = inlaid_float64_clz(m) - 1;
    m <<= shift;
    e = inlaid_float64_exponent(a) - shift;
    shift = inlaid_float64_clz(n) - 1;
    n <<= shift;
    f = inlaid_float64_exponent(b) - shift;
    for (; e > f; --e) m = (m >= n ? m - n : m) << 1;
    return inlaid_float64_round(sign, f, m >= n ? m - n : m);
}""",
    # Rounds to an integer: half to even (0), down (1), up (2), towards zero (3).
    "integral": """\
static inline uint64_t inlaid_float64_integral(uint64_t a, int32_t how) {
    const uint64_t top = UINT64_C(0x8000000000000000), sign = a & top, one = UINT64_C(0x3ff0000000000000);
    const int32_t e = (int32_t)(a >> 52 & 2047);
    uint64_t last, rest, away;
    if (e >= 1075 || a << 1 == 0) return a;
    if (e < 1023) {
        away = how == 0 ? (uint64_t)(e == 1022 && (a << 12) != 0) : how == 3 ? 0 : (uint64_t)((how == 1) == (sign != 0));
        return away != 0 ? sign | one : sign;
    }
    last = UINT64_C(1) << (1075 - e);
    rest = a & (last - 1);
    if (how == 0) {
        away = (uint64_t)(rest > last >> 1 || (rest == last >> 1 && (a & last) != 0));
    } else {
        away = how == 3 ? 0 : (uint64_t)(rest != 0 && (how == 1) == (sign != 0));
    }
    return a - rest + (away != 0 ? last : 0);
}""",
    "lt": """\
static inline int32_t inlaid_float64_lt(uint64_t a, uint64_t b) {
    if (inlaid_float64_nan(a) || inlaid_float64_nan(b) || ((a | b) << 1) == 0) return 0;
    if (((a ^ b) >> 63) != 0) return (int32_t)(a >> 63);
    return (a >> 63) != 0 ? b < a : a < b;
}""",
    "eq": """\
static inline int32_t inlaid_float64_eq(uint64_t a, uint64_t b) {
    return !inlaid_float64_nan(a) && !inlaid_float64_nan(b) && (a == b || ((a | b) << 1) == 0);
}""",
    "le": """\
static inline int32_t inlaid_float64_le(uint64_t a, uint64_t b) { return inlaid_float64_lt(a, b) || inlaid_float64_eq(a, b); }""",
    "ne": """\
static inline int32_t inlaid_float64_ne(uint64_t a, uint64_t b) { return !inlaid_float64_eq(a, b); }""",
    "from_uint64": """\
static inline uint64_t inlaid_float64_from_uint64(uint64_t a) {
    return inlaid_float64_round(0, 1085, a);
}""",
    "from_int64": """\
static inline uint64_t inlaid_float64_from_int64(int64_t a) {
    const uint64_t m = a < 0 ? 0 - (uint64_t)a : (uint64_t)a;
    return inlaid_float64_round(a < 0 ? UINT64_C(0x8000000000000000) : 0, 1085, m);
}""",
    # The bits of a float32, converted exactly.
    "from_bits": """\
static inline uint64_t inlaid_float64_from_bits(uint32_t a) {
    const uint64_t sign = (uint64_t)(a >> 31) << 63, m = a & 0x7fffffu;
    const int32_t e = (int32_t)(a >> 23 & 255);
    if (e == 255) return sign | UINT64_C(0x7ff0000000000000) | m << 29;
    if (e == 0) return inlaid_float64_round(sign, 1085 - 149, m);
    return sign | (uint64_t)(e + 896) << 52 | m << 29;
}""",
    # The bits of a float64 rounded to float32.
    "to_bits": """\
static inline uint32_t inlaid_float64_to_bits(uint64_t a) {
    const uint32_t sign = (uint32_t)(a >> 63) << 31;
    int32_t e = (int32_t)(a >> 52 & 2047) - 896;
    uint64_t m = inlaid_float64_digits(a);
    if (inlaid_float64_nan(a)) return sign | 0x7fc00000u;
    if (e >= 255) return sign | 0x7f800000u;
    if (e < 1) {
        m = inlaid_float64_shift(m, 1 - e);
        e = 1;
    }
    // 39 bits follow the last place of the result.
    const uint64_t tie = UINT64_C(1) << 38, rest = m & (2 * tie - 1), whole = m >> 39;
    return sign | (((uint32_t)(e - 1) << 23) + (uint32_t)whole + (uint32_t)(rest > tie || (rest == tie && (whole & 1) != 0)));
}""",
    # Truncates; saturates to the range of a signed or unsigned 64-bit integer; NaN becomes 0.
    "to_int64": """\
static inline int64_t inlaid_float64_to_int64(uint64_t a) {
    const int32_t e = (int32_t)(a >> 52 & 2047) - 1075;
    const uint64_t m = inlaid_float64_digits(a) >> 10;
    uint64_t whole;
    if (inlaid_float64_nan(a)) return 0;
    if (e >= 11) return (a >> 63) != 0 ? INT64_MIN : INT64_MAX;
    whole = e >= 0 ? m << e : e > -53 ? m >> -e : 0;
    return (a >> 63) != 0 ? -(int64_t)whole : (int64_t)whole;
}""",
    "to_uint64": """\
static inline uint64_t inlaid_float64_to_uint64(uint64_t a) {
    const int32_t e = (int32_t)(a >> 52 & 2047) - 1075;
    const uint64_t m = inlaid_float64_digits(a) >> 10;
    if (inlaid_float64_nan(a) || (a >> 63) != 0) return 0;
    if (e >= 12) return ~UINT64_C(0);
    return e >= 0 ? m << e : e > -53 ? m >> -e : 0;
}""",
}
"""Definitions by name; functions call earlier ones. The function `add` is `inlaid_float64_add`."""
