"""C functions called by the functions of intrinsics: word access and fixed-point arithmetic."""

from __future__ import annotations

INLINE = """\
#if defined(__GNUC__)
#define INLAID_INLINE static inline __attribute__((always_inline, unused))
#define INLAID_SHARED static inline __attribute__((unused))
#else
#define INLAID_INLINE static inline
#define INLAID_SHARED static inline
#endif
"""
ODD = """\
/* Sign-extend bytes 1 and 3 of a word to 16 bits; __sxtb16 extends bytes 0 and 2. */
INLAID_INLINE int32_t inlaid_odd(int32_t word) {
    int32_t halves;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(halves) : "r"(word));
    return halves;
}
"""
WORD = """\
INLAID_INLINE int32_t inlaid_word(const int8_t *at) {
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}
"""
DSP_UPPER = """\
/* The rounded upper half of value * 2 * multiplier, plus `added`. */
INLAID_INLINE int32_t inlaid_upper(int32_t value, int32_t multiplier, int32_t added) {
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(value * 2), "r"(multiplier), "r"(added));
    return result;
}
"""
PLAIN_UPPER = """\
INLAID_INLINE int32_t inlaid_upper(int32_t value, int32_t multiplier, int32_t added) {
    return (int32_t)(((int64_t)value * multiplier + 1073741824) >> 31) + added;
}
"""
HALF = """\
/* The term added before the shift: half a unit of the result, and the zero point. */
INLAID_INLINE int32_t inlaid_half(int32_t zero, int32_t shift) {
    return (int32_t)((uint32_t)(2 * zero + 1) << -shift) >> 1;
}
"""
UP = """\
/* value * multiplier / 2^(31 - shift), halves rounded up; requires |value| < 2^30 and shift <= 0. */
INLAID_INLINE int32_t inlaid_up(int32_t value, int32_t multiplier, int32_t shift) {
    return inlaid_upper(value, multiplier, (int32_t)((uint32_t)1 << -shift) >> 1) >> -shift;
}
"""
AWAY = """\
/* value * multiplier / 2^(31 - shift), halves rounded away from 0; requires |value| < 2^30 and shift < 0. */
INLAID_INLINE int32_t inlaid_away(int32_t value, int32_t multiplier, int32_t shift) {
    return inlaid_upper(value, multiplier, ((int32_t)((uint32_t)1 << -shift) >> 1) + (value >> 31)) >> -shift;
}
"""
EXACT_UP = """\
/* value * multiplier / 2^(31 - shift), halves rounded up, for any arguments. */
INLAID_SHARED int32_t inlaid_exact_up(int32_t value, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    const int64_t high = ((int64_t)(int32_t)(left < 32 ? (uint32_t)value << left : 0) * multiplier + 1073741824) >> 31;
    const int64_t kept = high < INT32_MIN ? INT32_MIN : high > INT32_MAX ? INT32_MAX : high;
    return right < 64 ? (int32_t)((kept + (int64_t)(((uint64_t)1 << right) >> 1)) >> right) : -(kept < 0);
}
"""
EXACT_AWAY = """\
/* value * multiplier / 2^(31 - shift), halves rounded away from 0, for any arguments. */
INLAID_SHARED int32_t inlaid_exact_away(int32_t value, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    const int64_t high = ((int64_t)(int32_t)(left < 32 ? (uint32_t)value << left : 0) * multiplier + 1073741824) >> 31;
    const int64_t kept = high < INT32_MIN ? INT32_MIN : high > INT32_MAX ? INT32_MAX : high;
    const int64_t half = right < 64 ? (int64_t)(((uint64_t)1 << right) >> 1) : 0;
    return right < 64 ? (int32_t)((kept + half - (kept < 0 && half > 0)) >> right) : -(kept < 0);
}
"""
_CLIPPED = """\
    const int32_t raised = value > low ? value : low;
    return (int8_t)(raised < high ? raised : high);
}
"""
PLAIN_WITHIN = f"""\
INLAID_INLINE int8_t inlaid_within(int32_t value, int32_t low, int32_t high) {{
{_CLIPPED}"""
DSP_WITHIN = f"""\
INLAID_INLINE int8_t inlaid_within(int32_t value, int32_t low, int32_t high) {{
    if (low == -128 && high == 127) {{
        int32_t byte;
        __asm__("ssat %0, #8, %1" : "=r"(byte) : "r"(value));
        return (int8_t)byte;
    }}
{_CLIPPED}"""
