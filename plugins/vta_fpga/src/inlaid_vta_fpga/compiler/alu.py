"""Stores to accumulators as ALU instructions, which work in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from inlaid.errors import ScheduleError
from inlaid.tensor import ir
from inlaid_vta_fpga.compiler.gemm import Nest
from inlaid_vta_fpga.compiler.tasks import Step, Tile
from inlaid_vta_fpga.isa.instructions import Alu, AluOp

_OPS = {"min": AluOp.MIN, "max": AluOp.MAX, "add": AluOp.ADD, "shr": AluOp.SHR}
_COMMUTE = ("min", "max", "add", "mul")
_SMALLEST, _LARGEST = -(1 << 15), (1 << 15) - 1
_RIGHT, _LEFT = 15, 16
"""Portable shifts of one instruction: 15 to the right, 16 to the left."""


class Operation(NamedTuple):
    """An operation on an accumulator: the other operand is an immediate or an element of a buffer."""

    op: AluOp
    operand: int | ir.Load


class Chain(NamedTuple):
    """A value as operations on a first value: an element of an accumulator buffer, or None for 0."""

    first: ir.Load | None
    operations: tuple[Operation, ...]


def chain_of(value: ir.Expr, what: str, own: ir.Buffer) -> Chain:
    """A value as a chain of operations; where both operands are elements, the one of `own` comes first. Raises `ScheduleError`
    where the ALU has no such operation."""
    if isinstance(value, ir.Load):
        return Chain(value, ())
    if isinstance(value, ir.Const) and isinstance(value.value, int):
        return Chain(None, tuple(Operation(*item) for item in _immediates("add", int(value.value), what)))
    if not isinstance(value, ir.Binary):
        raise _error(what, f"{type(value).__name__} {value!r}")
    a, b, op = value.a, value.b, value.op
    if op in _COMMUTE and (isinstance(a, ir.Const) or (_is_of(b, own) and not _is_of(a, own))):
        a, b = b, a
    found = chain_of(a, what, own)
    if isinstance(b, ir.Load) and op in ("min", "max", "add"):
        return Chain(found.first, (*found.operations, Operation(_OPS[op], b)))
    if not isinstance(b, ir.Const) or not isinstance(b.value, int):
        raise _error(what, f"{op} with {type(b).__name__}")
    return Chain(found.first, (*found.operations, *(Operation(*item) for item in _immediates(op, int(b.value), what))))


def _is_of(value: ir.Expr, buffer: ir.Buffer) -> bool:
    return isinstance(value, ir.Load) and value.buffer is buffer


def _immediates(op: str, value: int, what: str) -> Iterator[tuple[AluOp, int]]:
    """Operations with immediates of 16 bits and portable shifts."""
    if op == "mul" and value > 0 and value & (value - 1) == 0:
        op, value = "shl", value.bit_length() - 1
    if op == "sub":
        op, value = "add", -value
    if op in ("shr", "shl") and 0 <= value < 32:
        most = _RIGHT if op == "shr" else _LEFT
        while value:
            part = min(value, most)
            yield AluOp.SHR, part if op == "shr" else -part
            value -= part
    elif op == "add":
        while value:
            part = max(_SMALLEST, min(value, _LARGEST))
            yield AluOp.ADD, part
            value -= part
    elif op in ("min", "max") and _SMALLEST <= value <= _LARGEST:
        yield _OPS[op], value
    elif not (op == "min" and value == (1 << 31) - 1) and not (op == "max" and value == -(1 << 31)):
        raise _error(what, f"{op} with {value}")


def _error(what: str, found: str) -> ScheduleError:
    return ScheduleError(
        f"{what}: expected add, sub, min, max or shift of accumulators with one another or 16-bit immediates, found {found}",
        remedy="keep the operator on another target, or rewrite it with these operations",
    )


@dataclass(frozen=True, eq=False)
class Elementwise:
    """One operation over a nest. The nest's operands are the destination and, where there is no immediate, the source."""

    nest: Nest
    op: AluOp
    imm: int | None

    def steps(self, numbers: tuple[int, ...], tiles: tuple[Tile, ...], source: str) -> Iterator[Step]:
        """ALU instructions."""
        nest = self.nest
        out, inner = nest.folded.out, nest.folded.inner
        dst, src = ((out.steps[n], inner.steps[n]) for n in (0, -1))
        instruction = Alu(self.op, 0, len(nest.folded.offsets), out.extent, inner.extent, dst, src, self.imm)
        for kernel, first in nest.tasks(numbers, tiles):
            yield Step(instruction, source, (nest.access(0, first[0], True),), kernel)
