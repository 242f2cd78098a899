"""Tensor intrinsics, and how they are printed: as calls of functions that stand in front of the kernels.

Processors with Arm's DSP extension multiply two pairs of 16-bit numbers at once (SMLAD), to which SXTB16 extends every second byte
of a word; products of single channels each take one half of a register (SMLABB, SMLATT), and SMMLAR adds to the upper half of a
product, rounded. MVE multiplies 16 pairs of bytes and adds them up (VMLADAVA), and multiplies or requantises four sums at once.
Everywhere else the same functions are plain C, so that code for such processors compiles for any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlay.codegen.c_kernel import Emitter, Place
from inlay.schedules.dot import dot_product
from inlay.tensor import ir
from inlay.tensor.primitives import TensorIntrin
from inlay.tensor.ranges import Range
from inlay_microcontroller.options import Cpu
from inlay_microcontroller.schedules.addition import RAISED, SCALARS, addition
from inlay_microcontroller.schedules.depthwise import lane_products
from inlay_microcontroller.schedules.requantise import ROUNDINGS, requantisation
from inlay_microcontroller.schedules.rows import COPY
from inlay_microcontroller.schedules.window import LANES as CHANNELS
from inlay_microcontroller.schedules.window import SCALARS as LIMITS
from inlay_microcontroller.schedules.window import WindowSums, window_sums
from inlay_microcontroller.unit import PREFIX
from inlay_microcontroller.vectors import FIXED, addition_lines, requantised_lines, window_lines

GROUP = 4
"""Bytes of a word, which are read at once."""
VECTOR = 16
"""Bytes of a vector of MVE."""
DOTS = (2, 4)
"""Lanes of dot products."""
EXACT = "exact_"
"""What the names of functions begin with, after the prefix, that take sums and shifts of any size."""
LARGEST = 1 << 29
"""Of biases for which others will do: sums stay below 2^30."""

_INLINE = """\
#if defined(__GNUC__)
#define INLAY_INLINE static inline __attribute__((always_inline, unused))
#else
#define INLAY_INLINE static inline
#endif
"""
_DSP = """\
/* The bytes 1 and 3 of a word, in its halves; __sxtb16 gives 0 and 2. */
INLAY_INLINE int32_t inlay_odd(int32_t word) {
    int32_t halves;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(halves) : "r"(word));
    return halves;
}
INLAY_INLINE int32_t inlay_word(const int8_t *at) {
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}
"""
_DSP_FIXED = """\
/* The upper half of value * 2 * multiplier, rounded, plus what is added. */
INLAY_INLINE int32_t inlay_upper(int32_t value, int32_t multiplier, int32_t added) {
    int32_t result;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(result) : "r"(value * 2), "r"(multiplier), "r"(added));
    return result;
}
"""
_PLAIN_FIXED = """\
INLAY_INLINE int32_t inlay_upper(int32_t value, int32_t multiplier, int32_t added) {
    return (int32_t)(((int64_t)value * multiplier + 1073741824) >> 31) + added;
}
"""
_FIXED = {
    "up": """\
/* value * multiplier / 2^(31 - shift), halves up; sums are less than 2^30, and nothing is shifted to the left. */
INLAY_INLINE int32_t inlay_up(int32_t value, int32_t multiplier, int32_t shift) {
    return inlay_upper(value, multiplier, (int32_t)((uint32_t)1 << -shift) >> 1) >> -shift;
}
""",
    "away": """\
/* value * multiplier / 2^(31 - shift), halves away from 0; sums are less than 2^30, and something is shifted to the right. */
INLAY_INLINE int32_t inlay_away(int32_t value, int32_t multiplier, int32_t shift) {
    return inlay_upper(value, multiplier, ((int32_t)((uint32_t)1 << -shift) >> 1) + (value >> 31)) >> -shift;
}
""",
}
_EXACT = {
    "up": """\
/* value * multiplier / 2^(31 - shift), halves up, of any numbers. */
static inline int32_t inlay_exact_up(int32_t value, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    const int64_t high = ((int64_t)(int32_t)(left < 32 ? (uint32_t)value << left : 0) * multiplier + 1073741824) >> 31;
    const int64_t kept = high < INT32_MIN ? INT32_MIN : high > INT32_MAX ? INT32_MAX : high;
    return right < 64 ? (int32_t)((kept + (int64_t)(((uint64_t)1 << right) >> 1)) >> right) : -(kept < 0);
}
""",
    "away": """\
/* value * multiplier / 2^(31 - shift), halves away from 0, of any numbers. */
static inline int32_t inlay_exact_away(int32_t value, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    const int64_t high = ((int64_t)(int32_t)(left < 32 ? (uint32_t)value << left : 0) * multiplier + 1073741824) >> 31;
    const int64_t kept = high < INT32_MIN ? INT32_MIN : high > INT32_MAX ? INT32_MAX : high;
    const int64_t half = right < 64 ? (int64_t)(((uint64_t)1 << right) >> 1) : 0;
    return right < 64 ? (int32_t)((kept + half - (kept < 0 && half > 0)) >> right) : -(kept < 0);
}
""",
}
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
    `plain` is that function, `dsp` and `mve` those of processors with DSP or MVE, where they differ; `vector` is one for MVE alone.
    A `strided` one is told how many elements apart the lanes of its second region lie. Functions without `semantics` serve several
    intrinsics, and are told more.
    Of a requantisation the function whose name begins with `EXACT` is called where sums or shifts may be large."""

    name: str
    semantics: ir.LoopProgram | None
    plain: str
    dsp: str = ""
    exact: bool = False
    mve: str = ""
    vector: bool = False
    strided: bool = False

    @property
    def function(self) -> str:
        return f"{PREFIX}{EXACT if self.exact else ''}{self.name}"

    def __call__(self, places: Sequence[Place], args: Sequence[str]) -> list[str]:
        strides = [repr(places[1].region.buffer.shape[-1])] if self.strided else []
        return [f"{self.function}({', '.join((*(place.pointer for place in places), *strides, *args))});"]


def _print_copy(places: Sequence[Place], args: Sequence[str]) -> list[str]:
    source, target = places
    (_, size), *_ = source.region.ranges
    return [f"memcpy({target.pointer}, {source.pointer}, {size!r});"]


def _dot(lanes: int) -> _Printed:
    """The dot product of a number of lanes."""
    name = f"dot{lanes}"
    head = f"void {PREFIX}{name}(const int8_t *a, const int8_t *b, int32_t *total) {{"
    lines = f"INLAY_INLINE {head}"
    plain, dsp = [lines], [lines]
    dsp.append("    const int32_t word = inlay_word(a), even = __sxtb16(word), odd = inlay_odd(word);")
    for lane in range(lanes):
        plain.append(f"    total[{lane}] += {' + '.join(f'a[{j}] * b[{lane * GROUP + j}]' for j in range(GROUP))};")
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
    return _Printed(name, semantics, _lines(plain), mve=_lines(mve), vector=True, strided=True)


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
        plain.append(f"    total[{lane}] += a[{lane}] * b[{lane}];")
        dsp.append(f"    total[{lane}] = __smla{instruction}(a_{half}, b_{half}, total[{lane}]);")
    mve = [lines, "    vst1q_s32(total, vaddq_s32(vld1q_s32(total), vmulq_s32(vldrbq_s32(a), vldrbq_s32(b))));"]
    return _Printed("lanes", lane_products(GROUP), _lines(plain), _lines(dsp), mve=_lines(mve))


def _requantise(lanes: int, rounding: str, exact: bool) -> _Printed:
    """Sums as results of int8."""
    name, kind = f"requantise_{rounding}{lanes}", EXACT if exact else ""
    head = [
        f"INLAY_INLINE void {PREFIX}{kind}{name}(const int32_t *total, const int32_t *bias, const int32_t *multiplier,",
        "    const int32_t *shift, int8_t *out, int32_t zero, int32_t low, int32_t high) {",
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
        "    const int32_t *shift, int8_t *out, int32_t rows, int32_t columns, int32_t row, int32_t channels,",
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


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (*lines, "}"))


def _printed(exact: bool) -> Iterator[_Printed]:
    for lanes in DOTS:
        yield _dot(lanes)
    yield _vector_dot(GROUP)
    yield _lanes()
    for rounding in ROUNDINGS:
        for lanes in range(1, GROUP + 1):
            yield _requantise(lanes, rounding, exact)
    for lanes in range(1, GROUP + 1):
        yield _addition(lanes)
    for rounding in ROUNDINGS:
        for lanes in range(1, CHANNELS + 1):
            yield _window(lanes, rounding, exact)


def intrinsics(cpu: Cpu) -> tuple[TensorIntrin, ...]:
    """The intrinsics that kernels for a processor are made of: those of vectors only where it has some. Windows have more."""
    found = (printed for printed in _printed(False) if cpu.mve or not printed.vector)
    return (COPY, *(TensorIntrin(printed.name, printed.semantics) for printed in found if printed.semantics is not None))


def emitters(kernel: ir.LoopProgram, known: Mapping[int, Range]) -> Mapping[str, Emitter]:
    """How they are printed in a kernel, by name; `known` are the ranges of what its parameters hold, by number."""
    used = [stmt for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Intrinsic)]
    printed = {each.name: each for each in _printed(not all(_is_small(stmt, kernel, known) for stmt in used))}
    windows = [window for stmt in used if (window := window_sums(stmt.name)) is not None]
    return {COPY.name: _print_copy, **printed, **{window.name: _told(printed[window.function], window) for window in windows}}


def _told(printed: _Printed, window: WindowSums) -> Emitter:
    """A function of windows, called with the distances of one."""
    told = (window.rows, window.columns, window.row, window.channels)
    return lambda places, args: printed(places, (*map(str, told), *args))


def _is_small(stmt: ir.Intrinsic, kernel: ir.LoopProgram, known: Mapping[int, Range]) -> bool:
    """Whether an intrinsic is no requantisation, or one of small biases and of shifts to the right."""
    window = window_sums(stmt.name) is not None
    if not window and not stmt.name.startswith("requantise"):
        return True
    ranges = [known.get(kernel.params.index(region.buffer)) if region.buffer in kernel.params else None for region in stmt.regions]
    weights, bias, *_, shift = ranges[1 if window else 0 : -1]
    if window and (weights is None or weights[0] == -128):
        return False
    least = 1 if "away" in stmt.name else 0
    return bias is not None and shift is not None and max(map(abs, bias)) < LARGEST and shift[0] > -31 and shift[1] <= -least


def support(cpu: Cpu, text: str) -> tuple[str, tuple[str, ...]]:
    """The functions that printed kernels call, and the headers that these and the kernels include."""
    used = [printed for exact in (False, True) for printed in _printed(exact) if f"{printed.function}(" in text]
    used = list({printed.function: printed for printed in used}.values())
    requantised = [printed for printed in used if not printed.dsp and not printed.strided]
    plain, dsp = ([_text(cpu, printed, name) for printed in used if printed.dsp] for name in ("plain", "dsp"))
    if requantised:
        plain, dsp = [*plain, _PLAIN_FIXED, _PLAIN_WITHIN], [*dsp, _DSP_FIXED, _DSP_WITHIN]
    parts = [_INLINE] if used else []
    if cpu.mve and any(printed.mve for printed in used):
        parts.append("#if defined(__ARM_FEATURE_MVE)\n#include <arm_mve.h>\n" + FIXED + "#endif\n")
    if cpu.dsp and dsp:
        parts += ["#if defined(__ARM_FEATURE_DSP)\n#include <arm_acle.h>\n", _DSP, *dsp, "#else\n", *plain, "#endif\n"]
    else:
        parts += plain
    parts += [_text(cpu, printed, "plain") for printed in used if printed.strided]
    called = "".join(printed.plain for printed in requantised)
    for kind, functions in ((EXACT, _EXACT), ("", _FIXED)):
        parts += [function for rounding, function in functions.items() if f"{PREFIX}{kind}{rounding}(" in called]
    parts += [_text(cpu, printed, "plain") for printed in requantised]
    return "".join(parts), ("string.h",) if (cpu.dsp and dsp) or "memcpy(" in text else ()


def _text(cpu: Cpu, printed: _Printed, name: str) -> str:
    """A function: for MVE where the processor and then the compiler has it, or else the one of that name."""
    text = str(getattr(printed, name))
    return f"#if defined(__ARM_FEATURE_MVE)\n{printed.mve}#else\n{text}#endif\n" if cpu.mve and printed.mve else text
