"""Tensor intrinsics of a processor, their costs, and the C functions that implement them.

With Arm's DSP extension, SMLAD multiplies two pairs of 16-bit numbers, SXTB16 extends every second byte of a word to 16 bits, and
SMMLAR adds a number to the rounded upper half of a product. With MVE, VMLADAVA sums the products of 16 pairs of bytes, and other
instructions multiply or requantize four sums at once. On other processors the functions are compiled from plain C, so generated
code is portable.

`products` and `results` contain the functions for plain C and DSP, `mve` their bodies for MVE, `arithmetic` the functions that they
call. `printed` defines the class of a printed function. `exactness` decides which kernels need the exact versions, which accept any
operand range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Range
from inlaid.tensor.primitives import TensorIntrin
from inlaid_microcontroller.counts import Cost
from inlaid_microcontroller.intrinsics import arithmetic
from inlaid_microcontroller.intrinsics.exactness import is_exact, list_intrinsics
from inlaid_microcontroller.intrinsics.mve import FIXED, copy_lines
from inlaid_microcontroller.intrinsics.printed import GROUP, VECTOR, Printed, indent_lines
from inlaid_microcontroller.intrinsics.products import products
from inlaid_microcontroller.intrinsics.results import results
from inlaid_microcontroller.options import Cpu
from inlaid_microcontroller.schedules.rows import COPY
from inlaid_microcontroller.schedules.vector_depthwise import WindowSums, window_sums
from inlaid_microcontroller.unit import PREFIX
from inlaid_runtime import arith

CALLED = 64
"""Minimum bytes of a copy for which compilers call memcpy instead of inlining it."""
FUNCTION = re.compile(rf"\w+ ({PREFIX}\w+)\(")
"""Pattern of a function header; group 1 is the name."""
_DSP = "defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)"
"""Preprocessor condition for the DSP functions, which read unaligned little-endian words. `__ARM_FEATURE_DSP` is not sufficient,
since compilers also define it for processors without 16-bit SIMD."""


@cache
def _printed(exact: bool) -> Mapping[str, Printed]:
    """Return all printed intrinsics by name, created once: schedules and code generators need them for every kernel."""
    return {printed.name: printed for printed in (*products(), _vector_copy(), *results(exact))}


@cache
def intrinsics(cpu: Cpu) -> tuple[TensorIntrin, ...]:
    """Return the intrinsics of a processor; vector intrinsics only if it has MVE. `WindowSums` creates window intrinsics on
    demand."""
    supported = (printed for printed in _printed(False).values() if _suits(printed, cpu))
    return (COPY, *(TensorIntrin(printed.name, printed.semantics) for printed in supported if printed.semantics is not None))


def _suits(printed: Printed, cpu: Cpu) -> bool:
    if cpu.mve:
        return not printed.scalar
    return not printed.vector and (cpu.dsp or not (printed.scalar and printed.dsp))


@cache
def costs(cpu: Cpu) -> Callable[[str], Cost]:
    """Return a function that maps the name of an intrinsic to its cost on a processor."""
    printed = _printed(False)

    def cost(name: str) -> Cost:
        if name == COPY.name:
            return Cost(COPY.semantics, GROUP, GROUP)
        if (window := window_sums(name)) is not None:
            return Cost(window.intrinsic().semantics, *((VECTOR // 2,) * 2 if cpu.mve else ()))
        intrinsic = printed[name]
        assert intrinsic.semantics is not None
        if cpu.mve and intrinsic.mve:
            return Cost(intrinsic.semantics, VECTOR, VECTOR)
        return Cost(intrinsic.semantics, GROUP if cpu.dsp and intrinsic.dsp else 1)

    return cost


def emitters(kernel: ir.LoopProgram, param_ranges: Mapping[int, Range], cpu: Cpu) -> Mapping[str, Emitter]:
    """Return the emitters of a kernel's intrinsics for a processor, keyed by name. param_ranges: value ranges of parameters, by
    number."""
    printed = _printed(is_exact(kernel, param_ranges))
    windows = [window for stmt in list_intrinsics(kernel) if (window := window_sums(stmt.name)) is not None]
    copy = _print_vector_copy if cpu.mve else _print_copy
    return {COPY.name: copy, **printed, **{window.name: _with_strides(printed[window.function], window) for window in windows}}


def _with_strides(printed: Printed, window: WindowSums) -> Emitter:
    """Create an emitter that adds the sizes and strides of a window as arguments to the call of the window function."""
    strides = (window.rows, window.columns, window.row, window.channels)
    return lambda places, args: printed(places, (*map(str, strides), *args))


def _print_copy(places: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
    source, target = places
    (_, size), *_ = source.region.ranges
    return [f"memcpy({target.pointer}, {source.pointer}, {size!r});"]


def _print_vector_copy(places: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
    """Print a copy: memcpy for short constant sizes, which compilers inline, else a loop over vectors."""
    (_, size), *_ = places[0].region.ranges
    short = isinstance(size, arith.Const) and size.value < CALLED
    return (
        _print_copy(places, args)
        if short
        else [line.replace("memcpy", f"{PREFIX}vector_copy") for line in _print_copy(places, args)]
    )


def _vector_copy() -> Printed:
    """Define the function that copies a run of bytes."""
    head = f"INLAID_INLINE void {PREFIX}vector_copy(int8_t *target, const int8_t *source, int32_t size) {{"
    plain = [head, "    memcpy(target, source, (size_t)size);"]
    return Printed("vector_copy", None, indent_lines(plain), mve=indent_lines([head, *copy_lines()]), vector=True)


@cache
def function_names() -> frozenset[str]:
    """Return the names of the functions that `support` may define, without the prefix."""
    printed = (each for exact in (False, True) for each in _printed(exact).values())
    texts = [FIXED, arithmetic.UP, arithmetic.AWAY, *(f"{each.plain}{each.dsp}{each.mve}" for each in printed)]
    return frozenset(re.findall(rf"\b{PREFIX}(\w+)\(", "".join(texts)))


def support(cpu: Cpu, text: str) -> tuple[str, tuple[str, ...]]:
    """Return the C text of the functions that kernels in `text` call, and the headers that kernels and functions include."""
    called = [printed for exact in (False, True) for printed in _printed(exact).values() if f"{printed.function}(" in text]
    called = list({printed.function: printed for printed in called}.values())
    helpers = [_text(cpu, printed, "plain") for printed in called if not printed.dsp]
    helpers = [
        *_called((arithmetic.HALF, arithmetic.UP, arithmetic.AWAY, arithmetic.EXACT_UP, arithmetic.EXACT_AWAY), helpers),
        *helpers,
    ]
    plain, dsp = ([_text(cpu, printed, name) for printed in called if printed.dsp] for name in ("plain", "dsp"))
    plain = [*_called((arithmetic.PLAIN_UPPER, arithmetic.PLAIN_WITHIN), helpers), *plain]
    dsp = [*_called((arithmetic.ODD, arithmetic.WORD), dsp), *_called((arithmetic.DSP_UPPER, arithmetic.DSP_WITHIN), helpers), *dsp]
    parts = [arithmetic.INLINE] if called else []
    if cpu.mve and any(printed.mve for printed in called):
        parts.append("#if defined(__ARM_FEATURE_MVE)\n#include <arm_mve.h>\n" + FIXED + "#endif\n")
    if cpu.dsp and dsp:
        parts += [f"#if {_DSP}\n#include <arm_acle.h>\n", *dsp, "#else\n", *plain, "#endif\n"]
    else:
        parts += plain
    functions = "".join((*parts, *helpers))
    return functions, ("string.h",) if any("memcpy(" in each for each in (functions, text)) else ()


def _called(functions: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Select the functions that are called in any of the texts."""
    return [each for each in functions if any(f"{FUNCTION.findall(each)[0]}(" in text for text in texts)]


def _text(cpu: Cpu, printed: Printed, name: str) -> str:
    """Return the text of a function, with a conditional body for MVE if the processor has it."""
    text = str(getattr(printed, name))
    return f"#if defined(__ARM_FEATURE_MVE)\n{printed.mve}#else\n{text}#endif\n" if cpu.mve and printed.mve else text
