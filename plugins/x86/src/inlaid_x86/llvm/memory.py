"""Printing of loads and stores, of one element or of one element per lane.

Under a mask, inactive lanes neither access memory nor are bounds-checked.
"""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_x86.llvm import arithmetic
from inlaid_x86.llvm.function import mangle
from inlaid_x86.llvm.indices import INDEX
from inlaid_x86.llvm.positions import Flat
from inlaid_x86.llvm.state import PrinterState
from inlaid_x86.llvm.values import Value, memory_type, splat, vector_type

CUT_BYTES = 64
"""Padding in bytes after a register buffer, since the last vector access may extend past its end."""


class MemoryPrinter:
    """Prints accesses to the buffers of a kernel. Values are as in memory: a bool is a byte."""

    def __init__(self, state: PrinterState) -> None:
        self._state = state

    def inside(self, buffer: ir.Buffer, flat: Flat | Value, count: int = 1) -> None:
        """Print a bounds check of `count` elements from `flat` on; if `flat` is a vector, of one element per lane. No-op if checks
        are off."""
        state = self._state
        if state.guard is not None:
            index = flat if isinstance(flat, Value) else state.index.print(arith.add(*flat))
            if index.lanes and (count > 1 or state.lane is None):
                index = state.p.op(f"extractelement {index}, i64 0", INDEX)
            state.guard.check(state.p, state.index.print, buffer, index, count, state.mask)

    def address(self, buffer: ir.Buffer, flat: Flat) -> str:
        """Print the address of an element."""
        state = self._state
        rest, constant = flat
        offset = state.index.print(rest)
        if offset.lanes:
            # A value merged from branches is a vector, here with equal lanes.
            offset = state.p.op(f"extractelement {offset}, i64 0", INDEX)
        if constant:
            offset = Value(str(constant), INDEX) if offset.ref == "0" else state.p.op(f"add nsw {offset}, {constant}", INDEX)
        return self._pointer(buffer, offset).ref

    def load_scalar(self, buffer: ir.Buffer, flat: Flat) -> Value:
        """Print the load of one element."""
        self.inside(buffer, flat)
        kind = memory_type(buffer.dtype)
        return self._state.p.op(f"load {kind}, ptr {self._safe(self.address(buffer, flat))}, align {buffer.dtype.bytes}", kind)

    def load_vector(self, buffer: ir.Buffer, base: Flat) -> Value:
        """Print the load of adjacent elements, one per lane."""
        state = self._state
        self.inside(buffer, base, state.lanes)
        kind, align, address = memory_type(buffer.dtype), buffer.dtype.bytes, self.address(buffer, base)
        wide = vector_type(kind, state.lanes)
        if state.mask is None or self._covers_vector(buffer, base):
            return state.p.op(f"load {wide}, ptr {address}, align {align}", kind, state.lanes)
        name = f"llvm.masked.load.{mangle(kind, state.lanes)}.p0"
        state.declarations[name] = f"declare {wide} @{name}(ptr, <{state.lanes} x i1>, {wide})"
        return state.p.op(
            f"call {wide} @{name}(ptr align {align} {address}, {state.mask}, {wide} zeroinitializer)", kind, state.lanes
        )

    def gather(self, buffer: ir.Buffer, flat: Flat) -> Value:
        """Print the load of an element per lane, at any positions."""
        state = self._state
        kind, align = memory_type(buffer.dtype), buffer.dtype.bytes
        wide = vector_type(kind, state.lanes)
        positions = state.p.widen(state.index.print(arith.add(*flat)), state.lanes)
        self.inside(buffer, positions)
        addresses = self._pointer(buffer, positions)
        mask = state.mask or Value(splat("true", "i1", state.lanes), "i1", state.lanes)
        name = f"llvm.masked.gather.{mangle(kind, state.lanes)}.v{state.lanes}p0"
        state.declarations[name] = f"declare {wide} @{name}(<{state.lanes} x ptr>, <{state.lanes} x i1>, {wide})"
        pointers = f"<{state.lanes} x ptr> align {align} {addresses.ref}"
        return state.p.op(f"call {wide} @{name}({pointers}, {mask}, {wide} zeroinitializer)", kind, state.lanes)

    def store_scalar(self, buffer: ir.Buffer, flat: Flat, value: Value) -> None:
        """Print the store of one element."""
        self.inside(buffer, flat)
        self._state.p.emit(f"store {value}, ptr {self.address(buffer, flat)}, align {buffer.dtype.bytes}")

    def store_vector(self, buffer: ir.Buffer, base: Flat, value: Value) -> None:
        """Print the store of adjacent elements, one per lane."""
        state, kind, align = self._state, memory_type(buffer.dtype), buffer.dtype.bytes
        self.inside(buffer, base, state.lanes)
        address = self.address(buffer, base)
        if state.mask is not None and self._covers_vector(buffer, base):
            old_value = state.p.op(f"load {value.type}, ptr {address}, align {align}", kind, state.lanes)
            value = arithmetic.select(state.p, state.mask, value, old_value)
        elif state.mask is not None:
            self._masked_store(value, address, align)
            return
        state.p.emit(f"store {value}, ptr {address}, align {align}")

    def scatter(self, buffer: ir.Buffer, flat: Flat, value: Value) -> None:
        """Print the store of an element per lane, at any positions."""
        state, kind = self._state, memory_type(buffer.dtype)
        positions = state.p.widen(state.index.print(arith.add(*flat)), state.lanes)
        self.inside(buffer, positions)
        addresses = self._pointer(buffer, positions)
        mask = state.mask or Value(splat("true", "i1", state.lanes), "i1", state.lanes)
        name = f"llvm.masked.scatter.{mangle(kind, state.lanes)}.v{state.lanes}p0"
        state.declarations[name] = f"declare void @{name}({value.type}, <{state.lanes} x ptr>, <{state.lanes} x i1>)"
        pointers = f"<{state.lanes} x ptr> align {buffer.dtype.bytes} {addresses.ref}"
        state.p.emit(f"call void @{name}({value}, {pointers}, {mask})")

    def any_lane(self, flag: Value) -> Value:
        """Print the test of whether a flag is set in any lane."""
        state = self._state
        cached: Value | None = state.p.recall(("any", flag.ref))
        if cached is not None:
            return cached
        name = f"llvm.vector.reduce.or.v{flag.lanes}i1"
        state.declarations[name] = f"declare i1 @{name}({flag.type})"
        return state.p.remember(("any", flag.ref), state.p.op(f"call i1 @{name}({flag})", "i1"))

    def _safe(self, address: str) -> str:
        """Return an address that is always readable: `address` if a lane is active, else the address of a zero."""
        state = self._state
        if state.mask is None:
            return address
        return state.p.op(f"select {self.any_lane(state.mask)}, ptr {address}, ptr {state.p.zero()}", "ptr").ref

    def _pointer(self, buffer: ir.Buffer, offset: Value) -> Value:
        state = self._state
        base = state.pointers[buffer]
        if offset.ref == "0":
            return Value(base, "ptr")
        # Under a mask, an address may be out of bounds if no lane accesses it, so it must not be `inbounds`.
        opcode = "getelementptr inbounds" if state.mask is None else "getelementptr"
        return state.p.op(f"{opcode} {memory_type(buffer.dtype)}, ptr {base}, {offset}", "ptr", offset.lanes)

    def _masked_store(self, stored: Value, address: str, align: int) -> None:
        state = self._state
        name = f"llvm.masked.store.{mangle(stored.scalar, state.lanes)}.p0"
        state.declarations[name] = f"declare void @{name}({stored.type}, ptr, <{state.lanes} x i1>)"
        state.p.emit(f"call void @{name}({stored}, ptr align {align} {address}, {state.mask})")

    def _covers_vector(self, buffer: ir.Buffer, base: Flat) -> bool:
        """Test whether a register buffer holds all lanes of a vector, including inactive lanes. If so, vectors are loaded and
        stored without a mask, because LLVM does not promote memory to registers if a masked store writes it."""
        rest, first = base
        size = arith.product(buffer.shape)
        capacity = size + CUT_BYTES // buffer.dtype.bytes if isinstance(size, int) else 0
        return buffer.scope == "register" and rest == arith.ZERO and first + self._state.lanes <= capacity

    def from_memory(self, value: Value, buffer: ir.Buffer) -> Value:
        """Convert a loaded value to the form of expressions."""
        if buffer.dtype.kind != "bool":
            return value
        return self._state.p.op(f"icmp ne {value}, {splat('0', 'i8', value.lanes)}", "i1", value.lanes)

    def to_memory(self, value: Value, buffer: ir.Buffer) -> Value:
        """Convert a value to the form in which it is stored."""
        if buffer.dtype.kind != "bool":
            return value
        return self._state.p.op(f"zext {value} to {vector_type('i8', value.lanes)}", "i8", value.lanes)
