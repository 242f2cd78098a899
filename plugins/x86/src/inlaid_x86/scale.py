"""Emitter of VSCALEFPS and VSCALEFPD: x * 2 ** n, the last step of an exponential, in one instruction instead of eight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inlaid.tensor.math.floats import FLOAT32, FLOAT64
from inlaid_x86.llvm.function import FunctionPrinter, mangle
from inlaid_x86.llvm.intrinsics import MathEmitter
from inlaid_x86.llvm.values import Value, literal, splat, vector_type

_TO_NEAREST = 4
"""Value of the rounding operand that selects the current mode in MXCSR."""


@dataclass(frozen=True)
class _Scale:
    """Emitter of `scalb` with AVX-512."""

    def __call__(self, p: FunctionPrinter, args: tuple[Value, ...]) -> Value:
        x, n = args
        bits = (32 if x.scalar == "float" else 64) * x.lanes
        if bits not in (128, 256, 512):
            return self._by_integer(p, x, n)
        # LLVM's generic intrinsic (ldexp) takes integer exponents, which would need a conversion.
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if x.scalar == 'float' else 'pd'}.{bits}"
        mask = f"i{max(x.lanes, 8)}"
        wide = bits == 512
        p.declarations[name] = f"declare {x.type} @{name}({x.type}, {x.type}, {x.type}, {mask}{', i32' if wide else ''})"
        trailing_arguments = f"{x.type} poison, {mask} -1{f', i32 {_TO_NEAREST}' if wide else ''}"
        return p.op(f"call {x.type} @{name}({x}, {n}, {trailing_arguments})", x.scalar, x.lanes)

    def _by_integer(self, p: FunctionPrinter, x: Value, n: Value) -> Value:
        form = FLOAT32 if x.scalar == "float" else FLOAT64
        lanes, int_type = x.lanes, f"i{form.dtype.bits}"
        magic_sum = p.op(f"fadd {n}, {splat(literal(form.magic, form.dtype), x.scalar, lanes)}", x.scalar, lanes)
        bits = p.op(f"bitcast {magic_sum} to {vector_type(int_type, lanes)}", int_type, lanes)
        count = p.op(f"sub {bits}, {splat(str(form.magic_bits), int_type, lanes)}", int_type, lanes)
        if form is FLOAT64:
            count = p.op(f"trunc {count} to {vector_type('i32', lanes)}", "i32", lanes)
        name = f"llvm.ldexp.{mangle(x.scalar, lanes)}.{mangle('i32', lanes)}"
        p.declarations[name] = f"declare {x.type} @{name}({x.type}, {count.type})"
        return p.op(f"call {x.type} @{name}({x}, {count})", x.scalar, lanes)


def math_emitters(present: Sequence[str]) -> Mapping[str, MathEmitter]:
    """Return the emitters of mathematical functions that a processor with these features implements, keyed by function name."""
    return {"scalb": _Scale()} if {"avx512f", "avx512vl"} <= set(present) else {}
