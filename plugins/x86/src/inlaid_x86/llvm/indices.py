"""Printing of integer expressions (`inlaid_runtime.arith`) as 64-bit arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

from inlaid.tensor.transform.printable import separate
from inlaid_runtime import arith
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.values import Value, splat

INDEX = "i64"
Split = tuple[arith.Expr, int, tuple[tuple[list[int], int], ...]]
"""An expression as a sum of non-constant terms, a constant, and for each unrolled loop its current iteration (see
`IndexPrinter.numbers`) times a step. Indices of neighboring elements share the terms."""
_Number = int | None


Choose = Callable[[Value, Callable[[], Value], Callable[[], Value]], Value]
"""Callback that prints a choice between two values, given the condition and a printer of each."""


class IndexPrinter:
    """Prints integer expressions in the scope of a function.

    values: SSA value of each variable, a vector if it depends on the lane. analyzer: ranges of variables, which show that a
    dividend is not negative and its division needs no correction. opaque: prints a checked value. choose: prints a choice that
    evaluates only the chosen value. cells: addresses of sizes that the kernel computes. Sizes are loaded at each use, since they
    change. numbers: current iteration of each unrolled loop.
    """

    def __init__(self, printer: FunctionPrinter, opaque: Callable[[arith.Opaque], Value], choose: Choose) -> None:
        self.printer = printer
        self.opaque = opaque
        self.choose = choose
        self.values: dict[arith.Expr, Value] = {}
        self.analyzer = arith.Analyzer()
        self.cells: dict[arith.Expr, str] = {}
        self._nested_analyzers: dict[tuple[arith.Analyzer, arith.Expr, int | None, int | None], arith.Analyzer] = {}
        self._depths: dict[arith.Expr, int] = {}
        self.numbers: dict[arith.Expr, list[int]] = {}
        self._splits: dict[arith.Expr, Split] = {}
        self._cheap: dict[arith.Expr, bool] = {}
        self._ends: dict[arith.Compare, tuple[arith.Expr, bool] | None] = {}

    def bind(self, variable: arith.Expr, value: Value, low: _Number = None, high: _Number = None, depth: _Number = None) -> None:
        """Bind a variable to a value with an inclusive range, computed at loop nesting `depth`; None: the current one."""
        self.values[variable] = value
        key = (self.analyzer, variable, low, high)  # unrolled copies of a loop share their analysis
        if key not in self._nested_analyzers:
            self._nested_analyzers[key] = self.analyzer.inside({variable: (low, high)})
        self.analyzer = self._nested_analyzers[key]
        self._depths[variable] = self.printer.depth if depth is None else depth

    @contextmanager
    def bound(
        self, variable: arith.Expr, value: Value, low: _Number = None, high: _Number = None, depth: _Number = None
    ) -> Iterator[None]:
        """Bind a variable as `bind` does, within a context."""
        outer_value, analyzer = self.values.get(variable), self.analyzer
        outer_depth = self._depths.get(variable, 0)
        self.bind(variable, value, low, high, depth)
        yield
        del self.values[variable]
        self.analyzer = analyzer
        if outer_value is not None:
            self.values[variable] = outer_value
            self._depths[variable] = outer_depth

    def split(self, expr: arith.Expr) -> Split:
        """Split an expression into terms, a constant, and the steps of unrolled loops. Memoized."""
        split = self._splits.get(expr)
        if split is None:
            parts = separate(expr, self.numbers)
            assert parts is not None, f"{expr!r} must be a sum with multiples of the variables of unrolled loops"
            steps, rest, constant = parts
            split = rest if steps or constant else expr, constant, tuple((self.numbers[var], step) for var, step in steps.items())
            self._splits[expr] = split
        return split

    def print(self, expr: arith.Expr) -> Value:
        """Print an expression as i64; comparisons give 0 or 1."""
        if isinstance(expr, arith.Const):
            return Value(str(expr.value), INDEX)
        bound_value = self.values.get(expr)
        if bound_value is not None:
            return bound_value
        if isinstance(expr, arith.Opaque):
            return self.opaque(expr)
        if expr in self.cells:
            return self.printer.op(f"load i64, ptr {self.cells[expr]}, align 8", INDEX)
        if self._changes(expr):
            return self._node(expr)
        cached: Value | None = self.printer.recall(expr)
        if cached is not None:
            return cached
        if arith.levels(expr) > arith.LEVELS:
            for node in arith.post_order(expr, below=self._unprinted):
                if node is not expr:
                    self.print(node)
        depth = self.hoist_depth(expr)
        if depth >= self.printer.depth:
            return self._remember(expr, expr, self._node(expr))
        with self.printer.before_loop(depth):
            return self._remember(expr, expr, self._node(expr))

    def _unprinted(self, expr: arith.Expr) -> tuple[arith.Expr, ...]:
        """Return the operands of an expression that have no value yet; none if the expression reads data, since an operand that it
        does not choose must not be evaluated."""
        if arith.reads_data(expr) or expr in self.values:
            return ()
        return tuple(operand for operand in expr.operands if self.printer.recall(operand) is None)

    def hoist_depth(self, expr: arith.Expr) -> int:
        """Return the loop depth at which to compute an expression. Expressions of sizes are hoisted out of loops in which they are
        invariant, since no LLVM pass that runs here hoists them. Other expressions belong to addresses and are not hoisted."""
        is_size = _has_size(arith.free_vars(expr)) and not self._changes(expr)
        return self._invariant(expr) if is_size else self.printer.depth

    def _invariant(self, expr: arith.Expr) -> int:
        variables = arith.free_vars(expr)
        if not self.printer.depth or not self._is_cheap(expr):
            return self.printer.depth
        if any(var in self.values and self.values[var].lanes for var in variables):
            return self.printer.depth
        return max((self._depths.get(var, 0) for var in variables), default=0)

    def _is_cheap(self, expr: arith.Expr) -> bool:
        """Test whether an expression may be computed speculatively: it divides only by constants and reads no data."""
        if expr not in self._cheap:
            for node in arith.post_order(expr, below=lambda node: () if node in self._cheap else node.operands):
                divides = isinstance(node, arith.FloorDiv | arith.FloorMod) and not isinstance(node.operands[1], arith.Const)
                cheap = not divides and not arith.reads_data(node) and all(self._cheap[item] for item in node.operands)
                self._cheap.setdefault(node, cheap)
        return self._cheap[expr]

    def condition(self, expr: arith.Expr) -> Value:
        """Print the test of whether an expression is nonzero, as i1."""
        cached: Value | None = self.printer.recall(("i1", expr))
        if cached is not None:
            return cached
        if isinstance(expr, arith.Compare) and (mask := self._first_lanes(expr)) is not None:
            return mask
        match expr:
            case arith.Const(value=constant):
                return Value("true" if constant else "false", "i1")
            case arith.Compare(op=op, operands=(a, b)):
                left, right = self._pair(self.print(a), self.print(b))
                name = {"<": "slt", "<=": "sle", "==": "eq", "!=": "ne"}[op]
                value = self.printer.op(f"icmp {name} {left}, {right.ref}", "i1", left.lanes)
            case arith.And(operands=(a, b)) if arith.reads_data(b):
                value = self.choose(self.condition(a), lambda: self.condition(b), lambda: Value("false", "i1"))
            case arith.And(operands=(a, b)) | arith.Or(operands=(a, b)):
                left, right = self._pair(self.condition(a), self.condition(b))
                value = self.printer.op(f"{'and' if isinstance(expr, arith.And) else 'or'} {left}, {right.ref}", "i1", left.lanes)
            case arith.Not(operands=(a,)):
                inner = self.condition(a)
                value = self.printer.op(f"xor {inner}, {splat('true', 'i1', inner.lanes)}", "i1", inner.lanes)
            case _:
                number = self.print(expr)
                value = self.printer.op(f"icmp ne {number}, {splat('0', INDEX, number.lanes)}", "i1", number.lanes)
        return value if self._changes(expr) else self._remember(("i1", expr), expr, value)

    def _first_lanes(self, comparison: arith.Compare) -> Value | None:
        """Print a comparison that holds, or fails, exactly in the first n lanes. Compares 32-bit lane numbers with n, hoisted out
        of loops in which n is invariant. Returns None for any other comparison."""
        lane = next((var for var in arith.free_vars(comparison) if var in self.values and self.values[var].lanes), None)
        if lane is None or not self.values[lane].ref.startswith("<i64 0,"):
            return None
        if comparison not in self._ends:
            self._ends[comparison] = _end(comparison, lane)
        end = self._ends[comparison]
        if end is None or self._changes(end[0]) or any(self.values[var].lanes for var in arith.free_vars(end[0])):
            return None
        key = (*end, self.values[lane].lanes)
        cached: Value | None = self.printer.recall(key)
        if cached is not None:
            return cached
        # In kernels of constant sizes, loops over vectors are short.
        depth = self._invariant(end[0]) if _has_size(self.values) else self.printer.depth
        with self.printer.before_loop(depth) if depth < self.printer.depth else nullcontext():
            return self.printer.remember(key, self._below(*key), lasting=True)

    def _below(self, end: arith.Expr, below: bool, lanes: int) -> Value:
        p = self.printer
        count = p.intrinsic("smax", INDEX, [self.print(end), Value("0", INDEX)])
        count = p.op(f"trunc {p.intrinsic('smin', INDEX, [count, Value(str(lanes), INDEX)])} to i32", "i32")
        numbers = f"<{lanes} x i32> <{', '.join(f'i32 {lane}' for lane in range(lanes))}>"
        return p.op(f"icmp {'slt' if below else 'sge'} {numbers}, {p.widen(count, lanes).ref}", "i1", lanes)

    def lasts(self, expr: arith.Expr) -> bool:
        """Test whether the value of a lane-invariant expression stays valid: it reads no data and no computed size."""
        return not arith.reads_data(expr) and not self._changes(expr)

    def _remember(self, key: Hashable, expr: arith.Expr, value: Value) -> Value:
        """Memoize the value of an expression: for one statement if it depends on the lane or on data, else for the scope."""
        return self.printer.remember(key, value, lasting=not value.lanes and not arith.reads_data(expr))

    def _changes(self, expr: arith.Expr) -> bool:
        """Test whether an expression reads a size that the kernel computes, so that its value must not be memoized."""
        return bool(self.cells) and not self.cells.keys().isdisjoint(arith.free_vars(expr))

    def _pair(self, a: Value, b: Value) -> tuple[Value, Value]:
        lanes = max(a.lanes, b.lanes)
        return (a, b) if a.lanes == b.lanes else (self.printer.widen(a, lanes), self.printer.widen(b, lanes))

    def _node(self, expr: arith.Expr) -> Value:
        match expr:
            case arith.Add(operands=(a, b)):
                return self._binary("add nsw", a, b)
            case arith.Mul(operands=(a, b)):
                return self._binary("mul nsw", a, b)
            case arith.FloorDiv(operands=(a, b)):
                return self._divide(a, b, want_quotient=True)
            case arith.FloorMod(operands=(a, b)):
                return self._divide(a, b, want_quotient=False)
            case arith.Min(operands=(a, b)):
                left, right = self._pair(self.print(a), self.print(b))
                return self.printer.intrinsic("smin", INDEX, [left, right])
            case arith.Max(operands=(a, b)):
                left, right = self._pair(self.print(a), self.print(b))
                return self.printer.intrinsic("smax", INDEX, [left, right])
            case arith.Compare() | arith.And() | arith.Or() | arith.Not():
                flag = self.condition(expr)
                to = Value("", INDEX, flag.lanes).type
                return self.printer.op(f"zext {flag} to {to}", INDEX, flag.lanes)
            case arith.Select(operands=(condition, a, b)):
                return self._select(condition, a, b)
        raise KeyError(f"{expr!r} is not in scope")

    def _binary(self, opcode: str, a: arith.Expr, b: arith.Expr) -> Value:
        left, right = self._pair(self.print(a), self.print(b))
        return self.printer.op(f"{opcode} {left}, {right.ref}", INDEX, left.lanes)

    def _select(self, condition: arith.Expr, a: arith.Expr, b: arith.Expr) -> Value:
        if arith.reads_data(a) or arith.reads_data(b):
            return self.choose(self.condition(condition), lambda: self.print(a), lambda: self.print(b))
        flag, left, right = self.condition(condition), self.print(a), self.print(b)
        lanes = max(flag.lanes, left.lanes, right.lanes)
        if lanes:
            flag, left, right = (self.printer.widen(item, lanes) for item in (flag, left, right))
        return self.printer.op(f"select {flag}, {left}, {right}", INDEX, lanes)

    def _divide(self, a: arith.Expr, b: arith.Expr, want_quotient: bool) -> Value:
        left, right = self._pair(self.print(a), self.print(b))
        lanes, emit = left.lanes, self.printer.op
        divisor = b.value if isinstance(b, arith.Const) else 0
        if divisor > 0 and divisor & (divisor - 1) == 0:
            amount = str(divisor.bit_length() - 1 if want_quotient else divisor - 1)
            return emit(f"{'ashr' if want_quotient else 'and'} {left}, {splat(amount, INDEX, lanes)}", INDEX, lanes)
        low, _ = self.analyzer.bounds(a)
        if low is not None and low >= 0 and (divisor > 0 or (self.analyzer.bounds(b)[0] or 0) > 0):
            return emit(f"{'udiv' if want_quotient else 'urem'} {left}, {right.ref}", INDEX, lanes)
        zero = splat("0", INDEX, lanes)
        if divisor == 0:
            nonzero = emit(f"icmp ne {right}, {zero}", "i1", lanes)
            right = emit(f"select {nonzero}, {right}, {Value(splat('1', INDEX, lanes), INDEX, lanes)}", INDEX, lanes)
        remainder = emit(f"srem {left}, {right.ref}", INDEX, lanes)
        signs = emit(f"xor {remainder}, {right.ref}", INDEX, lanes)
        differs = emit(f"icmp slt {signs}, {zero}", "i1", lanes)
        inexact = emit(f"icmp ne {remainder}, {zero}", "i1", lanes)
        adjust = emit(f"and {differs}, {inexact.ref}", "i1", lanes)
        if want_quotient:
            quotient = emit(f"sdiv {left}, {right.ref}", INDEX, lanes)
            step = emit(f"sext {adjust} to {quotient.type}", INDEX, lanes)
            return emit(f"add {quotient}, {step.ref}", INDEX, lanes)
        fix = emit(f"select {adjust}, {right}, {Value(zero, INDEX, lanes)}", INDEX, lanes)
        return emit(f"add {remainder}, {fix.ref}", INDEX, lanes)


def _has_size(variables: Iterable[arith.Expr]) -> bool:
    return any(isinstance(variable, arith.SizeVar) for variable in variables)


def _end(comparison: arith.Compare, lane: arith.Expr) -> tuple[arith.Expr, bool] | None:
    """Return (end, True) if exactly the lanes below `end` satisfy a comparison, (end, False) if exactly they do not, else None."""
    (left, right), op = comparison.operands, comparison.op
    parts = arith.affine(right - left + int(op == "<="), lane) if op in ("<", "<=") else None
    if parts is None or isinstance(parts[1], arith.Const) or arith.reads_data(comparison):
        return None
    if parts[0] == arith.Const(-1):
        return parts[1], True
    return (1 - parts[1], False) if parts[0] == arith.ONE else None
