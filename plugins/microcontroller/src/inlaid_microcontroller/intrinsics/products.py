"""Intrinsics that sum products."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid_microcontroller.intrinsics.mve import run_lines
from inlaid_microcontroller.intrinsics.printed import GROUP, VECTOR, Printed, added, indent_lines
from inlaid_microcontroller.schedules.depthwise import pair
from inlaid_microcontroller.schedules.direct import tile_product
from inlaid_microcontroller.schedules.vector_direct import run_of_dots
from inlaid_microcontroller.unit import PREFIX

DOTS = (2, 4)
"""Lane counts of dot products."""
_DSP_TILE = r"""/* This order needs the fewest registers; compilers would load first and spill sums. There are two statements, one
   per channel, because a single one has more operands than there are registers if compilers do not optimize. */
INLAID_INLINE void inlaid_tile(const int8_t *a0, const int8_t *a1, const int8_t *b, int32_t *total) {
    int32_t even0, odd0, even1, odd1, even, odd;
    __asm__ volatile(
        "ldr %[odd0], %[a0]\n\tldr %[odd1], %[a1]\n\tldr %[odd], %[b0]\n\t"
        "sxtb16 %[even0], %[odd0]\n\tsxtb16 %[odd0], %[odd0], ror #8\n\t"
        "sxtb16 %[even1], %[odd1]\n\tsxtb16 %[odd1], %[odd1], ror #8\n\t"
        "sxtb16 %[even], %[odd]\n\tsxtb16 %[odd], %[odd], ror #8\n\t"
        "smlad %[t0], %[even0], %[even], %[t0]\n\tsmlad %[t2], %[even1], %[even], %[t2]\n\t"
        "smlad %[t0], %[odd0], %[odd], %[t0]\n\tsmlad %[t2], %[odd1], %[odd], %[t2]"
        : [t0] "+r"(total[0]), [t2] "+r"(total[2]), [even0] "=&r"(even0), [odd0] "=&r"(odd0), [even1] "=&r"(even1),
          [odd1] "=&r"(odd1), [even] "=&r"(even), [odd] "=&r"(odd)
        : [a0] "m"(*(const int8_t (*)[4])a0), [a1] "m"(*(const int8_t (*)[4])a1), [b0] "m"(*(const int8_t (*)[4])b));
    __asm__ volatile(
        "ldr %[odd], %[b1]\n\tsxtb16 %[even], %[odd]\n\tsxtb16 %[odd], %[odd], ror #8\n\t"
        "smlad %[t1], %[even0], %[even], %[t1]\n\tsmlad %[t3], %[even1], %[even], %[t3]\n\t"
        "smlad %[t1], %[odd0], %[odd], %[t1]\n\tsmlad %[t3], %[odd1], %[odd], %[t3]"
        : [t1] "+&r"(total[1]), [t3] "+&r"(total[3]), [even] "=&r"(even), [odd] "=&r"(odd)
        : [even0] "r"(even0), [odd0] "r"(odd0), [even1] "r"(even1), [odd1] "r"(odd1), [b1] "m"(*(const int8_t (*)[4])(b + 4)));
}
"""


def products() -> Iterator[Printed]:
    """Yield all product intrinsics."""
    for lanes in DOTS:
        yield _dot(lanes)
    yield _vector_dot(GROUP)
    yield _vector_run()
    yield _tile()
    yield from _pairs()


def _dot(lanes: int) -> Printed:
    """Define `lanes` dot products of 4 elements each."""
    name = f"dot{lanes}"
    head = f"void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total) {{"
    lines = f"INLAID_INLINE {head}"
    plain, dsp = [lines], [lines]
    dsp.append("    const int32_t word = inlaid_word(a), even = __sxtb16(word), odd = inlaid_odd(word);")
    for lane in range(lanes):
        products = " + ".join(f"a[{j}] * b[{lane * GROUP + j}]" for j in range(GROUP))
        plain.append(added(f"total[{lane}]", products))
        dsp.append(f"    const int32_t b{lane} = inlaid_word(b + {lane * GROUP});")
    dsp += [f"    total[{lane}] = __smlad(even, __sxtb16(b{lane}), total[{lane}]);" for lane in range(lanes)]
    dsp += [f"    total[{lane}] = __smlad(odd, inlaid_odd(b{lane}), total[{lane}]);" for lane in range(lanes)]
    return Printed(name, dot_product("int8", "int8", "int32", lanes, GROUP), indent_lines(plain), indent_lines(dsp))


def _vector_dot(lanes: int) -> Printed:
    """Define `lanes` dot products of 16 elements each."""
    name = f"vector_dot{lanes}"
    head = f"INLAID_INLINE void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total, int32_t stride) {{"
    plain = [head, f"    for (int32_t i = 0; i < {VECTOR}; i++) {{"]
    plain += [f"        total[{lane}] += a[i] * b[{lane} * stride + i];" for lane in range(lanes)] + ["    }"]
    mve = [head, "    const int8x16_t data = vld1q_s8(a);"]
    mve += [f"    total[{lane}] = vmladavaq_s8(total[{lane}], data, vld1q_s8(b + {lane} * stride));" for lane in range(lanes)]
    semantics = dot_product("int8", "int8", "int32", lanes, VECTOR)
    return Printed(
        name, semantics, indent_lines(plain), mve=indent_lines(mve), vector=True, extra_argument=lambda b: b.buffer.shape[-1]
    )


def _vector_run() -> Printed:
    """Define the dot products of consecutive groups."""
    name = f"vector_run{GROUP}"
    head = f"INLAID_INLINE void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total, int32_t count) {{"
    plain = [head, f"    for (int32_t i = 0; i < count * {VECTOR}; i++) {{"]
    weight_index = f"i / {VECTOR} * {GROUP * VECTOR} + i % {VECTOR}"
    plain += [f"        total[{lane}] += a[i] * b[{weight_index} + {lane * VECTOR}];" for lane in range(GROUP)] + ["    }"]
    mve = indent_lines([head, *run_lines()])
    return Printed(
        name, run_of_dots(GROUP, VECTOR), indent_lines(plain), mve=mve, vector=True, extra_argument=lambda b: b.ranges[0][1]
    )


def _tile() -> Printed:
    """Define the dot products of two pixels by two channels."""
    head = f"INLAID_INLINE void {PREFIX}tile(const int8_t *a0, const int8_t *a1, const int8_t *b, int32_t *total) {{"
    plain = [head]
    for p in range(2):
        for lane in range(2):
            products = " + ".join(f"a{p}[{j}] * b[{lane * GROUP + j}]" for j in range(GROUP))
            plain.append(added(f"total[{2 * p + lane}]", products))
    return Printed("tile", tile_product(2, 2, GROUP), indent_lines(plain), _DSP_TILE, scalar=True)


def _pairs() -> Iterator[Printed]:
    """Define the packing of two int8 as int16, and the dot product of such pairs."""
    head = f"INLAID_INLINE void {PREFIX}pair(const int8_t *a, const int8_t *b, int16_t *out) {{"
    plain = [head, "    out[0] = *a;", "    out[1] = *b;"]
    dsp = [head, "    int32_t both;", '    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"((int32_t)*a), "r"((int32_t)*b));']
    dsp.append("    memcpy(out, &both, sizeof both);")
    yield Printed("pair", pair(), indent_lines(plain), indent_lines(dsp), scalar=True)
    head = f"INLAID_INLINE void {PREFIX}dot_pair(const int16_t *a, const int16_t *b, int32_t *total) {{"
    plain = [head, added("*total", "a[0] * b[0] + a[1] * b[1]")]
    dsp = [head, "    int32_t data, weights;", "    memcpy(&data, a, sizeof data);", "    memcpy(&weights, b, sizeof weights);"]
    dsp.append("    *total = __smlad(data, weights, *total);")
    yield Printed("dot_pair", dot_product("int16", "int16", "int32", 1, 2), indent_lines(plain), indent_lines(dsp), scalar=True)
