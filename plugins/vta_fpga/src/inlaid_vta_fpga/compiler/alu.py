"""Translation of values stored to accumulators to chains of ALU operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from inlaid.tensor import ir
from inlaid_runtime.errors import ScheduleError
from inlaid_vta_fpga.isa.instructions import AluOp

_OPS = {"min": AluOp.MIN, "max": AluOp.MAX, "add": AluOp.ADD}
_SMALLEST, _LARGEST = -(1 << 15), (1 << 15) - 1
_RIGHT, _LEFT = 15, 16
"""Largest shift amounts of one instruction on which all implementations agree: to the right and to the left."""


class Chain(NamedTuple):
    """A value as a chain of operations. The first operation applies to the element `first`, or to 0 if `first` is None. The second
    operand of each operation is an immediate or an element."""

    first: ir.Load | None
    operations: tuple[tuple[AluOp, int | ir.Load], ...] = ()


def build_chain(value: ir.Expr, what: str, destination: ir.Buffer) -> Chain:
    """Translate a value to a chain of operations. The chain starts with an element of buffer `destination` if possible. Raises
    `ScheduleError` for an operation that the ALU does not have."""
    if isinstance(value, ir.Load):
        return Chain(value)
    if isinstance(value, ir.Const):
        return Chain(None, tuple(_immediates("add", int(value.value), what)))
    if not isinstance(value, ir.Binary):
        raise _error(what, type(value).__name__)
    a, b = value.a, value.b
    if value.op in (*_OPS, "mul") and (
        isinstance(a, ir.Const) or (_reads_buffer(b, destination) and not _reads_buffer(a, destination))
    ):
        a, b = b, a
    first, operations = build_chain(a, what, destination)
    if isinstance(b, ir.Load) and value.op in _OPS:
        return Chain(first, (*operations, (_OPS[value.op], b)))
    if not isinstance(b, ir.Const):
        raise _error(what, f"{value.op} with {type(b).__name__}")
    return Chain(first, (*operations, *_immediates(value.op, int(b.value), what)))


def _reads_buffer(value: ir.Expr, buffer: ir.Buffer) -> bool:
    return isinstance(value, ir.Load) and value.buffer is buffer


def _immediates(op: str, value: int, what: str) -> Iterator[tuple[AluOp, int]]:
    """Split an operation with a constant into operations with 16-bit immediates and portable shifts."""
    if op == "mul" and value > 0 and value & (value - 1) == 0:
        op, value = "shl", value.bit_length() - 1
    if op == "sub":
        op, value = "add", -value
    if op == "add":
        while value:
            part = max(_SMALLEST, min(value, _LARGEST))
            yield AluOp.ADD, part
            value -= part
    elif op in ("shr", "shl") and 0 <= value < 32:
        while value:
            part = min(value, _RIGHT if op == "shr" else _LEFT)
            yield AluOp.SHR, part if op == "shr" else -part
            value -= part
    elif op in ("min", "max") and _SMALLEST <= value <= _LARGEST:
        yield _OPS[op], value
    elif (op, value) not in (("min", (1 << 31) - 1), ("max", -(1 << 31))):
        raise _error(what, f"{op} with {value}")


def _error(what: str, actual: str) -> ScheduleError:
    expected = "add, sub, min, max or shift of accumulators with one another or 16-bit immediates"
    return ScheduleError(f"{what}: expected {expected}, found {actual}", remedy="keep the operator on another target")
