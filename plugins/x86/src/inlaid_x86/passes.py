"""Passes that legalize kernels for the printer of LLVM text, in order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from inlaid.passes.manager import UnitPass
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.math import expand_program
from inlaid.tensor.transform.legalize import legalize
from inlaid_x86.conversions import expand_conversions
from inlaid_x86.fork import serialize_short_loops
from inlaid_x86.llvm.intrinsics import MathEmitter
from inlaid_x86.llvm.values import CONVERTED, FLUSHED, NATIVE
from inlaid_x86.lookup import table_emitters
from inlaid_x86.remainder import remainder_emitters
from inlaid_x86.scale import math_emitters
from inlaid_x86_runtime.cpu import features, vector_bits
from inlaid_x86_runtime.instruction_sets import extensions
from inlaid_x86_runtime.options import X86Options


def kernel_passes(options: X86Options) -> tuple[UnitPass[LoopProgram], ...]:
    """List the passes for a processor."""
    available = features(options)
    converted, flushed = (
        frozenset(name for name, feature in requirements.items() if feature in available) for requirements in (CONVERTED, FLUSHED)
    )
    level = base_features(options)
    return (
        UnitPass("expand_math", partial(expand_program, keep=frozenset(math_functions(options)))),
        UnitPass("legalize", partial(legalize, native=NATIVE, converted=converted, flushed=flushed)),
        UnitPass("expand_conversions", partial(expand_conversions, present=level)),
        UnitPass("serialize_short_loops", partial(serialize_short_loops, width=vector_bits(options))),
    )


def math_functions(options: X86Options) -> Mapping[str, MathEmitter]:
    """Return the emitters of the mathematical functions that the printer emits itself."""
    available = features(options)
    remainders = remainder_emitters(available, vector_bits(options))
    return {**math_emitters(available), **table_emitters(available), **remainders, "flush": lambda p, args: args[0]}


def base_features(options: X86Options) -> tuple[str, ...]:
    """Return the CPU features that all kernels may use."""
    available = features(options)
    return tuple(name for name in available if name not in extensions(available))
