"""Interface of a target's emitters of tensor intrinsics in LLVM text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.values import Value, scalar_bits, vector_type

if TYPE_CHECKING:
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid_runtime.types import MemoryScope
    from inlaid_x86.llvm.expressions import ExpressionPrinter


class Operand:
    """An operand of an intrinsic: a region of memory, or a register of a memory scope. A loaded value is reused until a store to
    the buffer."""

    def __init__(self, printer: ExpressionPrinter, region: ir.BufferRegion, register: int | None = None) -> None:
        self._printer = printer
        self._buffer = region.buffer
        self._register = register
        self._flat = printer.positions.flat(region.buffer, tuple(first for first, _ in region.ranges))
        self._region = region

    def load(self, scalar: str, lanes: int = 0) -> Value:
        """Load the region's bytes as a scalar or vector of an LLVM type."""
        printer, p = self._printer, self._printer.p
        kind = vector_type(scalar, lanes)
        key = ("place", *self._flat, kind, self._buffer, printer.versions.get(self._buffer, 0), printer.epoch)
        cached: Value | None = p.recall(key)
        if cached is not None:
            return cached
        printer.memory.inside(self._buffer, self._flat, _count(scalar, lanes, self._buffer))
        address = printer.memory.address(self._buffer, self._flat)
        value = p.op(f"load {kind}, ptr {address}, align {self._buffer.dtype.bytes}", scalar, lanes)
        return p.remember(key, value, lasting=printer.index.lasts(self._flat[0]))

    def store(self, value: Value) -> None:
        """Store a value to the start of the region."""
        self._printer.memory.inside(self._buffer, self._flat, _count(value.scalar, value.lanes, self._buffer))
        self._printer.p.emit(f"store {value}, ptr {self._begin()}, align {self._buffer.dtype.bytes}")
        self.changed()

    def address(self) -> str:
        """Print the bounds check of the whole region and return its start address."""
        if self._printer.guard is not None:
            last = self._printer.positions.flat(self._buffer, tuple(first + extent - 1 for first, extent in self._region.ranges))
            for flat in (self._flat, last):
                self._printer.memory.inside(self._buffer, flat)
        return self._begin()

    def _begin(self) -> str:
        return self._printer.memory.address(self._buffer, self._flat)

    def pitch(self, axis: int) -> int:
        """Return the stride in bytes of a buffer axis, given as a negative number."""
        dims = [dim for dim in self._buffer.shape[len(self._buffer.shape) + axis + 1 :] if isinstance(dim, int)]
        assert len(dims) == -axis - 1, f"{self._buffer} has no known pitch along axis {axis}"
        return math.prod(dims) * self._buffer.dtype.bytes

    def changed(self) -> None:
        """Mark the region as written, which invalidates loaded values."""
        versions = self._printer.versions
        versions[self._buffer] = versions.get(self._buffer, 0) + 1

    @property
    def register(self) -> int:
        """The register number of a region in a register scope."""
        assert self._register is not None, f"{self._buffer} is in memory"
        return self._register


def _count(scalar: str, lanes: int, buffer: ir.Buffer) -> int:
    """Return the number of buffer elements in a value of an LLVM type."""
    return -(-scalar_bits(scalar) * max(lanes, 1) // (8 * buffer.dtype.bytes))


class RegisterFile(Protocol):
    """Registers of a memory scope. A function with buffers in the scope opens them first and closes them last."""

    scope: MemoryScope

    def open(self, p: FunctionPrinter, buffers: Mapping[int, ir.Buffer], count: Callable[[arith.Expr], Value]) -> None:
        """Print code that opens the registers at the start of a function. buffers: the buffer in each register, by number. count:
        prints an extent."""

    def close(self, p: FunctionPrinter) -> None:
        """Print code that closes the registers at the end of a function."""


MathEmitter = Callable[[FunctionPrinter, tuple[Value, ...]], Value]
"""Emitter of a mathematical function on values of equal type."""
Emitter = Callable[[FunctionPrinter, tuple[Operand, ...]], None]
"""Emitter of an intrinsic on regions, in the order of the parameters of its semantics."""


@dataclass(frozen=True)
class Instruction:
    """A tensor intrinsic and its emitter. extensions: features beyond the target's level, for kernels that use it."""

    intrinsic: TensorIntrin
    emitter: Emitter
    extensions: tuple[str, ...] = ()
