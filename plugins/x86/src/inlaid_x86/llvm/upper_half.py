"""Printing of upper halves of 64-bit sums, as at the end of fixed-point products, for even and odd lanes separately.

A widening 32-bit multiplication reads every other lane of a vector. Computing even and odd lanes separately takes seven
instructions fewer than widening and narrowing all lanes, since the upper halves of odd lanes are already in their result lanes.
"""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid_x86.llvm import arithmetic
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.values import Value, literal, splat, vector_type

_HALF = 32


def upper_half(expr: ir.Expr) -> tuple[ir.Expr, tuple[ir.Expr, ...]] | None:
    """Match an int32 that is the upper half of an int64 computed from constants and sign-extended int32 values. Returns the int64
    and the int32 values; None for other expressions."""
    match expr:
        case ir.Cast(a=ir.Binary(op="shr", a=source, b=ir.Const(value=32)), dtype=to) if to.name == "int32":
            leaves = _leaves(source)
            return None if not leaves else (source, leaves)
    return None


def _leaves(source: ir.Expr) -> tuple[ir.Expr, ...] | None:
    leaves: dict[ir.Expr, None] = {}
    stack = [source]
    while stack:
        match stack.pop():
            case ir.Const():
                pass
            case ir.Cast(a=a, dtype=to) if to.name == "int64" and a.dtype.name == "int32":
                leaves[a] = None
            case ir.Binary(op="shr", a=a, b=ir.Const(), dtype=to) if to.name == "int64":
                stack.append(a)
            case ir.Binary(op="add" | "mul" | "and" | "or", a=a, b=b, dtype=to) if to.name == "int64":
                stack += [a, b]
            case _:
                return None
    return tuple(leaves)


def print_upper_half(p: FunctionPrinter, source: ir.Expr, leaves: dict[ir.Expr, Value], lanes: int) -> Value:
    """Print the upper half of a sum in each of an even number of lanes. leaves: values of its int32 operands."""
    wide = vector_type("i32", lanes)
    halves = [p.op(f"bitcast {_Half(p, leaves, lanes, odd).value(source)} to {wide}", "i32", lanes) for odd in (False, True)]
    source_lanes = ", ".join(f"i32 {lane + 1 if lane % 2 == 0 else lanes + lane}" for lane in range(lanes))
    return p.op(f"shufflevector {halves[0]}, {halves[1]}, <{lanes} x i32> <{source_lanes}>", "i32", lanes)


class _Half:
    """Prints an int64 expression for the even or the odd lanes."""

    def __init__(self, p: FunctionPrinter, leaves: dict[ir.Expr, Value], lanes: int, odd: bool) -> None:
        self._p = p
        self._leaves = leaves
        self._lanes = lanes
        self._odd = odd

    def value(self, expr: ir.Expr) -> Value:
        """Print an expression matched by `upper_half`. It is small, so repeated subexpressions are printed twice."""
        count = self._lanes // 2
        match expr:
            case ir.Const():
                return Value(splat(literal(expr.value, expr.dtype), "i64", count), "i64", count)
            case ir.Cast(a=a):
                return self._extended(self._leaves[a])
            case ir.Binary(op="shr", a=a, b=ir.Const(value=shift)):
                return self._p.op(f"ashr {self.value(a)}, {splat(str(shift), 'i64', count)}", "i64", count)
            case ir.Binary(op=op, a=a, b=b):
                return arithmetic.binary(self._p, op, self.value(a), self.value(b), expr.dtype)
        raise AssertionError(expr)

    def _extended(self, value: Value) -> Value:
        """Sign-extend every other lane to 64 bits."""
        p, count = self._p, self._lanes // 2
        key = ("extended", value.ref, self._odd)
        cached: Value | None = p.recall(key)
        if cached is not None:
            return cached
        if not value.lanes:
            return p.remember(key, p.widen(p.op(f"sext {value} to i64", "i64"), count), lasting=True)
        shift = splat(str(_HALF), "i64", count)
        int64 = p.op(f"bitcast {value} to {vector_type('i64', count)}", "i64", count)
        if not self._odd:
            int64 = p.op(f"shl {int64}, {shift}", "i64", count)
        return p.remember(key, p.op(f"ashr {int64}, {shift}", "i64", count), lasting=True)
