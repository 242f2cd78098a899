"""OpenCL C 1.2 as a `ThreadDialect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.codegen.c import C_TYPES
from inlaid.codegen.c_statements import Emitter
from inlaid.tensor import ir
from inlaid_opencl.options import SHUFFLE
from inlaid_runtime.types import DType, dtype

_TYPES = {"bool": "uchar", "float32": "float", "float64": "double"}
_TYPES |= {f"int{bits}": kind for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))}
_TYPES |= {f"u{name}": f"u{kind}" for name, kind in _TYPES.items() if name.startswith("int")}
"""OpenCL C type names, keyed by element type."""
_LANES = (2, 4, 8, 16)
"""Supported lane counts. 3 is not included, since vectors of 3 lanes occupy 4 elements in memory."""
_GROUPS = {"blockIdx": "get_group_id", "threadIdx": "get_local_id"}
_MASK_WORDS = {2: ("ushort", "USHRT_MAX"), 4: ("uint", "UINT_MAX"), 8: ("ulong", "ULONG_MAX")}
"""Name and maximum of the unsigned integer type, keyed by size in bytes."""
_ROUNDING = {"floor": "floor", "ceil": "ceil", "rint": "roundeven", "trunc": "trunc"}
"""Clang's builtins, keyed by the rounding function that they implement. PoCL does not inline its library functions if library and
kernel are built for different processors."""
_INLINED = ("fma", *_ROUNDING)
_WORDS = """
    auto break case char const constant continue default do double else enum event_t extern float for global goto half if image
    inline int kernel local long pipe private read_only read_write register restrict return sampler_t short signed size_t ptrdiff_t
    sizeof static struct switch typedef uchar uint ulong union unsigned ushort void volatile while write_only bool true false
    intptr_t uintptr_t asm typeof barrier ceil clz fabs floor fma fmod get_group_id get_local_id popcount rint sqrt trunc NAN
    INFINITY NULL fmaf fmodf fabsf floorf ceilf rintf truncf sqrtf sub_group_shuffle get_sub_group_local_id
"""
_PRELUDE = f"""\
#pragma OPENCL FP_CONTRACT ON
#if defined(__clang__) && (defined(__x86_64__) || defined(__aarch64__))
#define INLAID_CPU
#endif
{chr(10).join(f"typedef {_TYPES[name]} {kind};" for name, kind in C_TYPES.items() if name not in ("bool", "float32", "float64"))}
#define _Bool bool
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define INT64_C(number) number##L
#define UINT64_C(number) number##UL
#if defined(INLAID_CPU) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
#define inlaid_fma(a, b, c) ((a) * (b) + (c)) // contracted to the instruction
#define fma(a, b, c) inlaid_fma(a, b, c)
#else
#define inlaid_fma(a, b, c) fma(a, b, c)
#endif
#ifdef INLAID_CPU
#define inlaid_convert(type, value) __builtin_convertvector(value, type)
#define sqrt(a) __builtin_sqrt(a)
#define sqrtf(a) __builtin_sqrtf(a)
#define fabs(a) __builtin_fabs(a)
#define fabsf(a) __builtin_fabsf(a)
#else
#define inlaid_convert(type, value) convert_##type(value)
#define sqrtf(a) sqrt(a)
#define fabsf(a) fabs(a)
#endif
#define fmaf(a, b, c) inlaid_fma(a, b, c)
#define fmodf(a, b) fmod(a, b)
"""


def _rounding(name: str, builtin: str) -> str:
    """Define a rounding function that calls Clang's builtin if available, else OpenCL's function.

    The name of OpenCL's function is redefined only for the builtin: a macro is not expanded inside its own expansion, so that
    `inlaid_floor` calls an undefined function if `floor` is a macro that calls `inlaid_floor`."""
    return f"""\
#if defined(INLAID_CPU) && defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_{builtin})
#define inlaid_{name}(a) __builtin_elementwise_{builtin}(a)
#define {name}(a) inlaid_{name}(a)
#endif
#endif
#ifndef inlaid_{name}
#define inlaid_{name}(a) {name}(a)
#endif
#define {name}f(a) inlaid_{name}(a)
"""


def _memory(dtype: DType, lanes: int) -> str:
    """Define loads and stores of vectors that are aligned only to an element."""
    kind = f"{_TYPES[dtype.name]}{lanes}"
    return f"""\
#ifdef INLAID_CPU
typedef {kind} inlaid_{kind} __attribute__((aligned({dtype.bytes})));
#define inlaid_load_{kind}(space, at) (*(space const inlaid_{kind} *)(at))
#define inlaid_store_{kind}(space, at, value) (*(space inlaid_{kind} *)(at) = (value))
#else
#define inlaid_load_{kind}(space, at) vload{lanes}(0, at)
#define inlaid_store_{kind}(space, at, value) vstore{lanes}(value, 0, at)
#endif
"""


def _half(lanes: int) -> str:
    """Define conversions between float32 and the bits of half precision, rounding half to even.

    OpenCL's functions for these conversions access memory, and PoCL does not inline its functions to instructions."""
    number, code = (f"{kind}{lanes or ''}" for kind in ("float", "ushort"))
    wide, pick = (lanes, "") if lanes else (4, ".s0")
    return f"""\
#if defined(INLAID_CPU) && (defined(__F16C__) || defined(__aarch64__))
typedef __fp16 inlaid_half_of_{code} __attribute__((ext_vector_type({wide})));
static {number} inlaid_decode_{code}({code} code) {{
    union {{ ushort{wide} code; inlaid_half_of_{code} half_; }} both;
    both.code = code;
    return __builtin_convertvector(both.half_, float{wide}){pick};
}}
static {code} inlaid_encode_{code}({number} value) {{
    union {{ ushort{wide} code; inlaid_half_of_{code} half_; }} both;
    both.half_ = __builtin_convertvector((float{wide})(value), inlaid_half_of_{code});
    return both.code{pick};
}}
#else
static {number} inlaid_decode_{code}({code} code) {{
    return vload_half{lanes or ""}(0, (const __private half *)&code);
}}
static {code} inlaid_encode_{code}({number} value) {{
    {code} code;
    vstore_half{lanes or ""}_rte(value, 0, (__private half *)&code);
    return code;
}}
#endif
"""


def _helpers() -> dict[str, str]:
    helpers = {}
    for name in _TYPES:
        for lanes in _LANES:
            element = dtype(name)
            for action in ("load", "store"):
                helpers[f"inlaid_{action}_{_TYPES[name]}{lanes}"] = _memory(element, lanes)
    for lanes in (0, *_LANES):
        for action in ("decode", "encode"):
            helpers[f"inlaid_{action}_ushort{lanes or ''}"] = _half(lanes)
    return helpers


_SHUFFLE = f"""\
#pragma OPENCL EXTENSION {SHUFFLE} : enable
#define inlaid_shuffle(value, lane, width) \\
    sub_group_shuffle(value, (get_sub_group_local_id() & ~(width - 1u)) + ((uint)(lane) & (width - 1u)))
"""


class OpenCLDialect:
    """Prints OpenCL C; implements `inlaid.codegen.threads.dialect.ThreadDialect`."""

    name = "OpenCL C"
    prelude = _PRELUDE + "".join(_rounding(name, builtin) for name, builtin in _ROUNDING.items())
    words = frozenset(_WORDS.split()) | frozenset(f"{kind}{lanes}" for kind in _TYPES.values() for lanes in (2, 3, 4, 8, 16))
    lanes: tuple[int, ...] = _LANES
    converted = frozenset(("float16",))
    helpers: Mapping[str, str] = {**_helpers(), "inlaid_shuffle": _SHUFFLE}
    device = "__global"
    shared = "__local"
    emitters: Mapping[str, Emitter] = {}
    dealt: Mapping[str, int] = {}
    static_shared = 1 << 30
    barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)"

    def with_waits(self, program: ir.LoopProgram) -> ir.LoopProgram:
        return program

    def descriptor(self, stmt: ir.Intrinsic) -> str:
        return ""

    def descriptor_parameter(self, name: str) -> str:
        raise NotImplementedError

    def head(self, name: str, threads: tuple[int, int, int] | None) -> str:
        size = "" if threads is None else f" __attribute__((reqd_work_group_size({', '.join(map(str, threads))})))"
        return f"__kernel{size} void {name}"

    def position(self, thread: str) -> str:
        group, axis = thread.split(".")
        return f"{_GROUPS[group]}({'xyz'.index(axis)})"

    def shared_array(self, kind: str, name: str, count: int) -> str:
        return f"__local {kind} {name}[{count}];"

    def vector(self, dtype: DType, lanes: int) -> str:
        return f"{_TYPES[dtype.name]}{lanes or ''}"

    def call(self, function: str, args: Sequence[str], dtype: DType, lanes: int) -> str:
        name = {"round": "rint"}.get(function, function)
        if name in _INLINED:
            return f"inlaid_{name}({', '.join(args)})"
        if not lanes:
            return f"{name}{'f' * (name in ('sqrt', 'fmod') and dtype.bits == 32)}({', '.join(args)})"
        # PoCL may call functions compiled for another processor, whose calling convention for wide vectors differs.
        return self.elements(
            [self.call(name, [self.lane(arg, lane, lanes) for arg in args], dtype, 0) for lane in range(lanes)], dtype
        )

    def any(self, mask: str, lanes: int) -> str:
        word, _ = _MASK_WORDS[min(lanes, 8)]
        halves = f"(as_ulong2({mask}).s0 | as_ulong2({mask}).s1)"
        return f"{halves if lanes == 16 else f'as_{word}({mask})'} != 0"

    def all(self, mask: str, lanes: int) -> str:
        word, word_max = _MASK_WORDS[min(lanes, 8)]
        halves = f"(as_ulong2({mask}).s0 & as_ulong2({mask}).s1)"
        return f"{halves if lanes == 16 else f'as_{word}({mask})'} == {word_max}"

    def splat(self, value: str, dtype: DType, lanes: int) -> str:
        return f"({self.vector(dtype, lanes)})({value})"

    def elements(self, values: Sequence[str], dtype: DType) -> str:
        return f"({self.vector(dtype, len(values))})({', '.join(values)})"

    def lane(self, value: str, number: int, lanes: int) -> str:
        return f"{value}.s{number:x}"

    def choose(self, mask: str, a: str, b: str) -> str:
        return f"{mask} ? {a} : {b}"

    def convert(self, value: str, source: DType, to: DType, lanes: int) -> str:
        return f"inlaid_convert({self.vector(to, lanes)}, {value})"

    def decode(self, code: str, dtype: DType, lanes: int) -> str:
        return f"inlaid_decode_ushort{lanes or ''}({code})"

    def encode(self, value: str, dtype: DType, lanes: int) -> str:
        return f"inlaid_encode_ushort{lanes or ''}({value})"

    def reinterpret(self, value: str, to: DType, lanes: int) -> str:
        return f"as_{self.vector(to, lanes)}({value})"

    def shuffle(self, value: str, lane: str, width: int) -> str:
        return f"inlaid_shuffle({value}, {lane}, {width})"

    def load(self, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
        return f"inlaid_load_{self.vector(dtype, lanes)}({space}, {pointer})"

    def store(self, value: str, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
        return f"inlaid_store_{self.vector(dtype, lanes)}({space}, {pointer}, {value})"


DIALECT = OpenCLDialect()
