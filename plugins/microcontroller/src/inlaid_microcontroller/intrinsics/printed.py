"""An intrinsic as C: the function that stands in front of the kernels, and how it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inlaid.codegen.c_statements import RegionPointer
from inlaid.tensor import ir
from inlaid_microcontroller.unit import PREFIX

GROUP = 4
"""Bytes of a word, which are read at once."""
VECTOR = 16
"""Bytes of a vector of MVE."""
EXACT = "exact_"
"""What the names of functions begin with, after the prefix, that take sums and shifts of any size."""


@dataclass(frozen=True)
class Printed:
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

    def __call__(self, places: Sequence[RegionPointer], args: Sequence[str]) -> list[str]:
        told = [] if self.tells is None else [repr(self.tells(places[1].region))]
        return [f"{self.function}({', '.join((*(place.pointer for place in places), *told, *args))});"]


def added(total: str, products: str) -> str:
    """Add to a sum, which may have begun with any number: it wraps."""
    return f"    {total} = (int32_t)((uint32_t){total} + (uint32_t)({products}));"


def lines_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in (*lines, "}"))
