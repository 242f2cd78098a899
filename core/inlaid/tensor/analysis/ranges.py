"""Computes value ranges of the integers in a loop program, and simplifies the program by them.

Quantized kernels are written for arbitrary multipliers, shifts and zero points. If ranges of these are known, `narrow` removes
shifts by 0, clips without effect and unnecessary 64-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlaid.tensor import ir
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.unread import remove_unread_buffers
from inlaid_runtime import arith
from inlaid_runtime.types import DType, dtype

Range = tuple[int, int]
"""The smallest and largest value of an integer, both inclusive."""
INT32 = dtype("int32")
_BOOL = (0, 1)
_WIDEST = 64


class Ranges:
    """The ranges of a program's integer values. `buffer_ranges` gives the element ranges of buffers that the program only reads."""

    def __init__(self, program: ir.LoopProgram, buffer_ranges: Mapping[ir.Buffer, Range] | None = None) -> None:
        self._buffers: dict[ir.Buffer, Range] = dict(buffer_ranges or {})
        self._memo: dict[ir.Expr, Range | None] = {}
        spans: dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]] = {}
        for stmt in ir.walk_stmts(program.body):
            if isinstance(stmt, ir.For):
                last = arith.unwrap(stmt.extent - 1)
                # Copies of a loop (made by unrolling) share a variable.
                if stmt.var not in spans or spans[stmt.var] == (0, last):
                    spans[stmt.var] = (0, last)
                else:
                    spans[stmt.var] = (0, None)
            elif isinstance(stmt, ir.Let) and stmt.bounds is not None:
                spans[stmt.var] = (arith.unwrap(stmt.bounds[0]), arith.unwrap(stmt.bounds[1]))
        self.indices = arith.Analyzer(spans)
        self._buffers.update(self._sums(program))

    def infer(self, expr: ir.Expr) -> Range | None:
        """Return the range of a value; None if the value is not an integer or bool."""
        if expr not in self._memo:
            stack = [expr]
            while stack:
                missing = [item for item in ir.operands(stack[-1]) if item not in self._memo]
                if missing:
                    stack += missing
                else:
                    node = stack.pop()
                    self._memo[node] = self._range(node)
        return self._memo[expr]

    def exact(self, expr: ir.Binary) -> bool:
        """Test whether an integer sum, difference or product never wraps."""
        value_range = _result_range(expr.op, self.infer(expr.a), self.infer(expr.b))
        return value_range is not None and _within(value_range, expr.dtype)

    def _range(self, expr: ir.Expr) -> Range | None:
        dtype = expr.dtype
        if dtype.kind == "bool":
            return _BOOL
        if not dtype.is_int:
            return None
        value_range = self._narrower(expr)
        return value_range if value_range is not None and _within(value_range, dtype) else _limits(dtype)

    def _narrower(self, expr: ir.Expr) -> Range | None:
        """Return the range that the operation of a node implies if its result does not wrap; None if unknown. It may exceed the
        element type's range."""
        match expr:
            case ir.Const(value=value):
                return int(value), int(value)
            case ir.Index(index=index):
                low, high = self.indices.bounds(index)
                return None if low is None or high is None else (low, high)
            case ir.Load(buffer=buffer):
                return self._buffers.get(buffer)
            case ir.Cast(a=a):
                return self.infer(a)
            case ir.Select(then=then, otherwise=otherwise):
                return _union(self.infer(then), self.infer(otherwise))
            case ir.Binary(op=op, a=a, b=b):
                return _result_range(op, self.infer(a), self.infer(b))
            case ir.Unary(op="neg", a=a):
                return _result_range("sub", (0, 0), self.infer(a))
            case ir.Unary(op="abs", a=a):
                operand_range = self.infer(a)
                return (
                    None
                    if operand_range is None
                    else (max(operand_range[0], -operand_range[1], 0), max(-operand_range[0], operand_range[1]))
                )
        return None

    def _sums(self, program: ir.LoopProgram) -> dict[ir.Buffer, Range]:
        """Return the ranges of local integer buffers used as accumulators. Each store sets an element to a value of known range, or
        adds such a value to it at most once per iteration of the enclosing loops that revisit the element."""
        ranges_by_buffer: dict[ir.Buffer, list[Range]] = {}
        unbounded_buffers: set[ir.Buffer] = set()
        if any(isinstance(stmt, ir.While) for stmt in ir.walk_stmts(program.body)):
            return {}
        for stmt, loops in _stores(program.body):
            if isinstance(stmt, ir.Intrinsic):
                unbounded_buffers.update(region.buffer for region in stmt.touching(ir.AccessMode.WRITE))
                continue
            buffer = stmt.buffer
            if not buffer.dtype.is_int or buffer in program.params:
                continue
            addend, times = stmt.value, 1
            if _adds_to(stmt):
                assert isinstance(addend, ir.Binary)
                addend = addend.b
                for loop in loops:
                    # A loop whose variable is an index visits an element only once per iteration of the outer loops.
                    if loop.var not in stmt.indices:
                        extent = self.indices.bounds(loop.extent)[1]
                        times = 0 if extent is None else times * max(extent, 1)
            values = self.infer(addend) if times and not _reads(addend, buffer) else None
            if values is None:
                unbounded_buffers.add(buffer)
            elif addend is stmt.value:
                ranges_by_buffer.setdefault(buffer, []).append((min(values[0], 0), max(values[1], 0)))
            else:
                ranges_by_buffer.setdefault(buffer, []).append((min(values[0] * times, 0), max(values[1] * times, 0)))
        sums = {
            buffer: (sum(low for low, _ in parts), sum(high for _, high in parts))
            for buffer, parts in ranges_by_buffer.items()
            if buffer not in unbounded_buffers
        }
        self._memo.clear()
        return {buffer: range_ for buffer, range_ in sums.items() if _within(range_, buffer.dtype)}


def _stores(root: ir.Stmt) -> list[tuple[ir.Store | ir.Intrinsic, tuple[ir.For, ...]]]:
    """Return every store and intrinsic, with the loops between it and the allocation of the buffer that it writes."""
    stores: list[tuple[ir.Store | ir.Intrinsic, tuple[ir.For, ...]]] = []
    stack: list[tuple[ir.Stmt, tuple[ir.For | ir.Alloc, ...]]] = [(root, ())]
    while stack:
        stmt, nest = stack.pop()
        if isinstance(stmt, ir.Store):
            alloc_depth = next((n for n, item in enumerate(nest) if isinstance(item, ir.Alloc) and item.buffer is stmt.buffer), 0)
            stores.append((stmt, tuple(item for item in nest[alloc_depth:] if isinstance(item, ir.For))))
        elif isinstance(stmt, ir.Intrinsic):
            stores.append((stmt, ()))
        inner_nest = (*nest, stmt) if isinstance(stmt, (ir.For, ir.Alloc)) else nest
        stack += [(child, inner_nest) for child in ir.substatements(stmt)]
    return stores


def _adds_to(store: ir.Store) -> bool:
    """Test whether a store adds a value to the element that it writes."""
    match store.value:
        case ir.Binary(op="add", a=ir.Load(buffer=buffer, indices=indices)):
            return buffer is store.buffer and indices == store.indices
    return False


def _reads(expr: ir.Expr, buffer: ir.Buffer) -> bool:
    return any(isinstance(node, ir.Load) and node.buffer is buffer for node in ir.walk_exprs(expr))


def _limits(dtype: DType) -> Range:
    low, high = dtype.limits
    return int(low), int(high)


def _within(value_range: Range, dtype: DType) -> bool:
    low, high = _limits(dtype)
    return low <= value_range[0] and value_range[1] <= high


def _union(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _result_range(op: str, a: Range | None, b: Range | None) -> Range | None:
    """Return the range of the result of a binary operation before it wraps; None if unknown."""
    if a is None or b is None:
        return None
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            return _corners(lambda x, y: x * y, a, b)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "div" if b[0] > 0:
            return _corners(lambda x, y: abs(x) // y * (1 if x >= 0 else -1), a, b)
        case "mod" if b[0] > 0 and a[0] >= 0:
            return 0, min(a[1], b[1] - 1)
        case "shr" if b[0] >= 0 and b[1] < _WIDEST:
            return _corners(lambda x, y: x >> y, a, b)
        case "shl" if b[0] >= 0 and b[1] < _WIDEST:
            return _corners(lambda x, y: x << y, a, b)
        case "and" if a[0] >= 0 and b[0] >= 0:
            return 0, min(a[1], b[1])
        case "or" | "xor" if a[0] >= 0 and b[0] >= 0:
            return 0, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1
    return None


def _corners(operation: Callable[[int, int], int], a: Range, b: Range) -> Range:
    values = [operation(x, y) for x in a for y in b]
    return min(values), max(values)


def narrow(program: ir.LoopProgram, buffer_ranges: Mapping[ir.Buffer, Range] | None = None) -> ir.LoopProgram:
    """Simplify a program by the ranges of its values. Folds minima, maxima, selects and shifts, narrows 64-bit arithmetic to 32
    bits, and removes local buffers that are no longer read. `buffer_ranges` is as for `Ranges`. The program must have no blocks."""
    return remove_unread_buffers(_Narrower(Ranges(program, buffer_ranges)).program(program))


class _Narrower(Rewriter):
    def __init__(self, ranges: Ranges) -> None:
        super().__init__(expr=self._simplified)
        self._ranges = ranges

    def _simplified(self, node: ir.Expr) -> ir.Expr | None:
        if isinstance(node, ir.Const) or not (node.dtype.is_int or node.dtype.kind == "bool"):
            return self._folded_select(node)
        value_range = self._ranges.infer(node)
        if value_range is not None and value_range[0] == value_range[1] and node.dtype.is_int:
            return ir.const(value_range[0], node.dtype)
        if isinstance(node, ir.Binary):
            return self._binary(node)
        if isinstance(node, ir.Cast):
            return self._in_int32(node.a) if node.dtype is INT32 and node.a.dtype.bits > INT32.bits else self._merged_cast(node)
        return self._folded_select(node)

    def _folded_select(self, node: ir.Expr) -> ir.Expr | None:
        match node:
            case ir.Select(condition=ir.Const(value=value), then=then, otherwise=otherwise):
                return then if value else otherwise
        return None

    def _merged_cast(self, node: ir.Cast) -> ir.Expr | None:
        """Merge two nested casts into one if the inner cast is lossless; None otherwise."""
        if isinstance(node.a, ir.Cast) and node.a.dtype.is_int and node.a.a.dtype.is_int:
            value_range = self._ranges.infer(node.a.a)
            if value_range is not None and _within(value_range, node.a.dtype):
                return ir.cast(node.a.a, node.dtype)
        return None

    def _binary(self, node: ir.Binary) -> ir.Expr | None:
        if node.op in ("and", "or") and node.dtype.kind == "bool":
            return self._logical(node)
        if self._is_same_value(node.a, node.b):
            match node.op:
                case "lt":
                    return ir.const(False, node.dtype)
                case "min" | "max":
                    return node.a
                case "le" | "eq" | "ne" if not node.a.dtype.is_float:  # a NaN differs from itself
                    return ir.const(node.op != "ne", node.dtype)
        a, b = self._ranges.infer(node.a), self._ranges.infer(node.b)
        if a is None or b is None:
            return None
        match node.op:
            case "min" if a[1] <= b[0]:
                return node.a
            case "min" if b[1] <= a[0]:
                return node.b
            case "max" if a[0] >= b[1]:
                return node.a
            case "max" if b[0] >= a[1]:
                return node.b
            case "shl" | "shr" | "add" | "sub" if b == (0, 0):
                return node.a
            case "add" if a == (0, 0):
                return node.b
            case "mul" | "div" if b == (1, 1):
                return node.a
            case "lt" if a[1] < b[0] or a[0] >= b[1]:
                return ir.const(a[1] < b[0], node.dtype)
            case "le" if a[1] <= b[0] or a[0] > b[1]:
                return ir.const(a[1] <= b[0], node.dtype)
        return None

    def _logical(self, node: ir.Binary) -> ir.Expr | None:
        """Fold a conjunction or disjunction with a constant."""
        for side, other in ((node.a, node.b), (node.b, node.a)):
            if isinstance(side, ir.Const):
                return other if bool(side.value) == (node.op == "and") else side
        return None

    def _is_same_value(self, a: ir.Expr, b: ir.Expr) -> bool:
        """Test whether two operands of an operation are one value, or loads of one element."""
        if a is b:
            return True
        if not isinstance(a, ir.Load) or not isinstance(b, ir.Load) or a.buffer is not b.buffer:
            return False
        equal = self._ranges.indices.equal
        return all(equal(one, other) for one, other in zip(a.indices, b.indices, strict=True))

    def _in_int32(self, expr: ir.Expr) -> ir.Expr | None:
        """Rewrite a 64-bit value to be computed in int32; None if its range exceeds int32."""
        value_range = self._ranges.infer(expr)
        if value_range is None or not _within(value_range, INT32):
            return None
        match expr:
            case ir.Cast(a=a) if a.dtype.is_int:
                inner = self._ranges.infer(a)
                if inner is not None and _within(inner, INT32):
                    return ir.cast(a, INT32)
            case ir.Binary(op="add" | "sub" | "mul" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr" as op, a=a, b=b):
                left, right = self._in_int32(a), self._in_int32(b)
                shift = self._ranges.infer(b)
                fits = op not in ("shl", "shr") or (shift is not None and shift[0] >= 0 and shift[1] < INT32.bits)
                if left is not None and right is not None and fits:
                    narrowed = ir.binary(op, left, right)
                    return self._simplified(narrowed) or narrowed
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                left, right = self._in_int32(then), self._in_int32(otherwise)
                if left is not None and right is not None:
                    return ir.select(self._narrowed_comparison(condition), left, right)
            case ir.Const(value=value):
                return ir.const(int(value), INT32)
        return ir.Cast(INT32, expr)

    def _narrowed_comparison(self, condition: ir.Expr) -> ir.Expr:
        """Compare two 64-bit values in int32 if the ranges of both fit."""
        if isinstance(condition, ir.Binary) and condition.op in ir.COMPARISONS and condition.a.dtype.bits > INT32.bits:
            left, right = self._in_int32(condition.a), self._in_int32(condition.b)
            if left is not None and right is not None:
                return ir.binary(condition.op, left, right)
        return condition
