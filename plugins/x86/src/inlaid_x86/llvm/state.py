"""What the printers of a kernel share: the function that is printed, and what is known at the current place in it."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.llvm.access import AccessGuard
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.indices import IndexPrinter
from inlaid_x86.llvm.values import Value


class PrinterState:
    """State of printing a kernel.

    p, index: printers of the current function. pointers: base address of each buffer. In a vectorized loop, lane is the loop
    variable, lanes the extent, mask the active lanes (None: all), and private the buffers with a copy per lane. versions count
    stores to each buffer and epoch counts backward jumps; a loaded value stays valid until a count changes. guard: printer of
    bounds checks, None if checks are off.
    """

    index: IndexPrinter

    def __init__(self, name: str, declarations: dict[str, str]) -> None:
        self.name = name
        self.declarations = declarations
        self.p = FunctionPrinter(declarations)
        self.pointers: dict[ir.Buffer, str] = {}
        self.lane: arith.Expr | None = None
        self.lanes = 0
        self.mask: Value | None = None
        self.private: set[ir.Buffer] = set()
        self.versions: dict[ir.Buffer, int] = {}
        self.epoch = 0
        self.guard: AccessGuard | None = None
