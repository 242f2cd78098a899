"""Tensor intrinsics, and how they are printed: as calls of functions that stand in front of the kernels.

Processors with Arm's DSP extension multiply two pairs of 16-bit numbers at once (SMLAD), to which SXTB16 extends every second byte
of a word; products of single channels each take one half of a register (SMLABB, SMLATT), and SMMLAR adds to the upper half of a
product, rounded. MVE multiplies 16 pairs of bytes and adds them up (VMLADAVA), and multiplies or requantises four sums at once.
Everywhere else the same functions are plain C, so that code for such processors compiles for any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from inlay import arith
from inlay.codegen.c_kernel import Emitter, Place
from inlay.schedules.dot import dot_product
from inlay.tensor import ir
from inlay.tensor.primitives import TensorIntrin
from inlay.tensor.ranges import Range
from inlay_microcontroller.counts import Cost
from inlay_microcontroller.options import Cpu
from inlay_microcontroller.schedules.addition import RAISED, SCALARS, addition
from inlay_microcontroller.schedules.columns import pair
from inlay_microcontroller.schedules.depthwise import lane_products
from inlay_microcontroller.schedules.direct import tile_product
from inlay_microcontroller.schedules.requantise import ROUNDINGS, requantisation, rescaling
from inlay_microcontroller.schedules.rows import COPY
from inlay_microcontroller.schedules.vector import run_of_dots
from inlay_microcontroller.schedules.window import LANES as CHANNELS
from inlay_microcontroller.schedules.window import SCALARS as LIMITS
from inlay_microcontroller.schedules.window import WindowSums, window_sums
from inlay_microcontroller.unit import PREFIX
from inlay_microcontroller.vectors import FIXED, addition_lines, copy_lines, requantised_lines, run_lines, window_lines

GROUP = 4
"""Bytes of a word, which are read at once."""
VECTOR = 16
"""Bytes of a vector of MVE."""
DOTS = (2, 4)
"""Lanes of dot products."""
CALLED = 64
"""Bytes from which on compilers call a function to copy them."""
FUNCTION = re.compile(rf"\w+ ({PREFIX}\w+)\(")
"""The head of a function, with its name."""
EXACT = "exact_"
"""What the names of functions begin with, after the prefix, that take sums and shifts of any size."""
LARGEST = 1 << 29
"""Of biases for which others will do: sums stay below 2^30."""

FARTHEST = -22
"""The most that is shifted to the right where the zero point is added before: it stays below 2^29."""

_DSP = "defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)"
"""Where functions of DSP are compiled: they read words from any address, whose first byte is the lowest. `__ARM_FEATURE_DSP` alone
is said of processors as well that have no pairs of 16-bit numbers."""
_INLINE = """\
#if defined(__GNUC__)
#define INLAY_INLINE static inline __attribute__((always_inline, unused))
#define INLAY_SHARED static inline __attribute__((unused))
#else
#define INLAY_INLINE static inline
#define INLAY_SHARED static inline
#endif
"""
_ODD = """\
/* The bytes 1 and 3 of a word, in its halves; __sxtb16 gives 0 and 2. */
INLAY_INLINE int32_t inlay_odd(int32_t word) {
    int32_t halves;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(halves) : "r"(word));
    return halves;
}
"""
_WORD = """\
INLAY_INLINE int32_t inlay_word(const int8_t *at) {
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}
"""
_DSP_TILE = r"""/* In this order, which needs the fewest registers: compilers put loads first, and sums on the stack. In two
   pieces, one for each channel: a single one has more operands than processors have registers where compilers do not optimise. */
INLAY_INLINE void inlay_tile(const int8_t *a0, const int8_t *a1, const int8_t *b, int32_t *total) {
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
_DSP_UPPER = """\
/* The upper half of value * 2 * multiplier, rounded, plus what is added. */
INLAY_INLINE int32_t inlay_upper(int32_t value, int32_t multiplier, int32_t added) {
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(value * 2), "r"(multiplier), "r"(added));
    return result;
}
"""
_PLAIN_UPPER = """\
INLAY_INLINE int32_t inlay_upper(int32_t value, int32_t multiplier, int32_t added) {
    return (int32_t)(((int64_t)value * multiplier + 1073741824) >> 31) + added;
}
"""
_HALF = """\
/* What is added before the shift: half of what the last bit is worth then, and the zero point. */
INLAY_INLINE int32_t inlay_half(int32_t zero, int32_t shift) {
    return (int32_t)((uint32_t)(2 * zero + 1) << -shift) >> 1;
}
"""
_UP = """\
/* value * multiplier / 2^(31 - shift), halves up; sums are less than 2^30, and nothing is shifted to the left. */
INLAY_INLINE int32_t inlay_up(int32_t value, int32_t multiplier, int32_t shift) {
    return inlay_upper(value, multiplier, (int32_t)((uint32_t)1 << -shift) >> 1) >> -shift;
}
"""
_AWAY = """\
/* value * multiplier / 2^(31 - shift), halves away from 0; sums are less than 2^30, and something is shifted to the right. */
INLAY_INLINE int32_t inlay_away(int32_t value, int32_t multiplier, int32_t shift) {
    return inlay_upper(value, multiplier, ((int32_t)((uint32_t)1 << -shift) >> 1) + (value >> 31)) >> -shift;
}
"""
_EXACT_UP = """\
/* value * multiplier / 2^(31 - shift), halves up, of any numbers. */
INLAY_SHARED int32_t inlay_exact_up(int32_t value, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    const int64_t high = ((int64_t)(int32_t)(left < 32 ? (uint32_t)value << left : 0) * multiplier + 1073741824) >> 31;
    const int64_t kept = high < INT32_MIN ? INT32_MIN : high > INT32_MAX ? INT32_MAX : high;
    return right < 64 ? (int32_t)((kept + (int64_t)(((uint64_t)1 << right) >> 1)) >> right) : -(kept < 0);
}
"""
_EXACT_AWAY = """\
/* value * multiplier / 2^(31 - shift), halves away from 0, of any numbers. */
INLAY_SHARED int32_t inlay_exact_away(int32_t value, int32_t multiplier, int32_t shift) {
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
_PLAIN_WITHIN = f"""\
INLAY_INLINE int8_t inlay_within(int32_t value, int32_t low, int32_t high) {{
{_CLIPPED}"""
_DSP_WITHIN = f"""\
INLAY_INLINE int8_t inlay_within(int32_t value, int32_t low, int32_t high) {{
    if (low == -128 && high == 127) {{
        int32_t byte;
        __asm__("ssat %0, #8, %1" : "=r"(byte) : "r"(value));
        return (int8_t)byte;
    }}
{_CLIPPED}"""


@dataclass(frozen=True)
class _Printed:
    """An intrinsic that is printed as a call of a function with its name, on the addresses of its regions and on its arguments.
    `plain` is that function, `dsp` and `mve` those of processors with DSP or MVE, where they differ; `vector` is one for MVE alone,
    `scalar` one for processors without it, which have DSP where the function has.
    `tells` gives a further argument, from the second region. Functions without `semantics` serve several intrinsics, and are told
    more.
    Of a requantisation the function whose name begins with `EXACT` is called where sums or shifts may be large."""

    name: str
    semantics: ir.LoopProgram | None
    plain: str
    dsp: str = ""
    exact: bool = False
    mve: str = ""
    vector: bool = False
    tells: Callable[[ir.Region], object] | None = None
    scalar: bool = False

    @property
    def function(self) -> str:
        return f"{PREFIX}{EXACT if self.exact else ''}{self.name}"

    def __call__(self, places: Sequence[Place], args: Sequence[str]) -> list[str]:
        told = [] if self.tells is None else [repr(self.tells(places[1].region))]
        return [f"{self.function}({', '.join((*(place.pointer for place in places), *told, *args))});"]


def _print_copy(places: Sequence[Place], args: Sequence[str]) -> list[str]:
    source, target = places
    (_, size), *_ = source.region.ranges
    return [f"memcpy({target.pointer}, {source.pointer}, {size!r});"]


def _print_vector_copy(places: Sequence[Place], args: Sequence[str]) -> list[str]:
    """Compilers copy short runs of known sizes without a call."""
    (_, size), *_ = places[0].region.ranges
    short = isinstance(size, arith.Const) and size.value < CALLED
    return (
        _print_copy(places, args)
        if short
        else [line.replace("memcpy", f"{PREFIX}vector_copy") for line in _print_copy(places, args)]
    )


def _vector_copy() -> _Printed:
    """A run of bytes."""
    head = f"INLAY_INLINE void {PREFIX}vector_copy(int8_t *target, const int8_t *source, int32_t size) {{"
    plain = [head, "    memcpy(target, source, (size_t)size);"]
    return _Printed("vector_copy", None, _lines(plain), mve=_lines([head, *copy_lines()]), vector=True)


def _dot(lanes: int) -> _Printed:
    """The dot product of a number of lanes."""
    name = f"dot{lanes}"
    head = f"void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total) {{"
    lines = f"INLAY_INLINE {head}"
    plain, dsp = [lines], [lines]
    dsp.append("    const int32_t word = inlay_word(a), even = __sxtb16(word), odd = inlay_odd(word);")
    for lane in range(lanes):
        products = " + ".join(f"a[{j}] * b[{lane * GROUP + j}]" for j in range(GROUP))
        plain.append(_added(f"total[{lane}]", products))
        dsp.append(f"    const int32_t b{lane} = inlay_word(b + {lane * GROUP});")
    dsp += [f"    total[{lane}] = __smlad(even, __sxtb16(b{lane}), total[{lane}]);" for lane in range(lanes)]
    dsp += [f"    total[{lane}] = __smlad(odd, inlay_odd(b{lane}), total[{lane}]);" for lane in range(lanes)]
    return _Printed(name, dot_product("int8", "int8", "int32", lanes, GROUP), _lines(plain), _lines(dsp))


def _vector_dot(lanes: int) -> _Printed:
    """The dot product of a number of lanes, 16 elements of each."""
    name = f"vector_dot{lanes}"
    head = f"INLAY_INLINE void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total, int32_t stride) {{"
    plain = [head, f"    for (int32_t i = 0; i < {VECTOR}; i++) {{"]
    plain += [f"        total[{lane}] += a[i] * b[{lane} * stride + i];" for lane in range(lanes)] + ["    }"]
    mve = [head, "    const int8x16_t data = vld1q_s8(a);"]
    mve += [f"    total[{lane}] = vmladavaq_s8(total[{lane}], data, vld1q_s8(b + {lane} * stride));" for lane in range(lanes)]
    semantics = dot_product("int8", "int8", "int32", lanes, VECTOR)
    return _Printed(name, semantics, _lines(plain), mve=_lines(mve), vector=True, tells=lambda b: b.buffer.shape[-1])


def _vector_run() -> _Printed:
    """The dot products of groups that follow one another."""
    name = f"vector_run{GROUP}"
    head = f"INLAY_INLINE void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total, int32_t count) {{"
    plain = [head, f"    for (int32_t i = 0; i < count * {VECTOR}; i++) {{"]
    at = f"i / {VECTOR} * {GROUP * VECTOR} + i % {VECTOR}"
    plain += [f"        total[{lane}] += a[i] * b[{at} + {lane * VECTOR}];" for lane in range(GROUP)] + ["    }"]
    mve = _lines([head, *run_lines()])
    return _Printed(name, run_of_dots(GROUP, VECTOR), _lines(plain), mve=mve, vector=True, tells=lambda b: b.ranges[0][1])


def _lanes() -> _Printed:
    """Products channel by channel."""
    head = f"void {PREFIX}lanes(const int8_t *a, const int8_t *b, int32_t *total) {{"
    lines = f"INLAY_INLINE {head}"
    plain, dsp = [lines], [lines]
    dsp += [
        "    const int32_t a_word = inlay_word(a), a_even = __sxtb16(a_word), a_odd = inlay_odd(a_word);",
        "    const int32_t b_word = inlay_word(b), b_even = __sxtb16(b_word), b_odd = inlay_odd(b_word);",
    ]
    for lane in range(GROUP):
        half, instruction = ("even", "odd")[lane % 2], ("bb", "tt")[lane // 2]
        plain.append(_added(f"total[{lane}]", f"a[{lane}] * b[{lane}]"))
        dsp.append(f"    total[{lane}] = __smla{instruction}(a_{half}, b_{half}, total[{lane}]);")
    mve = [lines, "    vst1q_s32(total, vaddq_s32(vld1q_s32(total), vmulq_s32(vldrbq_s32(a), vldrbq_s32(b))));"]
    return _Printed("lanes", lane_products(GROUP), _lines(plain), _lines(dsp), mve=_lines(mve))


def _requantise(lanes: int, rounding: str, exact: bool) -> _Printed:
    """Sums as results of int8."""
    name, kind = f"requantise_{rounding}{lanes}", EXACT if exact else ""
    head = [
        f"INLAY_INLINE void {PREFIX}{kind}{name}(const int32_t *total, const int32_t *bias, const int32_t *multiplier,",
        f"    const {_shift_type(exact)} *shift, int8_t *out, int32_t zero, int32_t low, int32_t high) {{",
    ]
    lines = list(head)
    for lane in range(lanes):
        total = f"total[{lane}] + bias[{lane}]"
        # Sums wrap where they may be large.
        total = f"(int32_t)((uint32_t)total[{lane}] + (uint32_t)bias[{lane}])" if exact else total
        lines.append(f"    const int32_t v{lane} = {PREFIX}{kind}{rounding}({total}, multiplier[{lane}], shift[{lane}]) + zero;")
    lines += [f"    out[{lane}] = inlay_within(v{lane}, low, high);" for lane in range(lanes)]
    vectors = _lines([*head, *requantised_lines(lanes, rounding)]) if lanes > 1 and not exact else ""
    return _Printed(name, requantisation(lanes, rounding), _lines(lines), exact=exact, mve=vectors)


def _addition(lanes: int) -> _Printed:
    """Sums of two tensors. What is scaled stays below 2^30, so that nothing saturates."""
    scalars = ", ".join(f"int32_t {name}" for name in SCALARS)
    head = f"INLAY_INLINE void {PREFIX}addition{lanes}(const int8_t *a, const int8_t *b, int8_t *out, {scalars}) {{"
    plain, away = [head, f"    for (int32_t i = 0; i < {lanes}; i++) {{"], f"{PREFIX}{EXACT}away"
    for side in "ab":
        raised = f"({side}[i] - zero_{side}) * {1 << RAISED}"
        plain.append(f"        const int32_t {side}_scaled = {away}({raised}, multiplier_{side}, shift_{side});")
    plain.append(f"        const int32_t value = {away}(a_scaled + b_scaled, multiplier, shift) + zero;")
    plain += ["        out[i] = inlay_within(value, low, high);", "    }"]
    return _Printed(f"addition{lanes}", addition(lanes), _lines(plain), mve=_lines([head, *addition_lines(lanes)]), vector=True)


def _window(lanes: int, rounding: str, exact: bool) -> _Printed:
    """Sums of a window of single channels, requantised."""
    name, kind = f"window{lanes}_{rounding}", EXACT if exact else ""
    head = [
        f"INLAY_INLINE void {PREFIX}{kind}{name}(const int8_t *a, const int8_t *b, const int32_t *bias, const int32_t *multiplier,",
        f"    const {_shift_type(exact)} *shift, int8_t *out, int32_t rows, int32_t columns, int32_t row, int32_t channels,",
        f"    {', '.join(f'int32_t {scalar}' for scalar in LIMITS)}) {{",
    ]
    total = "(int32_t)((uint32_t)total + (uint32_t)bias[i])" if exact else "total + bias[i]"
    plain = [
        *head,
        f"    for (int32_t i = 0; i < {lanes}; i++) {{",
        "        int32_t total = 0;",
        "        for (int32_t y = 0; y < rows; y++) {",
        "            for (int32_t x = 0; x < columns; x++) {",
        "                total += a[y * row + x * channels + i] * b[(y * columns + x) * channels + i];",
        "            }",
        "        }",
        f"        out[i] = inlay_within({PREFIX}{kind}{rounding}({total}, multiplier[i], shift[i]) + zero, low, high);",
        "    }",
    ]
    return _Printed(name, None, _lines(plain), exact=exact, mve="" if exact else _lines([*head, *window_lines(lanes, rounding)]))


def _tile() -> _Printed:
    """The products of two pixels and two channels."""
    head = f"INLAY_INLINE void {PREFIX}tile(const int8_t *a0, const int8_t *a1, const int8_t *b, int32_t *total) {{"
    plain = [head]
    for p in range(2):
        for lane in range(2):
            products = " + ".join(f"a{p}[{j}] * b[{lane * GROUP + j}]" for j in range(GROUP))
            plain.append(_added(f"total[{2 * p + lane}]", products))
    return _Printed("tile", tile_product(2, 2, GROUP), _lines(plain), _DSP_TILE, scalar=True)


def _pairs() -> Iterator[_Printed]:
    """Pairs of 16-bit numbers, and their products."""
    head = f"INLAY_INLINE void {PREFIX}pair(const int8_t *a, const int8_t *b, int16_t *out) {{"
    plain = [head, "    out[0] = *a;", "    out[1] = *b;"]
    dsp = [head, "    int32_t both;", '    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"((int32_t)*a), "r"((int32_t)*b));']
    dsp.append("    memcpy(out, &both, sizeof both);")
    yield _Printed("pair", pair(), _lines(plain), _lines(dsp), scalar=True)
    head = f"INLAY_INLINE void {PREFIX}dot_pair(const int16_t *a, const int16_t *b, int32_t *total) {{"
    plain = [head, _added("*total", "a[0] * b[0] + a[1] * b[1]")]
    dsp = [head, "    int32_t data, weights;", "    memcpy(&data, a, sizeof data);", "    memcpy(&weights, b, sizeof weights);"]
    dsp.append("    *total = __smlad(data, weights, *total);")
    yield _Printed("dot_pair", dot_product("int16", "int16", "int32", 1, 2), _lines(plain), _lines(dsp), scalar=True)


def _rescale(rows: int, lanes: int, rounding: str, exact: bool) -> _Printed:
    """Sums that have begun with their biases as results of int8."""
    name, kind = f"rescale_{rounding}{rows}x{lanes}", EXACT if exact else ""
    outs = ", ".join(f"int8_t *out{row}" for row in range(rows))
    lines = [
        f"INLAY_INLINE void {PREFIX}{kind}{name}(const int32_t *total, const int32_t *multiplier,",
        f"    const {_shift_type(exact)} *shift,",
        f"    {outs}, int32_t zero, int32_t low, int32_t high) {{",
    ]
    places = [(row, lane) for lane in range(lanes) for row in range(rows)]
    for lane in range(lanes):
        lines.append(f"    const int32_t m{lane} = multiplier[{lane}], s{lane} = shift[{lane}];")
        lines += [] if exact else [f"    const int32_t h{lane} = {PREFIX}half(zero, s{lane});"]
    for row, lane in places:
        total = f"total[{row * lanes + lane}]"
        if exact:
            value = f"{PREFIX}{EXACT}{rounding}({total}, m{lane}, s{lane}) + zero"
        else:
            added = f"h{lane} + ({total} >> 31)" if rounding == "away" else f"h{lane}"
            value = f"{PREFIX}upper({total}, m{lane}, {added}) >> -s{lane}"
        lines.append(f"    const int32_t v{row}{lane} = {value};")
    lines += [f"    out{row}[{lane}] = inlay_within(v{row}{lane}, low, high);" for row, lane in places]
    return _Printed(name, rescaling(rows, lanes, rounding), _lines(lines), exact=exact, scalar=True)


def _added(total: str, products: str) -> str:
    """Add to a sum, which may have begun with any number: it wraps."""
    return f"    {total} = (int32_t)((uint32_t){total} + (uint32_t)({products}));"


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (*lines, "}"))


def _printed(exact: bool) -> Iterator[_Printed]:
    for lanes in DOTS:
        yield _dot(lanes)
    yield _vector_dot(GROUP)
    yield _vector_run()
    yield _vector_copy()
    yield _lanes()
    yield _tile()
    yield from _pairs()
    for rounding in ROUNDINGS:
        for lanes in range(1, GROUP + 1):
            yield _requantise(lanes, rounding, exact)
            yield _rescale(1, lanes, rounding, exact)
        yield _rescale(2, 2, rounding, exact)
    for lanes in range(1, GROUP + 1):
        yield _addition(lanes)
    for rounding in ROUNDINGS:
        for lanes in range(1, CHANNELS + 1):
            yield _window(lanes, rounding, exact)


def intrinsics(cpu: Cpu) -> tuple[TensorIntrin, ...]:
    """The intrinsics that kernels for a processor are made of: those of vectors only where it has some. Windows have more."""
    found = (printed for printed in _printed(False) if _suits(printed, cpu))
    return (COPY, *(TensorIntrin(printed.name, printed.semantics) for printed in found if printed.semantics is not None))


def _suits(printed: _Printed, cpu: Cpu) -> bool:
    if cpu.mve:
        return not printed.scalar
    return not printed.vector and (cpu.dsp or not (printed.scalar and printed.dsp))


def costs(cpu: Cpu) -> Callable[[str], Cost]:
    """What an intrinsic does and moves on a processor, by its name."""
    printed = {each.name: each for each in _printed(False)}

    def cost(name: str) -> Cost:
        if name == COPY.name:
            return Cost(COPY.semantics, GROUP, GROUP)
        if (window := window_sums(name)) is not None:
            return Cost(window.intrinsic().semantics, *((VECTOR // 2,) * 2 if cpu.mve else ()))
        found = printed[name]
        assert found.semantics is not None
        if cpu.mve and found.mve:
            return Cost(found.semantics, VECTOR, VECTOR)
        return Cost(found.semantics, GROUP if cpu.dsp and found.dsp else 1)

    return cost


def emitters(kernel: ir.LoopProgram, known: Mapping[int, Range], cpu: Cpu) -> Mapping[str, Emitter]:
    """How they are printed in a kernel for a processor, by name; `known` are the ranges of what its parameters hold, by number."""
    printed = {each.name: each for each in _printed(_is_exact(kernel, known))}
    windows = [window for stmt in _used(kernel) if (window := window_sums(stmt.name)) is not None]
    copy = _print_vector_copy if cpu.mve else _print_copy
    return {COPY.name: copy, **printed, **{window.name: _told(printed[window.function], window) for window in windows}}


def _told(printed: _Printed, window: WindowSums) -> Emitter:
    """A function of windows, called with the distances of one."""
    told = (window.rows, window.columns, window.row, window.channels)
    return lambda places, args: printed(places, (*map(str, told), *args))


def shifts(kernel: ir.LoopProgram, known: Mapping[int, Range]) -> set[ir.Buffer]:
    """The parameters of a kernel that hold shifts for intrinsics which take these as bytes."""
    return set() if _is_exact(kernel, known) else {_inputs(stmt)[-1] for stmt in _used(kernel) if _requantises(stmt)}


def _used(kernel: ir.LoopProgram) -> list[ir.Intrinsic]:
    return [stmt for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Intrinsic)]


def _is_exact(kernel: ir.LoopProgram, known: Mapping[int, Range]) -> bool:
    """Whether requantisations in a kernel are those of sums and shifts of any size, and shifts are no bytes."""
    used = _used(kernel)
    last = {_inputs(stmt)[-1] for stmt in used if _requantises(stmt)}
    others = (buffer for stmt in used for buffer in (_inputs(stmt)[:-1] if _requantises(stmt) else _buffers(stmt)))
    return not last.isdisjoint(others) or not all(_is_small(stmt, kernel, known) for stmt in used)


def _shift_type(exact: bool) -> str:
    return "int32_t" if exact else "int8_t"


def _requantises(stmt: ir.Intrinsic) -> bool:
    return window_sums(stmt.name) is not None or stmt.name.startswith(("rescale", "requantise"))


def _buffers(stmt: ir.Intrinsic) -> list[ir.Buffer]:
    return [region.buffer for region in stmt.regions]


def _inputs(stmt: ir.Intrinsic) -> list[ir.Buffer]:
    """What a requantisation reads besides sums and products: biases, unless sums have begun with them, multipliers and shifts."""
    rows = re.fullmatch(r"rescale_[a-z]+(\d)x\d", stmt.name)
    return _buffers(stmt)[2 if window_sums(stmt.name) is not None else 1 : -int(rows[1]) if rows else -1]


def _is_small(stmt: ir.Intrinsic, kernel: ir.LoopProgram, known: Mapping[int, Range]) -> bool:
    """Whether an intrinsic is no requantisation, or one of small biases and of shifts to the right; away from 0 it looks at the
    sign of the sum, so that multipliers have none."""
    if not _requantises(stmt):
        return True
    window, begins, away = window_sums(stmt.name) is not None, stmt.name.startswith("rescale"), "away" in stmt.name
    buffers = [*(_begun(stmt.regions[0].buffer, kernel) if begins else ()), *_inputs(stmt)]
    *biases, multiplier, shift = (known.get(kernel.params.index(each)) for each in buffers)
    weights = known.get(kernel.params.index(stmt.regions[1].buffer)) if window else (0, 0)
    if shift is None or weights is None or weights[0] == -128:
        return False
    if any(bias is None or max(map(abs, bias)) >= LARGEST for bias in biases) or shift[0] < (FARTHEST if begins else -30):
        return False
    return shift[1] < 0 and multiplier is not None and multiplier[0] >= 0 if away else shift[1] <= 0


def _begun(total: ir.Buffer, kernel: ir.LoopProgram) -> set[ir.Buffer]:
    """The parameters that hold what sums begin with."""
    stores = (stmt for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Store) and stmt.buffer is total)
    return {store.value.buffer for store in stores if isinstance(store.value, ir.Load) and store.value.buffer in kernel.params}


@cache
def function_names() -> frozenset[str]:
    """What `support` may call functions, without the prefix."""
    printed = (each for exact in (False, True) for each in _printed(exact))
    texts = [FIXED, _UP, _AWAY, *(f"{each.plain}{each.dsp}{each.mve}" for each in printed)]
    return frozenset(re.findall(rf"\b{PREFIX}(\w+)\(", "".join(texts)))


def support(cpu: Cpu, text: str) -> tuple[str, tuple[str, ...]]:
    """The functions that printed kernels call, and the headers that these and the kernels include."""
    used = [printed for exact in (False, True) for printed in _printed(exact) if f"{printed.function}(" in text]
    used = list({printed.function: printed for printed in used}.values())
    made = [_text(cpu, printed, "plain") for printed in used if not printed.dsp]
    made = [*_called((_HALF, _UP, _AWAY, _EXACT_UP, _EXACT_AWAY), made), *made]
    plain, dsp = ([_text(cpu, printed, name) for printed in used if printed.dsp] for name in ("plain", "dsp"))
    plain = [*_called((_PLAIN_UPPER, _PLAIN_WITHIN), made), *plain]
    dsp = [*_called((_ODD, _WORD), dsp), *_called((_DSP_UPPER, _DSP_WITHIN), made), *dsp]
    parts = [_INLINE] if used else []
    if cpu.mve and any(printed.mve for printed in used):
        parts.append("#if defined(__ARM_FEATURE_MVE)\n#include <arm_mve.h>\n" + FIXED + "#endif\n")
    if cpu.dsp and dsp:
        parts += [f"#if {_DSP}\n#include <arm_acle.h>\n", *dsp, "#else\n", *plain, "#endif\n"]
    else:
        parts += plain
    functions = "".join((*parts, *made))
    return functions, ("string.h",) if any("memcpy(" in each for each in (functions, text)) else ()


def _called(functions: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The functions that texts call."""
    return [each for each in functions if any(f"{FUNCTION.findall(each)[0]}(" in text for text in texts)]


def _text(cpu: Cpu, printed: _Printed, name: str) -> str:
    """A function: for MVE where the processor and then the compiler has it, or else the one of that name."""
    text = str(getattr(printed, name))
    return f"#if defined(__ARM_FEATURE_MVE)\n{printed.mve}#else\n{text}#endif\n" if cpu.mve and printed.mve else text
