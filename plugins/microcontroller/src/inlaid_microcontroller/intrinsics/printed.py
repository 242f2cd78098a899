"""Class of an intrinsic in C, which has a function definition and prints calls in kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inlaid.codegen.c_statements import RegionPointer
from inlaid.tensor import ir
from inlaid_microcontroller.unit import PREFIX

GROUP = 4
"""Bytes of a word."""
VECTOR = 16
"""Bytes of an MVE vector."""
EXACT = "exact_"
"""Part of a name, after the prefix, of functions that accept sums and shifts of any size."""


@dataclass(frozen=True)
class Printed:
    """An intrinsic printed as a call of a C function of the same name. Arguments of the call are the addresses of the regions, then
    the arguments of the intrinsic.

    plain: the function in portable C. dsp, mve: versions for DSP and MVE, "" if the same. exact: the function accepts sums and
    shifts of any size. vector: only for processors with MVE. scalar: only for processors without MVE. extra_argument: computes an
    argument from the second region. semantics: None if several intrinsics, whose emitters add arguments, share the function."""

    name: str
    semantics: ir.LoopProgram | None
    plain: str
    dsp: str = ""
    exact: bool = False
    mve: str = ""
    vector: bool = False
    extra_argument: Callable[[ir.BufferRegion], object] | None = None
    scalar: bool = False

    @property
    def function(self) -> str:
        return f"{PREFIX}{EXACT if self.exact else ''}{self.name}"

    def __call__(self, pointers: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
        extra = [] if self.extra_argument is None else [repr(self.extra_argument(pointers[1].region))]
        return [f"{self.function}({', '.join((*(pointer.pointer for pointer in pointers), *extra, *args))});"]


def added(total: str, products: str) -> str:
    """Return the statement that adds products to a sum with wrap-around, since the sum may start at any value."""
    return f"    {total} = (int32_t)((uint32_t){total} + (uint32_t)({products}));"


def indent_lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (*lines, "}"))
