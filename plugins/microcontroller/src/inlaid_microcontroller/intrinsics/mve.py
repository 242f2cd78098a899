"""C bodies of intrinsic functions for processors with MVE. They process four sums, or eight channels of products, at once.

VQRDMULH and VRSHL round like `inlaid_upper` and `inlaid_up` of `arithmetic`. No value saturates, since sums are less than 2^30. If
there are fewer elements than lanes, predicates restrict loads and stores to the first lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlaid_microcontroller.schedules.addition import RAISED
from inlaid_microcontroller.schedules.vector_depthwise import LANES as CHANNELS
from inlaid_microcontroller.unit import PREFIX

LANES = 4
"""32-bit lanes of a vector."""
FIXED = """\
/* values * multiplier / 2^(31 - shift), halves rounded away from 0; requires shift <= 0. */
INLAID_INLINE int32x4_t inlaid_vector_away(int32x4_t values, int32_t multiplier, int32_t shift) {
    const int32x4_t high = vqrdmulhq_n_s32(values, multiplier);
    return shift == 0 ? high : vrshlq_n_s32(vaddq_s32(high, vshrq_n_s32(high, 31)), shift);
}
"""


def requantized_lines(lanes: int, rounding: str) -> Iterator[str]:
    """Yield the body that requantizes sums to int8."""
    predicated = lanes < LANES
    if predicated:
        yield f"    const mve_pred16_t used = vctp32q({lanes});"
    loads = {each: f"vldrwq_z_s32({each}, used)" if predicated else f"vld1q_s32({each})" for each in ("bias", "multiplier")}
    loads["shift"] = "vldrbq_z_s32(shift, used)" if predicated else "vldrbq_s32(shift)"
    if predicated:
        yield f"    const int32x4_t totals = {{{', '.join(f'total[{lane}]' if lane < lanes else '0' for lane in range(LANES))}}};"
    else:
        yield "    int32x4_t totals;"
        yield '    __asm__("vmov %q0[2], %q0[0], %1, %3\\n\\tvmov %q0[3], %q0[1], %2, %4" : "=&w"(totals)'
        yield '        : "r"(total[0]), "r"(total[1]), "r"(total[2]), "r"(total[3]));'
    yield f"    const int32x4_t sum = vaddq_s32(totals, {loads['bias']});"
    scaled = _scaled("sum", loads["multiplier"], loads["shift"], rounding)
    yield f"    const int32x4_t value = vaddq_n_s32({scaled}, zero);"
    yield from _stored(predicated)


def run_lines() -> Iterator[str]:
    """Yield the body of dot products of consecutive groups. It is written in asm, because compilers hoist more vector loads than
    there are vector registers."""
    yield f"    {', '.join(f'sum{lane} = total[{lane}]' for lane in range(LANES))};".replace("    sum0", "    int32_t sum0")
    yield "#pragma GCC unroll 4"
    yield "    for (int32_t i = 0; i < count; i++) {"
    yield "        int8x16_t data, weights;"
    yield f'        __asm__ volatile("vldrb.8 %q{LANES}, [%{LANES + 2}], #16\\n\\t"'
    for lane in range(LANES):
        end = "" if lane == LANES - 1 else "\\n\\t"
        yield f'            "vldrb.8 %q{LANES + 1}, [%{LANES + 3}], #16\\n\\tvmladava.s8 %{lane}, %q{LANES}, %q{LANES + 1}{end}"'
    sums = ", ".join(f'"+Te"(sum{lane})' for lane in range(LANES))
    yield f'            : {sums}, "=&w"(data), "=&w"(weights), "+r"(a), "+r"(b) : : "memory");'
    yield "    }"
    yield from (f"    total[{lane}] = sum{lane};" for lane in range(LANES))


def copy_lines() -> Iterator[str]:
    """Yield the body that copies a run of bytes."""
    yield "    const int32_t whole = size / 16 * 16, rest = size % 16;"
    yield "    for (int32_t i = 0; i < whole; i += 16) {"
    yield "        vst1q_s8(target + i, vld1q_s8(source + i));"
    yield "    }"
    yield "    if (rest > 0) {"
    yield "        const mve_pred16_t used = vctp8q((uint32_t)rest);"
    yield "        vstrbq_p_s8(target + whole, vldrbq_z_s8(source + whole, used), used);"
    yield "    }"


def addition_lines(lanes: int) -> Iterator[str]:
    """Yield the body that adds elements of two quantized tensors."""
    predicated = lanes < LANES
    if predicated:
        yield f"    const mve_pred16_t used = vctp32q({lanes});"
    for side in "ab":
        load = f"vldrbq_z_s32({side}, used)" if predicated else f"vldrbq_s32({side})"
        yield f"    const int32x4_t {side}_raised = vshlq_n_s32(vsubq_n_s32({load}, zero_{side}), {RAISED});"
        yield f"    const int32x4_t {side}_scaled = {PREFIX}vector_away({side}_raised, multiplier_{side}, shift_{side});"
    yield f"    const int32x4_t sum = {PREFIX}vector_away(vaddq_s32(a_scaled, b_scaled), multiplier, shift);"
    yield "    const int32x4_t value = vaddq_n_s32(sum, zero);"
    yield from _stored(predicated)


def window_lines(lanes: int, rounding: str) -> Iterator[str]:
    """Yield the body that sums over a window per channel. The sum of two products fits in 16 bits, since no weight is -128. Sums of
    two are accumulated in 32 bits, separately for even and odd channels."""
    predicated = lanes < CHANNELS
    if predicated:
        yield f"    const mve_pred16_t used = vctp16q({lanes}), evens = vctp32q({(lanes + 1) // 2}), odds = vctp32q({lanes // 2});"
        yield "    const uint32x4_t at = vidupq_n_u32(0, 2);"
    for part in ("bias", "multiplier"):
        gather = f"vldrwq_gather_shifted_offset_z_s32({part}"
        loaded = f"{{{{{gather}, at, evens), {gather} + 1, at, odds)}}}}" if predicated else f"vld2q_s32({part})"
        yield f"    const int32x4x2_t {part}_parts = {loaded};"
    yield f"    const int16x8_t shifts = {'vldrbq_z_s16(shift, used)' if predicated else 'vldrbq_s16(shift)'};"
    first, second = (_products(at, predicated) for at in ("x * channels - middle", "(x + 1) * channels - middle"))
    # The empty asm statement keeps the compiler from interleaving rows: there are registers for one row only.
    yield from (
        "    const int32_t middle = columns > 1 ? channels : 0;",
        "    const int8_t *data = a + middle, *weights = b + middle;",
        "    int32x4_t even = bias_parts.val[0], odd = bias_parts.val[1];",
        "#pragma GCC unroll 4",
        "    for (int32_t y = 0; y < rows; y++) {",
        '        __asm__("" : "+r"(data), "+r"(weights), "+w"(even), "+w"(odd));',
        "#pragma GCC unroll 4",
        "        for (int32_t x = 0; x < columns; x += 2) {",
        f"            int16x8_t products = {first};",
        "            if (x + 1 < columns) {",
        f"                products = vaddq_s16(products, {second});",
        "            }",
        "            even = vaddq_s32(even, vmovlbq_s16(products));",
        "            odd = vaddq_s32(odd, vmovltq_s16(products));",
        "        }",
        "        data += row;",
        "        weights += columns * channels;",
        "    }",
    )
    for number, (part, shift) in enumerate((("even", "vmovlbq_s16(shifts)"), ("odd", "vmovltq_s16(shifts)"))):
        yield f"    {part} = {_scaled(part, f'multiplier_parts.val[{number}]', shift, rounding)};"
    # Values that saturate at 16 bits exceed the int8 limits even after the zero point is added.
    yield "    int16x8_t value = vqmovntq_s32(vqmovnbq_s32(vreinterpretq_s16_s32(even), even), odd);"
    yield "    value = vmaxq_s16(vqaddq_n_s16(value, (int16_t)zero), vdupq_n_s16((int16_t)low));"
    value = "vminq_s16(value, vdupq_n_s16((int16_t)high))"
    yield f"    vstrbq_p_s16(out, {value}, used);" if predicated else f"    vstrbq_s16(out, {value});"


def _products(at: str, predicated: bool) -> str:
    """Return the expression of the products of data and weights at offset `at`. predicated: predicate the loads."""
    data, weights = (
        f"vldrbq_z_s16({side} + {at}, used)" if predicated else f"vldrbq_s16({side} + {at})" for side in ("data", "weights")
    )
    return f"vmulq_s16({data}, {weights})"


def _scaled(value: str, multiplier: str, shift: str, rounding: str) -> str:
    """Return the expression that scales sums in fixed point, with a multiplier and a shift per lane."""
    high = f"vqrdmulhq_s32({value}, {multiplier})"
    high = f"vaddq_s32({high}, vshrq_n_s32({value}, 31))" if rounding == "away" else high
    return f"vrshlq_s32({high}, {shift})"


def _stored(predicated: bool) -> Iterator[str]:
    """Yield the statements that clamp values and store them as int8."""
    yield "    const int32x4_t raised = vmaxq_s32(value, vdupq_n_s32(low));"
    stored = "out, vminq_s32(raised, vdupq_n_s32(high))"
    yield f"    vstrbq_p_s32({stored}, used);" if predicated else f"    vstrbq_s32({stored});"
