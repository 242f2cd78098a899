"""Tensor intrinsics in LLVM text: what a target's emitters are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from inlay.tensor import ir
from inlay_x86.llvm.function import FunctionPrinter
from inlay_x86.llvm.values import Value, vector_type

if TYPE_CHECKING:
    from inlay_x86.llvm.expressions import ExpressionPrinter


class Place:
    """A region that an intrinsic works on, one run of memory or of registers. What is loaded from it is loaded again only after a
    store to its buffer."""

    def __init__(self, printer: ExpressionPrinter, region: ir.Region) -> None:
        self._printer = printer
        self._buffer = region.buffer
        self._flat = printer._flat(region.buffer, tuple(first for first, _ in region.ranges))

    def load(self, scalar: str, lanes: int = 0) -> Value:
        """The region's bytes as a scalar or vector of an LLVM type."""
        printer, p = self._printer, self._printer.p
        kind = vector_type(scalar, lanes)
        key = ("place", self._flat, kind, self._buffer, printer.versions.get(self._buffer, 0), printer.epoch)
        known: Value | None = p.recall(key)
        if known is not None:
            return known
        address = printer._address(self._buffer, self._flat)
        value = p.op(f"load {kind}, ptr {address}, align {self._buffer.dtype.bytes}", scalar, lanes)
        return p.remember(key, value, lasting=printer.index.lasts(self._flat))

    def store(self, value: Value) -> None:
        """Put a value where the region begins."""
        printer = self._printer
        address = printer._address(self._buffer, self._flat)
        printer.p.emit(f"store {value}, ptr {address}, align {self._buffer.dtype.bytes}")
        printer.versions[self._buffer] = printer.versions.get(self._buffer, 0) + 1


Emitter = Callable[[FunctionPrinter, tuple[Place, ...]], None]
"""Prints an intrinsic on regions, in the order of the parameters of its semantics."""
