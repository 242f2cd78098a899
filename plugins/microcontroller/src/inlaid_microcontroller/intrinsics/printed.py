"""An intrinsic in C: its function definition, and the calls in kernels."""

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
"""Name part, after the prefix, of functions for sums and shifts of any size."""


@dataclass(frozen=True)
class Printed:
    """An intrinsic printed as a call of a function with its name, on the addresses of its regions and its arguments.

    plain, dsp, mve: the function in portable C, and for DSP and MVE if these differ. exact: the version for sums and shifts of any
    size. vector: only for processors with MVE; scalar: only for those without. extra_argument: computes one more argument from the
    second region. semantics None: the function serves several intrinsics, whose emitters add arguments."""

    name: str
    semantics: ir.LoopProgram | None
    plain: str
    dsp: str = ""
    exact: bool = False
    mve: str = ""
    vector: bool = False
    extra_argument: Callable[[ir.Region], object] | None = None
    scalar: bool = False

    @property
    def function(self) -> str:
        return f"{PREFIX}{EXACT if self.exact else ''}{self.name}"

    def __call__(self, places: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
        extra = [] if self.extra_argument is None else [repr(self.extra_argument(places[1].region))]
        return [f"{self.function}({', '.join((*(place.pointer for place in places), *extra, *args))});"]


def added(total: str, products: str) -> str:
    """Return the statement that adds products to a sum with wrap-around, since the sum may start at any value."""
    return f"    {total} = (int32_t)((uint32_t){total} + (uint32_t)({products}));"


def lines_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (*lines, "}"))
