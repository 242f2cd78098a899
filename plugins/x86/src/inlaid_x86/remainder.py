"""Remainders of floats (C's `fmod`) by vectors, through functions that the linker adds to the code.

LLVM has no vector form of `frem`: it calls the C library for each lane, and does not vectorize loops that contain it. The printer
instead calls `fmod` with vector variants, which LLVM takes for loops that it vectorizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.helpers import REMAINDERS, remainder_name
from inlaid_x86.llvm.intrinsics import MathEmitter
from inlaid_x86.llvm.values import Value, vector_type


def remainder_emitters(present: Collection[str], width: int) -> Mapping[str, MathEmitter]:
    """Return the emitter of `fmod`, by that name, for vectors of at most `width` bits; none on processors without fused
    multiply-add, by which vectors compute remainders exactly."""
    return {"fmod": _Remainder(width)} if "fma" in present else {}


class _Remainder:
    """Emitter of a remainder of scalars or vectors."""

    def __init__(self, width: int) -> None:
        self._lanes = {
            scalar: [bits // size for bits in (128, 256, 512) if bits <= width] for scalar, size in (("float", 32), ("double", 64))
        }

    def __call__(self, p: FunctionPrinter, operands: tuple[Value, ...]) -> Value:
        x, y = operands
        if x.lanes and x.lanes not in self._lanes[x.scalar]:
            return p.op(f"frem {x}, {y.ref}", x.scalar, x.lanes)
        p.declarations["fmod"] = self._declarations()
        name = remainder_name(x.scalar, x.lanes)
        return p.op(f"call {x.type} @{name}({x}, {y}) {self._facts(x)}", x.scalar, x.lanes)

    def _facts(self, x: Value) -> str:
        """Return attributes of a call. Those of a scalar name its vector variants."""
        pure = "nounwind willreturn memory(none)"
        if x.lanes:
            return pure
        name = remainder_name(x.scalar, 0)
        variants = (f"_ZGV_LLVM_N{lanes}vv_{name}({remainder_name(x.scalar, lanes)})" for lanes in self._lanes[x.scalar])
        return f'{pure} "vector-function-abi-variant"="{",".join(variants)}"'

    def _declarations(self) -> str:
        """Declare all functions, and keep LLVM from dropping the variants before it vectorizes."""
        functions, variants = [], []
        for scalar in REMAINDERS:
            for lanes in (0, *self._lanes[scalar]):
                name, kind = remainder_name(scalar, lanes), vector_type(scalar, lanes)
                functions.append(f"declare hidden {kind} @{name}({kind}, {kind})")
                variants += [f"ptr @{name}"] if lanes else []
        kept = f"@llvm.compiler.used = appending global [{len(variants)} x ptr] [{', '.join(variants)}]"
        return "\n".join([*functions, f'{kept}, section "llvm.metadata"'])
