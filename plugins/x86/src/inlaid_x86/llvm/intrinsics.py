"""Tensor intrinsics in LLVM text: what a target's emitters are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from inlaid import arith
from inlaid.tensor import ir
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.values import Value, vector_type

if TYPE_CHECKING:
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.types import MemoryScope
    from inlaid_x86.llvm.expressions import ExpressionPrinter


class Place:
    """A region that an intrinsic works on: of memory, or a register of a memory scope. What is loaded from it is loaded again only
    after a store to its buffer."""

    def __init__(self, printer: ExpressionPrinter, region: ir.Region, register: int | None = None) -> None:
        self._printer = printer
        self._buffer = region.buffer
        self._register = register
        self._flat = printer._flat(region.buffer, tuple(first for first, _ in region.ranges))
        self._last = printer._flat(region.buffer, tuple(first + extent - 1 for first, extent in region.ranges))

    def load(self, scalar: str, lanes: int = 0) -> Value:
        """The region's bytes as a scalar or vector of an LLVM type."""
        printer, p = self._printer, self._printer.p
        kind = vector_type(scalar, lanes)
        key = ("place", self._flat, kind, self._buffer, printer.versions.get(self._buffer, 0), printer.epoch)
        known: Value | None = p.recall(key)
        if known is not None:
            return known
        printer._inside(self._buffer, self._flat, _count(scalar, lanes, self._buffer))
        address = printer._address(self._buffer, self._flat)
        value = p.op(f"load {kind}, ptr {address}, align {self._buffer.dtype.bytes}", scalar, lanes)
        return p.remember(key, value, lasting=printer.index.lasts(self._flat))

    def store(self, value: Value) -> None:
        """Put a value where the region begins."""
        self._printer._inside(self._buffer, self._flat, _count(value.scalar, value.lanes, self._buffer))
        self._printer.p.emit(f"store {value}, ptr {self._begin()}, align {self._buffer.dtype.bytes}")
        self.changed()

    def address(self) -> str:
        """Where the region begins, all of which is accessed."""
        for flat in (self._flat, self._last):
            self._printer._inside(self._buffer, flat)
        return self._begin()

    def _begin(self) -> str:
        return self._printer._address(self._buffer, self._flat)

    def pitch(self, axis: int) -> int:
        """Bytes from one index of an axis of the buffer, a negative number, to the next."""
        dims = [dim for dim in self._buffer.shape[len(self._buffer.shape) + axis + 1 :] if isinstance(dim, int)]
        assert len(dims) == -axis - 1, f"{self._buffer} has no known pitch along axis {axis}"
        return math.prod(dims) * self._buffer.dtype.bytes

    def changed(self) -> None:
        """Tell that the region has been written, so that what was loaded from it holds no longer."""
        versions = self._printer.versions
        versions[self._buffer] = versions.get(self._buffer, 0) + 1

    @property
    def register(self) -> int:
        """The register that the region is all of."""
        assert self._register is not None, f"{self._buffer} lies in memory"
        return self._register


def _count(scalar: str, lanes: int, buffer: ir.Buffer) -> int:
    """How many elements of a buffer a value of an LLVM type takes."""
    bits = {"float": 32, "double": 64, "bfloat": 16, "half": 16}.get(scalar) or int(scalar[1:])
    return -(-bits * max(lanes, 1) // (8 * buffer.dtype.bytes))


class RegisterFile(Protocol):
    """The registers of a memory scope, which functions that have buffers there open and close."""

    scope: MemoryScope

    def open(self, p: FunctionPrinter, buffers: Mapping[int, ir.Buffer], count: Callable[[arith.Expr], Value]) -> None:
        """Called where a function begins: a buffer for each register that it uses; `count` prints a symbolic extent."""

    def close(self, p: FunctionPrinter) -> None:
        """Called where a function ends."""


MathEmitter = Callable[[FunctionPrinter, tuple[Value, ...]], Value]
"""Prints a mathematical function of values of one type."""
Emitter = Callable[[FunctionPrinter, tuple[Place, ...]], None]
"""Prints an intrinsic on regions, in the order of the parameters of its semantics."""


@dataclass(frozen=True)
class Instruction:
    """A tensor intrinsic of a target, how it is printed, and the features beyond the target's level that its kernels are compiled
    with."""

    intrinsic: TensorIntrin
    emitter: Emitter
    extensions: tuple[str, ...] = ()
