"""Tensor intrinsics: which a processor has, what they cost, and the C that they are printed as.

Processors with Arm's DSP extension multiply two pairs of 16-bit numbers at once (SMLAD), to which SXTB16 extends every second byte
of a word, and SMMLAR adds to the upper half of a product, rounded. MVE multiplies 16 pairs of bytes and adds them up (VMLADAVA),
and multiplies or requantises four sums at once. Everywhere else the same functions are plain C, so that code for such processors
compiles for any.

`products` and `results` have the functions, each for plain C and DSP; `mve` what they hold for MVE; `arithmetic` what they call;
`printed` is what such a function is; `exactness` says which kernels need those for numbers of any size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from inlaid import arith
from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Range
from inlaid.tensor.primitives import TensorIntrin
from inlaid_microcontroller.counts import Cost
from inlaid_microcontroller.intrinsics import arithmetic
from inlaid_microcontroller.intrinsics.exactness import is_exact, used_in
from inlaid_microcontroller.intrinsics.mve import FIXED, copy_lines
from inlaid_microcontroller.intrinsics.printed import GROUP, VECTOR, Printed, lines_of
from inlaid_microcontroller.intrinsics.products import products
from inlaid_microcontroller.intrinsics.results import results
from inlaid_microcontroller.options import Cpu
from inlaid_microcontroller.schedules.rows import COPY
from inlaid_microcontroller.schedules.vector_depthwise import WindowSums, window_sums
from inlaid_microcontroller.unit import PREFIX

CALLED = 64
"""Bytes from which on compilers call a function to copy them."""
FUNCTION = re.compile(rf"\w+ ({PREFIX}\w+)\(")
"""The head of a function, with its name."""
_DSP = "defined(__ARM_FEATURE_SIMD32) && defined(__ARM_FEATURE_UNALIGNED) && !defined(__ARM_BIG_ENDIAN)"
"""Where functions of DSP are compiled: they read words from any address, whose first byte is the lowest. `__ARM_FEATURE_DSP` alone
is said of processors as well that have no pairs of 16-bit numbers."""


def _printed(exact: bool) -> Iterator[Printed]:
    yield from products()
    yield _vector_copy()
    yield from results(exact)


def intrinsics(cpu: Cpu) -> tuple[TensorIntrin, ...]:
    """The intrinsics that kernels for a processor are made of: those of vectors only where it has some. Windows have more."""
    found = (printed for printed in _printed(False) if _suits(printed, cpu))
    return (COPY, *(TensorIntrin(printed.name, printed.semantics) for printed in found if printed.semantics is not None))


def _suits(printed: Printed, cpu: Cpu) -> bool:
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
    printed = {each.name: each for each in _printed(is_exact(kernel, known))}
    windows = [window for stmt in used_in(kernel) if (window := window_sums(stmt.name)) is not None]
    copy = _print_vector_copy if cpu.mve else _print_copy
    return {COPY.name: copy, **printed, **{window.name: _told(printed[window.function], window) for window in windows}}


def _told(printed: Printed, window: WindowSums) -> Emitter:
    """A function of windows, called with the distances of one."""
    told = (window.rows, window.columns, window.row, window.channels)
    return lambda places, args: printed(places, (*map(str, told), *args))


def _print_copy(places: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
    source, target = places
    (_, size), *_ = source.region.ranges
    return [f"memcpy({target.pointer}, {source.pointer}, {size!r});"]


def _print_vector_copy(places: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
    """Compilers copy short runs of known sizes without a call."""
    (_, size), *_ = places[0].region.ranges
    short = isinstance(size, arith.Const) and size.value < CALLED
    return (
        _print_copy(places, args)
        if short
        else [line.replace("memcpy", f"{PREFIX}vector_copy") for line in _print_copy(places, args)]
    )


def _vector_copy() -> Printed:
    """A run of bytes."""
    head = f"INLAID_INLINE void {PREFIX}vector_copy(int8_t *target, const int8_t *source, int32_t size) {{"
    plain = [head, "    memcpy(target, source, (size_t)size);"]
    return Printed("vector_copy", None, lines_of(plain), mve=lines_of([head, *copy_lines()]), vector=True)


@cache
def function_names() -> frozenset[str]:
    """What `support` may call functions, without the prefix."""
    printed = (each for exact in (False, True) for each in _printed(exact))
    texts = [FIXED, arithmetic.UP, arithmetic.AWAY, *(f"{each.plain}{each.dsp}{each.mve}" for each in printed)]
    return frozenset(re.findall(rf"\b{PREFIX}(\w+)\(", "".join(texts)))


def support(cpu: Cpu, text: str) -> tuple[str, tuple[str, ...]]:
    """The functions that printed kernels call, and the headers that these and the kernels include."""
    used = [printed for exact in (False, True) for printed in _printed(exact) if f"{printed.function}(" in text]
    used = list({printed.function: printed for printed in used}.values())
    made = [_text(cpu, printed, "plain") for printed in used if not printed.dsp]
    made = [*_called((arithmetic.HALF, arithmetic.UP, arithmetic.AWAY, arithmetic.EXACT_UP, arithmetic.EXACT_AWAY), made), *made]
    plain, dsp = ([_text(cpu, printed, name) for printed in used if printed.dsp] for name in ("plain", "dsp"))
    plain = [*_called((arithmetic.PLAIN_UPPER, arithmetic.PLAIN_WITHIN), made), *plain]
    dsp = [*_called((arithmetic.ODD, arithmetic.WORD), dsp), *_called((arithmetic.DSP_UPPER, arithmetic.DSP_WITHIN), made), *dsp]
    parts = [arithmetic.INLINE] if used else []
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


def _text(cpu: Cpu, printed: Printed, name: str) -> str:
    """A function: for MVE where the processor and then the compiler has it, or else the one of that name."""
    text = str(getattr(printed, name))
    return f"#if defined(__ARM_FEATURE_MVE)\n{printed.mve}#else\n{text}#endif\n" if cpu.mve and printed.mve else text
