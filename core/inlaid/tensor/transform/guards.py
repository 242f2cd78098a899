"""Reduces the evaluation of guards: hoists guards out of loops, and nests a guard in another one that it implies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.transform.lower_blocks import conjuncts, guarded, joined, mapped, truth
from inlaid_runtime import arith

RUN = 4
"""Maximum number of rows per specialized loop for a truncated tile: loops for 1, 2, 3 and 4 rows take ten rows of code."""


def nest_guards(program: ir.LoopProgram) -> ir.LoopProgram:
    """Hoist guards out of loops that they do not depend on. A guard that implies the preceding guard is nested in it.

        for j in 2, vectorized: if r < n: a; for j in 2, vectorized: if r + 1 < n: b; if r + 2 < n: c
    becomes
        if r < n: { for j in 2, vectorized: a; if r + 1 < n: { for j in 2, vectorized: b; if r + 2 < n: c } }

    A tile of which only the first few unrolled rows exist then takes one branch per iteration of the loop around, instead of one
    per row. Of several adjacent vectors that the end of the data may truncate, those entirely beyond it are skipped. The program
    must have no blocks.
    """
    body = _Nesting().stmt(program.body)
    return program if body is program.body else replace(program, body=body)


def free_registers(program: ir.LoopProgram) -> ir.LoopProgram:
    """Compute values in registers speculatively, without their guards, if the register has no other store:

        for i in 4, unrolled: if 4*t + i < n: r[i] = a[i] + b[i]    becomes    for i in 4, unrolled: r[i] = a[i] + b[i]

    Here `a` and `b` are registers too. Statements that read `r[i]` have guards, and a branch around a few additions costs more
    than the additions. The program must have no blocks.
    """
    stores = Counter(stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store))
    intrinsic_buffers = {
        region.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic) for region in stmt.regions
    }
    single_store_buffers = {
        buffer for buffer, count in stores.items() if count == 1 and buffer.scope == "register" and buffer not in intrinsic_buffers
    }
    body = _without_guards(program.body, single_store_buffers, {}) if single_store_buffers else program.body
    return program if body is program.body else replace(program, body=body)


def _without_guards(stmt: ir.Stmt, single_store_buffers: Set[ir.Buffer], ranges: arith.Bounds) -> ir.Stmt:
    match stmt:
        case ir.For(var=var, extent=extent):
            inner_ranges = {**ranges, var: (0, arith.unwrap(extent - 1))}
            return mapped(stmt, lambda inner: _without_guards(inner, single_store_buffers, inner_ranges))
        case ir.If(then=ir.Store(buffer=buffer, indices=indices, value=value) as store) if buffer in single_store_buffers:
            if _guard(stmt) is not None and _is_speculatable(value):
                analyzer = arith.Analyzer(ranges)
                loads = [(node.buffer, node.indices) for node in ir.walk_exprs(value) if isinstance(node, ir.Load)]
                if all(_within(analyzer, *element) for element in [(buffer, indices), *loads]):
                    return store
    return mapped(stmt, lambda inner: _without_guards(inner, single_store_buffers, ranges))


def _is_speculatable(value: ir.Expr) -> bool:
    """Test whether a value may be computed speculatively, which requires that it is floating-point arithmetic on registers."""

    def is_allowed(node: ir.Expr) -> bool:
        match node:
            case ir.Load(buffer=buffer):
                return buffer.scope == "register"
            case ir.Index(index=index):
                return not arith.reads_data(index)
            case ir.Binary() | ir.Unary() | ir.Fma() | ir.Select():
                return node.dtype.is_float
        return isinstance(node, ir.Const)

    return all(map(is_allowed, ir.walk_exprs(value)))


def _within(analyzer: arith.Analyzer, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> bool:
    """Test whether indices are in bounds even if no guard holds."""
    return all(
        analyzer.prove(arith.logical_and(arith.compare("<=", 0, index), arith.compare("<", index, extent)))
        for index, extent in zip(indices, buffer.shape, strict=True)
    )


class _Nesting:
    """The pass `nest_guards`, with memoized analysis of conditions."""

    def __init__(self) -> None:
        self._limits_by_condition: dict[arith.Expr, list[tuple[arith.Expr, int]]] = {}

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        """Nest the guards in a statement."""
        stmt = mapped(stmt, self.stmt)
        match stmt:
            case ir.If(condition=ir.Index(index=arith.Const(value=holds)), otherwise=None):
                return stmt.then if holds else ir.Seq(())
            case ir.For(body=ir.Seq(stmts=())):
                return stmt.body
            case ir.For(kind=ir.ForKind.VECTORIZED | ir.ForKind.SERIAL):
                outer_condition, loop = _hoisted(stmt)
                return guarded(_unswitched(loop), outer_condition)
            case ir.Seq():
                stmts = tuple(part for item in stmt.stmts for part in _flat(item))
                if sum(_truncated_vector(item) is not None for item in stmts) > 1:
                    stmts = tuple(map(_guard_first_lane, stmts))
                nested = self._nested(stmts)
                return stmt if len(nested) == len(stmt.stmts) else joined(*nested)
        return stmt

    def _nested(self, stmts: Sequence[ir.Stmt]) -> list[ir.Stmt]:
        """Nest into each guarded statement those following statements whose guards imply its guard."""
        result: list[ir.Stmt] = []
        position = 0
        while position < len(stmts):
            stmt, condition = stmts[position], _guard(stmts[position])
            position += 1
            if condition is None:
                result.append(stmt)
                continue
            start = position
            while position < len(stmts) and (other := _guard(stmts[position])) is not None and self._implies(other, condition):
                position += 1
            if position == start:
                result.append(stmt)
                continue
            parts = frozenset(conjuncts(condition))
            inner_stmts = [part for item in stmts[start - 1 : position] for part in _flat(_without(item, parts))]
            result.append(guarded(joined(*self._nested(inner_stmts)), condition))
        return result

    def _implies(self, condition: arith.Expr, other: arith.Expr) -> bool:
        """Test whether one condition implies another, by comparing the sums in their conjuncts."""
        limits, other_limits = self._limits(condition), self._limits(other)
        return all(any(rest == other_rest and least <= limit for rest, limit in limits) for other_rest, least in other_limits)

    def _limits(self, condition: arith.Expr) -> list[tuple[arith.Expr, int]]:
        """Split a condition into one pair (rest, number) per conjunct, which means `rest + number < 0`. A conjunct of another form
        gives (conjunct, 0)."""
        if condition not in self._limits_by_condition:
            self._limits_by_condition[condition] = list(map(_limit, conjuncts(condition)))
        return self._limits_by_condition[condition]


def _guard(stmt: ir.Stmt) -> arith.Expr | None:
    """Return the condition of a guard (an `if` without `else`); None for other statements, or if the condition reads data."""
    match stmt:
        case ir.If(condition=ir.Index(index=condition), otherwise=None) if not arith.reads_data(condition):
            return condition
    return None


def _without(stmt: ir.Stmt, parts: frozenset[arith.Expr]) -> ir.Stmt:
    """Drop the conjuncts of a statement's guard that are known to hold."""
    condition = _guard(stmt)
    assert isinstance(stmt, ir.If) and condition is not None
    return guarded(stmt.then, _conjunction(part for part in conjuncts(condition) if part not in parts))


def _conjunction(parts: Iterable[arith.Expr]) -> arith.Expr:
    result: arith.Expr = arith.ONE
    for part in parts:
        result = arith.logical_and(result, part)
    return result


def _flat(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)


def _limit(part: arith.Expr) -> tuple[arith.Expr, int]:
    match part:
        case arith.Compare(op="<", operands=(index, end)):
            distance = arith.simplify(index - end)
            match distance:
                case arith.Const(value=value):
                    return arith.ZERO, value
                case arith.Add(operands=(rest, arith.Const(value=value))):
                    return rest, value
            return distance, 0
    return part, 0


def _hoisted(loop: ir.For) -> tuple[arith.Expr, ir.For]:
    """Split the guard of a loop's body. Returns the conjuncts independent of the loop, and the loop guarded by the others."""
    condition = _guard(loop.body)
    if condition is None:
        return arith.ONE, loop
    assert isinstance(loop.body, ir.If)
    inner_parts = [part for part in conjuncts(condition) if loop.var in arith.free_vars(part)]
    outer_parts = [part for part in conjuncts(condition) if loop.var not in arith.free_vars(part)]
    return _conjunction(outer_parts), replace(
        loop, body=guarded(loop.body.then, _conjunction(inner_parts))
    ) if outer_parts else loop


_Levels = list[tuple[arith.Expr, tuple[ir.Stmt, ...]]]
"""Consecutive parts of a loop's body, each with the condition under which it runs. Each condition implies the previous one."""


def _unswitched(loop: ir.For) -> ir.Stmt:
    """Unswitch a loop over a truncated tile into one loop per possible number of rows:

        for k: { a; if r + 1 < n: { b; if r + 2 < n: c } }
    becomes
        if r + 1 < n: { if r + 2 < n: for k: { a; b; c } else: for k: { a; b } } else: for k: a

    A tile of many rows gets loops over the first `RUN` rows, then over the rest. With branches inside the loop instead, LLVM would
    keep the accumulators in memory because of the phi nodes behind them.
    """
    levels = _levels(loop)
    if len(levels) < 2 or loop.kind is not ir.ForKind.SERIAL:
        return loop
    counts = [len(stmts) for _, stmts in levels]
    if len(set(counts[1:])) > 1 or counts[0] > 2 * counts[1] or not all(map(_is_flat, (s for _, part in levels for s in part))):
        return loop
    return _loops(loop, levels) or loop


def _levels(loop: ir.For) -> _Levels:
    levels: _Levels = []
    condition: arith.Expr | None = arith.ONE
    stmt = loop.body
    while condition is not None:
        stmts, last = _flat(stmt)[:-1], _flat(stmt)[-1:]
        inner = _guard(last[0]) if last else None
        if inner is not None and isinstance(last[0], ir.If) and stmts and loop.var not in arith.free_vars(inner):
            levels.append((condition, stmts))
            condition, stmt = inner, last[0].then
        else:
            levels.append((condition, (*stmts, *last)))
            condition = None
    return levels


def _is_flat(stmt: ir.Stmt) -> bool:
    """Test whether a statement belongs to an unrolled tile: a vector, or a hint."""
    return isinstance(stmt, (ir.Intrinsic, ir.Store)) or (isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED)


def _loops(loop: ir.For, levels: _Levels) -> ir.Stmt | None:
    """Build the loops over the levels; None if levels after the first ones may depend on them."""

    def over(count: int) -> ir.Stmt:
        return replace(loop, body=joined(*(stmt for _, stmts in levels[:count] for stmt in stmts)))

    # A prefetch before the first row is not a row. Counting it would leave a loop over the last row alone in a strip of RUN rows.
    has_hints = all(isinstance(stmt, ir.Intrinsic) for stmt in levels[0][1])
    first = min(len(levels), RUN + has_hints)
    body = over(first)
    if len(levels) > first:
        if not _independent(levels[:first], levels[first:]):
            return None
        rest = _loops(loop, levels[first:])
        if rest is None:
            return None
        body = joined(body, guarded(rest, levels[first][0]))
    for count in range(first - 1, 0, -1):
        body = ir.If(truth(levels[count][0]), body, over(count))
    return body


def _independent(first: _Levels, second: _Levels) -> bool:
    """Test whether neither group of levels stores elements that the other group accesses."""
    first_stores, first_loads = _accesses(first)
    second_stores, second_loads = _accesses(second)
    pairs = [(a, b) for a in first_stores for b in (*second_stores, *second_loads)] + [
        (a, b) for a in second_stores for b in first_loads
    ]
    return not any(a[0] is b[0] and not _apart(a[1], b[1]) for a, b in pairs)


_Access = tuple[ir.Buffer, tuple[arith.Expr, ...]]


def _accesses(levels: _Levels) -> tuple[set[_Access], set[_Access]]:
    """Return two sets: the elements that the statements of the levels store, and the elements that they load."""
    stores: set[_Access] = set()
    loads: set[_Access] = set()
    for stmt in (inner for _, stmts in levels for root in stmts for inner in ir.walk_stmts(root)):
        if isinstance(stmt, ir.Store):
            stores.add((stmt.buffer, stmt.indices))
            loads.update((node.buffer, node.indices) for node in ir.walk_exprs(stmt.value) if isinstance(node, ir.Load))
    return stores, loads


def _apart(a: tuple[arith.Expr, ...], b: tuple[arith.Expr, ...]) -> bool:
    """Test whether two index tuples always differ, because their constants differ."""
    return any(isinstance(x, arith.Const) and isinstance(y, arith.Const) and x != y for x, y in zip(a, b, strict=True))


def _truncated_vector(stmt: ir.Stmt) -> tuple[ir.For, arith.Expr] | None:
    """Return a statement's vectorized loop if the end of the data may truncate it, and the condition under which its first lane
    runs. The statement may be guarded. None for other statements."""
    loop = stmt.then if isinstance(stmt, ir.If) and _guard(stmt) is not None else stmt
    if not isinstance(loop, ir.For) or loop.kind is not ir.ForKind.VECTORIZED:
        return None
    match _guard(loop.body):
        case arith.Compare(op="<", operands=(index, end)):
            form = arith.affine(index, loop.var)
            if form is not None and form[0] == arith.ONE and loop.var not in arith.free_vars(end):
                return loop, arith.compare("<", form[1], end)
    return None


def _guard_first_lane(stmt: ir.Stmt) -> ir.Stmt:
    """Guard a vector that may be truncated by the condition under which its first lane runs."""
    vector, condition = _truncated_vector(stmt), _guard(stmt)
    if vector is None:
        return stmt
    return guarded(vector[0], arith.logical_and(arith.ONE if condition is None else condition, vector[1]))
