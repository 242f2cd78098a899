"""Printing of value expressions, loads and stores, scalar or widened to the lanes of a vectorized loop.

An expression that does not depend on the lane stays scalar. A load whose index has the lane with coefficient 1 is printed as one
vector load, any other load as a gather. Under a mask, inactive lanes neither access memory nor are bounds-checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError
from inlaid_x86.llvm import arithmetic
from inlaid_x86.llvm.indices import INDEX, IndexPrinter
from inlaid_x86.llvm.intrinsics import MathEmitter
from inlaid_x86.llvm.memory import MemoryPrinter
from inlaid_x86.llvm.positions import Flat, Positions
from inlaid_x86.llvm.risks import Risks
from inlaid_x86.llvm.rounding import rounded, value_bounds
from inlaid_x86.llvm.state import PrinterState
from inlaid_x86.llvm.strided import StridedAccesses
from inlaid_x86.llvm.upper_half import print_upper_half, upper_half
from inlaid_x86.llvm.values import Value, literal, scalar_type, splat, vector_type

INDEX_ERROR = 1
"""Error code that a kernel returns if it computes an index out of bounds."""

RECURSION = 50
"""Maximum depth to which expressions are printed recursively, which is faster than with a stack."""


def table_name(lanes: int) -> str:
    """Return the name of the emitter of look-ups in a table of 256 bytes. Its operands are the table's address and a vector of
    bytes."""
    return f"table.{lanes}"


class ExpressionPrinter(PrinterState):
    """Prints expressions of a kernel into the current function. math: emitters of mathematical functions."""

    def __init__(self, name: str, declarations: dict[str, str], math: Mapping[str, MathEmitter]) -> None:
        super().__init__(name, declarations)
        self.math = math
        self.index = IndexPrinter(self.p, self._checked, self._choose)
        self.positions = Positions(self)
        self.memory = MemoryPrinter(self)
        self.strided = StridedAccesses(self, self.positions, self.memory)
        self.risks = Risks(self, self.positions)
        self._depth = 0

    # --- memory ---

    def _load(self, load: ir.Load) -> Value:
        """Print a load of one element, or of one element per lane. Reuses an earlier load if no store to the buffer intervenes."""
        buffer, flat = load.buffer, self.positions.flat(load.buffer, load.indices)
        base, stride = self.positions.by_lane(flat)
        if stride != 0 and stride != 1:
            value = (
                self._looked_up(load)
                if stride is None
                else self.strided.column(buffer, base, stride) or self.strided.every(buffer, base, stride)
            )
            return self.memory.from_memory(value or self.memory.gather(buffer, flat), buffer)
        mask = None if self.mask is None else self.mask.ref
        key = ("load", *base, stride and self.lanes, buffer, self.versions.get(buffer, 0), self.epoch, mask)
        cached: Value | None = self.p.recall(key)
        if cached is not None:
            return cached
        value = self.memory.from_memory((self.memory.load_vector if stride else self.memory.load_scalar)(buffer, base), buffer)
        return self.p.remember(key, value, lasting=self.index.lasts(base[0]))

    def _store(self, buffer: ir.Buffer, flat: Flat, value: Value) -> None:
        """Print a store of one element, or of one element per lane."""
        if self.lane is None:
            self.memory.store_scalar(buffer, flat, self.memory.to_memory(value, buffer))
            return
        stored = self.memory.to_memory(self.p.widen(value, self.lanes), buffer)
        base, stride = self.positions.by_lane(flat)
        if stride == 1:
            self.memory.store_vector(buffer, base, stored)
        elif stride is None or not self.strided.interleaved(buffer, base, stride, stored):
            self.memory.scatter(buffer, flat, stored)

    def _looked_up(self, load: ir.Load) -> Value | None:
        """Print a look-up in a table of 256 bytes by a vector of bytes, which cannot be out of bounds. Returns None for any other
        load."""
        match load:
            case ir.Load(buffer=ir.Buffer(shape=(256,)) as table, indices=(arith.Opaque(payload=ir.Cast(a=index)),)):
                emit = self.math.get(table_name(self.lanes))
                if emit is not None and table.dtype.bits == 8 and index.dtype.name == "uint8":
                    return emit(self.p, (Value(self.pointers[table], "ptr"), self.p.widen(self._expr(index), self.lanes)))
        return None

    # --- checks ---

    def _checked(self, node: arith.Opaque) -> Value:
        cached: Value | None = self.p.recall(("checked", node))
        if cached is not None:
            return cached
        assert isinstance(node.payload, ir.Expr)
        value = self._to_index(self._expr(node.payload), node.payload)
        return self.p.remember(("checked", node), self._check(value, node.lower, node.upper))

    def _check(self, value: Value, lower: arith.Expr, upper: arith.Expr) -> Value:
        """Print code that returns an error if an index is outside [lower, upper]. Under a mask, only active lanes are checked.
        Values out of bounds become `lower`, since addresses are computed for all lanes."""
        p = self.p
        low, high = self.index.print(lower), self.index.print(upper)
        value, low, high = self._match_lanes(value, low, high)
        below = p.op(f"icmp slt {value}, {low.ref}", "i1", value.lanes)
        above = p.op(f"icmp sgt {value}, {high.ref}", "i1", value.lanes)
        bad = p.op(f"or {below}, {above.ref}", "i1", value.lanes)
        if value.lanes or self.mask is not None:
            value = p.op(f"select {bad}, {low}, {value}", INDEX, value.lanes)
        if value.lanes:
            bad = self.memory.any_lane(p.op(f"and {bad}, {self.mask.ref}", "i1", value.lanes) if self.mask is not None else bad)
        elif self.mask is not None:
            bad = p.op(f"and {bad}, {self.memory.any_lane(self.mask).ref}", "i1")
        fine, failed = p.fresh("inside"), p.fresh("outside")
        p.branch_if(bad, failed, fine)
        p.label(failed)
        p.emit(f"ret i32 {INDEX_ERROR}")
        p.label(fine)
        return value

    # --- expressions ---

    def _expr(self, expr: ir.Expr) -> Value:
        """Print an expression. Recursive only to a limited depth, since fused expressions may be thousands of nodes deep."""
        printed = self._recall(expr)
        if printed is None and self._depth < RECURSION:
            self._depth += 1
            printed = self.p.remember(id(expr), self._node(expr))
            self._depth -= 1
        stack = [expr] if printed is None else []
        while stack:
            node = stack[-1]
            printed = self._recall(node)
            if printed is None:
                waiting = [arg for arg in self._eager(node) if self._recall(arg) is None]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                printed = self.p.remember(id(node), self._node(node))
            stack.pop()
        assert printed is not None
        return printed

    def _recall(self, expr: ir.Expr) -> Value | None:
        cached: Value | None = self.p.recall(id(expr))
        if cached is None and type(expr) is ir.Const:
            cached = self.p.remember(id(expr), Value(literal(expr.value, expr.dtype), scalar_type(expr.dtype)), lasting=True)
        return cached

    def _eager(self, expr: ir.Expr) -> tuple[ir.Expr, ...]:
        """Return the operands that may be evaluated unconditionally: all except the branches of a choice that need a guard."""
        if self.lanes and type(expr) is ir.Cast and (half := upper_half(expr)) is not None:
            return half[1]
        if type(expr) is ir.Select and (self._needs_guard(expr.then) or self._needs_guard(expr.otherwise)):
            return (expr.condition,)
        return ir.operands(expr)

    def _needs_guard(self, expr: ir.Expr) -> bool:
        """Test whether an expression may be evaluated only if chosen, because it reads memory or checks an index. It needs no guard
        if each load is provably inside its buffer or already printed, for example for the condition."""
        risks = self.risks.collect(expr)
        return risks is None or any(self._recall(risk) is None and not self.risks.is_inside(risk) for risk in risks)

    def _node(self, expr: ir.Expr) -> Value:
        p = self.p
        match expr:
            case ir.Load():
                return self._load(expr)
            case ir.Index(index=index, dtype=dtype):
                if dtype.kind == "bool":
                    return self.index.condition(index)
                value = self.index.print(index)
                to = scalar_type(dtype)
                return value if to == INDEX else self._narrow(value, to)
            case ir.Binary(op=op, a=a, b=b):
                left, right = self._match_lanes(self._expr(a), self._expr(b))
                if op in ("min", "max") and a.dtype.is_float and value_bounds(b) is not None:
                    return arithmetic.limited(p, op, left, right)
                if op == "mod" and a.dtype.is_float and "fmod" in self.math:
                    return self.math["fmod"](p, (left, right))
                return arithmetic.binary(p, op, left, right, a.dtype)
            case ir.Unary(op=op, a=a):
                return arithmetic.unary(p, op, self._expr(a), a.dtype)
            case ir.Cast() if (parts := rounded(expr)) is not None:
                return self._rounded(expr, *parts)
            case ir.Cast() if self.lanes and (half := upper_half(expr)) is not None:
                return self._upper_half(*half)
            case ir.Cast(a=a, dtype=dtype):
                return arithmetic.convert(p, self._expr(a), a.dtype, dtype)
            case ir.Bitcast(a=a, dtype=dtype):
                return arithmetic.reinterpret(p, self._expr(a), dtype)
            case ir.Fma(a=a, b=b, c=c):
                return arithmetic.fma(p, expr.dtype, *self._match_lanes(self._expr(a), self._expr(b), self._expr(c)))
            case ir.CallMath(name=name, args=args) if name in self.math:
                return self.math[name](p, tuple(self._match_lanes(*map(self._expr, args))))
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                return self._select(condition, then, otherwise)
        raise CompileError(f"kernel {self.name}: expected expanded expressions, found a {type(expr).__name__}")

    def _rounded(self, expr: ir.Cast, real: ir.Expr, other: ir.Expr | None) -> Value:
        a = self._expr(real)
        integer = self.p.intrinsic("lrint", a.scalar, [a], result="i32")
        if other is not None:
            integer, added = self._match_lanes(integer, self._expr(other))
            integer = arithmetic.binary(self.p, "add", integer, added, other.dtype)
        return arithmetic.convert(self.p, integer, expr.a.dtype, expr.dtype)

    def _upper_half(self, source: ir.Expr, parts: tuple[ir.Expr, ...]) -> Value:
        values = {part: self._expr(part) for part in parts}
        lanes = max(value.lanes for value in values.values())
        if lanes and lanes % 2 == 0:
            return print_upper_half(self.p, source, values, lanes)
        shifted = arithmetic.binary(self.p, "shr", self._expr(source), Value("32", "i64"), source.dtype)
        return self.p.op(f"trunc {shifted} to {vector_type('i32', lanes)}", "i32", lanes)

    def _narrow(self, value: Value, to: str) -> Value:
        if not value.ref.startswith("%") and not value.lanes:
            return Value(str(int(value.ref) & ((1 << int(to[1:])) - 1)), to)
        return self.p.op(f"trunc {value} to {vector_type(to, value.lanes)}", to, value.lanes)

    def _match_lanes(self, *values: Value) -> list[Value]:
        lanes = max([value.lanes for value in values])
        return [value if value.lanes == lanes else self.p.widen(value, lanes) for value in values]

    def _to_index(self, value: Value, expr: ir.Expr) -> Value:
        if value.scalar == INDEX:
            return value
        to = vector_type(INDEX, value.lanes)
        return self.p.op(f"{'sext' if expr.dtype.kind == 'int' else 'zext'} {value} to {to}", INDEX, value.lanes)

    def _not(self, flag: Value) -> Value:
        return self.p.op(f"xor {flag}, {splat('true', 'i1', flag.lanes)}", "i1", flag.lanes)

    @contextmanager
    def _under(self, flag: Value) -> Iterator[None]:
        """Restrict the active lanes to those where `flag` holds."""
        outer = self.mask
        self.mask = flag if outer is None else self.p.op(f"and {outer}, {flag.ref}", "i1", flag.lanes)
        yield
        self.mask = outer

    def _select(self, condition: ir.Expr, then: ir.Expr, otherwise: ir.Expr) -> Value:
        flag = self._expr(condition)
        if self._needs_guard(then) or self._needs_guard(otherwise):
            return self._choose(flag, lambda: self._expr(then), lambda: self._expr(otherwise))
        return arithmetic.select(self.p, flag, self._expr(then), self._expr(otherwise))

    def _choose(self, flag: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """Print a choice between two values. `then` and `otherwise` print the values, under a mask or in a branch."""
        p = self.p
        if flag.lanes:
            with self._under(flag), p.scope():
                a = then()
            with self._under(self._not(flag)), p.scope():
                b = otherwise()
            return arithmetic.select(self.p, flag, a, b)
        yes, no, merge_label = p.fresh("then"), p.fresh("else"), p.fresh("endif")
        p.branch_if(flag, yes, no)
        sides = []
        for label, side in ((yes, then), (no, otherwise)):
            p.label(label)
            with p.scope():
                value = side()
                # Both sides must have the same type, and the other side's type is not known yet.
                sides.append((p.widen(value, self.lanes) if self.lanes else value, p.block))
            p.branch(merge_label)
        p.label(merge_label)
        (a, left), (b, right) = sides
        return p.op(f"phi {a.type} [ {a.ref}, %{left} ], [ {b.ref}, %{right} ]", a.scalar, a.lanes)
