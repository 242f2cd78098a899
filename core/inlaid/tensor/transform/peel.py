"""Peels the last iteration of a loop, so that only the peeled iteration checks bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import reduce

from inlaid.tensor import ir
from inlaid.tensor.primitives import AnnotationKey
from inlaid.tensor.transform.lower_blocks import truth
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.strips import STRIP, in_strips
from inlaid_runtime import arith
from inlaid_runtime.arith import Analyzer
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import dtype

Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]
REMAINDERS = AnnotationKey("remainders", int)
"""Annotates a loop over tiles of unrolled rows or vectors. Each possible remainder then gets specialized code without bounds
checks. The value is the number of elements per row or vector; 0: the remainder runs in strips of `STRIP` rows that share one code;
rows beyond the end repeat the last row, and their results are not stored."""
_LONGEST = 2 * STRIP - 1
"""Maximum number of rows in the last strip of a tile with specialized code per remainder. It takes 28 rows of code."""
_MIN_ITERATIONS = 64
"""A parallel loop of fewer iterations keeps its last one, as a branch, because that iteration may be the whole work of a thread."""
_PLAIN = (ir.ForKind.SERIAL, ir.ForKind.PARALLEL)


def peel_loops(program: ir.LoopProgram) -> ir.LoopProgram:
    """Peel the last iteration of loops if no other iteration can fail a condition (of a statement or a select).

        for i in 8: for j in 14 unrolled: if 14*i + j < 100: ...
    becomes
        for i in 7: for j in 14 unrolled: ...
        for j in 14 unrolled: if 98 + j < 100: ...

    With an unknown extent:

        for i in (n + 13) // 14: for j in 14 unrolled: if 14*i + j < n: ...
    becomes
        for i in n // 14: for j in 14 unrolled: ...
        if n // 14 < (n + 13) // 14: let w = n // 14: for j in 14 unrolled: if 14*w + j < n: ...

    If a loop does nothing after a condition with a symbolic limit fails, the loop ends there:

        for i in 16: if 16*c + i < n: ...
    becomes
        for i in min(16, max(n - 16*c, 0)): ...

    A parallel loop of few iterations has the peeled iteration as a branch, so that it still runs in parallel:

        for i in 2 parallel: if i < 1: ... else: ...

    The loop body, where the time is spent, then has no checks. Conditions that an outer loop evaluates once per iteration are kept.
    The program must have no blocks.
    """
    return replace(program, body=_peel(program.body, {}))


def _peel(stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    match stmt:
        case ir.For():
            return _loop(stmt, ranges)
        case ir.Seq(stmts=stmts):
            return ir.Seq(tuple(_peel(item, ranges) for item in stmts))
        case ir.Alloc(body=body) | ir.Let(body=body):
            return replace(stmt, body=_peel(body, ranges))
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            return ir.If(condition, _peel(then, ranges), None if otherwise is None else _peel(otherwise, ranges))
    return stmt


def _loop(loop: ir.For, ranges: Ranges) -> ir.Stmt:
    inner_ranges: Ranges = {**ranges, loop.var: (0, arith.unwrap(loop.extent - 1))}
    if loop.kind in _PLAIN:
        if isinstance(loop.extent, arith.Const) and loop.extent.value > 1:
            last = loop.extent.value - 1
            main_ranges: Ranges = {**ranges, loop.var: (0, last - 1)}
            if _fails_only_last(_worthwhile(loop), inner_ranges, main_ranges):
                main = _with_conditions(
                    replace(loop, extent=arith.Const(last)),
                    lambda part, inner: None if Analyzer(inner).prove(part) else part,
                    main_ranges,
                )
                tail = _peel(Rewriter({loop.var: arith.Const(last)}).stmt(loop.body), ranges)
                main_loop = _peel_body(main, main_ranges)
                if loop.kind is ir.ForKind.PARALLEL and last < _MIN_ITERATIONS:
                    return replace(loop, body=ir.If(truth(arith.compare("<", loop.var, last)), main_loop.body, tail))
                return ir.Seq((main_loop, tail))
        split_loop = _symbolic_loop(loop, ranges)
        if split_loop is not None:
            return split_loop
    return _shortened(replace(loop, body=_peel(loop.body, inner_ranges)))


def _shortened(loop: ir.For) -> ir.Stmt:
    """Shorten an unrolled loop by its last iterations if a condition on its variable excludes them."""
    inner: ir.Stmt = loop
    while isinstance(inner, ir.For):
        inner = inner.body
    match loop, inner:
        case (
            ir.For(extent=arith.Const(value=extent), kind=ir.ForKind.UNROLLED, var=var),
            ir.If(condition=ir.Index(index=condition), otherwise=None),
        ):
            conditions = [part for part in _parts(condition) if arith.free_vars(part) == {var} and not arith.reads_data(part)]
            holds = [all(arith.evaluate(part, {var: number}) for part in conditions) for number in range(extent)]
            count = sum(holds)
            if conditions and all(holds[:count]):
                return _with_conditions(
                    replace(loop, extent=arith.Const(count)), lambda part, _: None if part in conditions else part, {}
                )
    return loop


def _worthwhile(loop: ir.For) -> list[tuple[arith.Expr, Ranges]]:
    """Return the conditions that are worth peeling for. If the loop contains other loops, a condition outside of these is not: it
    is evaluated once per iteration of the loop, which costs less than duplicating the loop's code."""
    nested = any(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(loop.body))
    return [(condition, inner) for condition, inner in _conditions(loop, {}) if inner or not nested]


@dataclass(frozen=True)
class _Pieces:
    """The condition `size * var + rest < limit` on a loop's variable. `rest` depends only on inner loops and is in [0, size). A
    piece is the range of `size` elements that one iteration covers. `analyzer` knows no bounds; the pieces of a loop share it."""

    size: int
    rest: arith.Expr
    limit: arith.Expr
    analyzer: Analyzer

    @property
    def count(self) -> arith.Expr:
        """Return the number of pieces up to the limit, including a partial last piece."""
        return arith.ceildiv(self.limit, self.size)

    @property
    def full_count(self) -> arith.Expr:
        """Return the number of pieces entirely below the limit; `count` if the condition tests only one element of each piece."""
        return self.count if self.rest == arith.ZERO else self.limit // self.size

    def matches(self, other: _Pieces | None) -> bool:
        """Test whether two conditions have the same size and limit."""
        if other is None or self.size != other.size:
            return False
        return self.limit == other.limit or self.analyzer.equal(self.limit, other.limit)


class _Limits:
    """Analyzes conditions on a loop's variable, and memoizes the results."""

    def __init__(self, loop: ir.For) -> None:
        self._variable = loop.var
        self._pieces_by_key: dict[Hashable, _Pieces | None] = {}
        self._analyzer = Analyzer()

    def pieces(self, condition: arith.Expr, inner: Ranges) -> _Pieces | None:
        """Convert a condition to `_Pieces`; None if it has another form. `inner` are the ranges of inner loops."""
        if not isinstance(condition, arith.Compare) or self._variable not in arith.free_vars(condition):
            return None
        key = (condition, *inner.items())
        if key not in self._pieces_by_key:
            self._pieces_by_key[key] = self._pieces(condition, inner)
        return self._pieces_by_key[key]

    def _pieces(self, condition: arith.Compare, inner: Ranges) -> _Pieces | None:
        if condition.op == "<":
            index, end = condition.operands
            form = arith.affine(index - end, self._variable)
            if form is None or not isinstance(form[0], arith.Const) or form[0].value < 1:
                return None
            start = arith.substitute(form[1], dict.fromkeys(inner, arith.ZERO))
            rest = arith.simplify(form[1] - start)
            low, high = Analyzer(inner).bounds(rest)
            if low is not None and high is not None and low >= 0 and high < form[0].value:
                return _Pieces(form[0].value, rest, self._analyzer.simplify(arith.ZERO - start), self._analyzer)
        return None


def _symbolic_loop(loop: ir.For, ranges: Ranges) -> ir.Stmt | None:
    """Split a loop over pieces of a symbolic length into whole pieces and the last one. None if no condition has the form of
    `_Pieces`, or inner loops can end before the missing elements."""
    loop_pieces: list[_Pieces] = []
    limits = _Limits(loop)
    for part, pieces in _distinct_limits(loop, limits):
        if _ends_inner_loop(loop, part):
            continue
        if not isinstance(loop.extent, arith.Const) and Analyzer().equal(pieces.count, loop.extent):
            loop_pieces.append(pieces)
        elif not loop_pieces and _no_effect_beyond(loop, pieces, limits):
            ends = (pieces.full_count, pieces.count)
            full_count, extent = (arith.simplify(arith.minimum(arith.maximum(end, 0), loop.extent)) for end in ends)
            return _cut(loop, [pieces], limits, full_count, extent, ranges)
    if not loop_pieces:
        return None
    # A piece must be whole for every limit, and limits with equally many pieces may differ in how many of them are whole.
    full_count = arith.simplify(reduce(arith.minimum, (pieces.full_count for pieces in loop_pieces)))
    return _cut(loop, loop_pieces, limits, full_count, loop.extent, ranges)


def _distinct_limits(loop: ir.For, limits: _Limits) -> list[tuple[arith.Expr, _Pieces]]:
    """Return the distinct limits, each with a condition on it, if possible one that tests more than a piece's first element."""
    limits_by_condition: list[tuple[arith.Expr, _Pieces]] = []
    for part, inner in _conditions(loop, {}):
        pieces = limits.pieces(part, inner)
        if pieces is None:
            continue
        position = next((position for position, (_, other) in enumerate(limits_by_condition) if pieces.matches(other)), None)
        if position is None:
            limits_by_condition.append((part, pieces))
        elif limits_by_condition[position][1].rest == arith.ZERO:
            limits_by_condition[position] = part, pieces
    return limits_by_condition


def _ends_inner_loop(loop: ir.For, condition: arith.Expr) -> bool:
    """Test whether an inner loop can end where a condition begins to fail, so that the condition needs no duplicate code."""
    variables = arith.free_vars(condition)
    return any(
        other == condition
        and (inner_pieces := limits.pieces(other, inner)) is not None
        and _no_effect_beyond(stmt, inner_pieces, limits)
        for stmt in ir.walk_stmts(loop.body)
        if isinstance(stmt, ir.For) and stmt.kind in _PLAIN and stmt.var in variables
        for limits in (_Limits(stmt),)
        for other, inner in _conditions(stmt, {})
    )


def _no_effect_beyond(loop: ir.For, pieces: _Pieces, limits: _Limits) -> bool:
    """Test whether a condition with a symbolic limit guards all effects of a loop: iterations in which it fails do nothing."""
    if not any(isinstance(var, arith.SizeVar) for var in arith.free_vars(pieces.limit)):
        return False
    local = {stmt.buffer for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Alloc)}

    def no_effect(stmt: ir.Stmt, inner: Ranges) -> bool:
        match stmt:
            case ir.Store(buffer=buffer):
                return buffer in local
            case ir.Intrinsic():
                return all(region.buffer in local for region in stmt.touching(ir.AccessMode.WRITE)) and bool(stmt.regions)
            case ir.If(condition=ir.Index(index=index), otherwise=otherwise):
                if any(pieces.matches(limits.pieces(part, inner)) for part in _parts(index)):
                    return otherwise is None or no_effect(otherwise, inner)
            case ir.For(var=var, extent=extent):
                inner = {**inner, var: (0, arith.unwrap(extent - 1))}
        return all(no_effect(child, inner) for child in ir.substatements(stmt))

    return no_effect(loop.body, {})


def _cut(
    loop: ir.For, loop_pieces: Sequence[_Pieces], limits: _Limits, full_count: arith.Expr, extent: arith.Expr, ranges: Ranges
) -> ir.Stmt:
    """Build the loop over `full_count` pieces, in which the conditions hold. If `extent` exceeds `full_count`, the partial last
    piece follows the loop."""
    match_condition = _matcher(loop, loop_pieces, limits)
    main_ranges: Ranges = {**ranges, loop.var: (0, arith.unwrap(full_count - 1))}
    main = _with_conditions(
        replace(loop, extent=full_count),
        lambda part, inner_ranges: None if match_condition(part, inner_ranges) else part,
        main_ranges,
    )
    main = _peel_body(main, main_ranges)
    if all(pieces.rest == arith.ZERO for pieces in loop_pieces):
        return main
    # The partial piece uses the number of whole pieces in every access: bind it to one variable.
    start = arith.Var(f"{loop.var.name}_end")
    ranges = {**ranges, start: (0, None)}
    last: dict[arith.Expr, arith.Expr] = {loop.var: start}
    unit = dict(loop.annotations).get(REMAINDERS.name)
    tail: ir.Stmt | None = None
    if len(loop_pieces) == 1:
        tail = _strips(loop, loop_pieces[0], limits, last, ranges, unit)
        if tail is None and unit:
            tail = _remainders(loop, loop_pieces[0], limits, unit, last, ranges)
    if tail is None:
        tail = _peel(Rewriter(last).stmt(loop.body), ranges)
    return ir.Seq((main, ir.If(truth(arith.compare("<", full_count, extent)), _let(start, full_count, tail))))


def _let(variable: arith.Var, value: arith.Expr, body: ir.Stmt) -> ir.Stmt:
    return ir.Let(variable, ir.Index(dtype("int64"), value), body)


def _matcher(loop: ir.For, loop_pieces: Sequence[_Pieces], limits: _Limits) -> Callable[[arith.Expr, Ranges], _Pieces | None]:
    """Make a function that recognizes the conditions `loop_pieces`, given the ranges of enclosing loops."""
    inner_vars = {stmt.var for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.For)}

    def match(part: arith.Expr, inner_ranges: Ranges) -> _Pieces | None:
        pieces = limits.pieces(part, {var: span for var, span in inner_ranges.items() if var in inner_vars})
        return pieces if pieces is not None and any(map(pieces.matches, loop_pieces)) else None

    return match


def _remainders(
    loop: ir.For, pieces: _Pieces, limits: _Limits, unit: int, last: Mapping[arith.Expr, arith.Expr], ranges: Ranges
) -> ir.Stmt:
    """Build specialized code for each possible number of remaining rows or vectors, of `unit` elements each."""
    match_condition, count = _matcher(loop, [pieces], limits), arith.Var(f"{loop.var.name}_left")
    tail: ir.Stmt | None = None
    for end in range(pieces.size - (unit == 1), 0, -unit):

        def case_condition(part: arith.Expr, inner_ranges: Ranges, end: int = end) -> arith.Expr:
            row_pieces = match_condition(part, inner_ranges)
            if row_pieces is None:
                return part
            if Analyzer(inner_ranges).simplify(row_pieces.rest % unit) == arith.ZERO:
                return arith.compare("<", row_pieces.rest, end)
            condition = arith.logical_or(arith.compare("<", row_pieces.rest, end - unit), part)
            return arith.logical_and(arith.compare("<", row_pieces.rest, end), condition)

        case_body = _peel(Rewriter(last).stmt(_with_conditions(loop.body, case_condition, ranges)), ranges)
        tail = case_body if tail is None else ir.If(truth(arith.compare("<=", count, end)), case_body, tail)
    assert tail is not None
    return _let(count, arith.simplify(pieces.limit - last[loop.var] * pieces.size), tail)


def _strips(
    loop: ir.For, pieces: _Pieces, limits: _Limits, last: Mapping[arith.Expr, arith.Expr], ranges: Ranges, unit: int | None
) -> ir.Stmt | None:
    """Build the partial last piece as a loop over strips of its rows. None if its rows are not unrolled loops, or too few.

    With specialized code for each remainder (`REMAINDERS`), the last strip has up to `_LONGEST` rows, since strips of one or two
    rows would underuse the processor.
    """

    def tests_row(condition: arith.Expr, row: arith.Var) -> bool:
        part = limits.pieces(condition, {row: (0, pieces.size - 1)})
        return part is not None and part.rest == row and pieces.matches(part)

    rows = frozenset(
        inner.var
        for inner in ir.walk_stmts(loop.body)
        if isinstance(inner, ir.For) and inner.kind is ir.ForKind.UNROLLED and inner.extent == arith.Const(pieces.size)
        if any(tests_row(part, inner.var) for part, _ in _conditions(inner, {}))
    )
    if not rows or pieces.size <= STRIP:
        return None
    number, final = arith.Var(f"{loop.var.name}_s"), arith.Var(f"{loop.var.name}_last")
    longest = min(_LONGEST, pieces.size - 1) if unit else STRIP
    rows_left = arith.simplify(pieces.limit - last[loop.var] * pieces.size)
    # The last piece has fewer than `pieces.size` rows, so the loop over its strips has at most `max_strips` iterations.
    count = arith.maximum(rows_left // STRIP, 1) if unit else arith.ceildiv(rows_left, STRIP)
    max_strips = 1 if longest == pieces.size - 1 else -((1 - pieces.size) // STRIP)
    count = arith.simplify(arith.minimum(count, max_strips))
    rows_left = arith.simplify(rows_left - number * STRIP)
    strip_rows = (
        arith.select(arith.compare("<=", rows_left, longest), rows_left, STRIP) if unit else arith.minimum(rows_left, STRIP)
    )
    strip_pieces = replace(pieces, limit=arith.simplify(pieces.limit - number * STRIP))
    strip_ranges: Ranges = {**ranges, number: (0, arith.unwrap(count - 1)), final: (0, longest - 1)}
    match_condition, tail = _matcher(loop, [strip_pieces], _Limits(loop)), None
    sizes = tuple(range(longest, 0, -1)) if unit else (STRIP,)
    for size, fewer in zip(sizes, (*sizes[1:], 0), strict=True):

        def case_condition(part: arith.Expr, inner_ranges: Ranges, size: int = size, fewer: int = fewer) -> arith.Expr | None:
            row_pieces = match_condition(part, inner_ranges)
            if row_pieces is None or size == fewer + 1:
                return part if row_pieces is None else None
            return arith.logical_or(arith.compare("<=", row_pieces.rest, fewer), part)

        strip = in_strips(loop.body, rows, number, tests_row, size, final if unit == 0 else None)
        if strip is None:
            return None
        case_body = _peel(Rewriter(last).stmt(_with_conditions(strip, case_condition, strip_ranges)), strip_ranges)
        tail = case_body if tail is None else ir.If(truth(arith.compare("<", final, size)), case_body, tail)
    assert tail is not None
    end = arith.simplify(arith.minimum(arith.maximum(strip_rows - 1, 0), longest - 1))
    return ir.For(number, count, _let(final, end, tail))


def _peel_body(loop: ir.Stmt, ranges: Ranges) -> ir.For:
    assert isinstance(loop, ir.For)
    return replace(loop, body=_peel(loop.body, ranges))


def _fails_only_last(conditions: Sequence[tuple[arith.Expr, Ranges]], full_ranges: Ranges, main_ranges: Ranges) -> bool:
    """Test whether a condition may fail in the last iteration of a loop, but not in earlier ones."""
    analyzers: dict[int, tuple[Analyzer, Analyzer]] = {}
    for condition, inner in conditions:
        if id(inner) not in analyzers:
            analyzers[id(inner)] = Analyzer({**full_ranges, **inner}), Analyzer({**main_ranges, **inner})
        full_analyzer, main_analyzer = analyzers[id(inner)]
        if not full_analyzer.prove(condition) and main_analyzer.prove(condition):
            return True
    return False


def _conditions(stmt: ir.Stmt, ranges: Ranges) -> Iterator[tuple[arith.Expr, Ranges]]:
    """Iterate over the conjuncts of conditions and selects that read the loop's variable, each with the ranges of inner loops."""
    stack: list[tuple[ir.Stmt, Ranges]] = [(stmt, ranges)]
    variable = stmt.var if isinstance(stmt, ir.For) else None
    while stack:
        node, inner_ranges = stack.pop()
        if isinstance(node, ir.For) and node is not stmt:
            inner_ranges = {**inner_ranges, node.var: (0, arith.unwrap(node.extent - 1))}
        for condition in _direct_conditions(node):
            if isinstance(condition, ir.Index):
                yield from ((part, inner_ranges) for part in _parts(condition.index) if variable in arith.free_vars(part))
        stack.extend((child, inner_ranges) for child in ir.substatements(node))


def _direct_conditions(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """Iterate over the conditions of a statement, without those of its substatements."""
    if isinstance(stmt, ir.If):
        yield stmt.condition
    elif isinstance(stmt, ir.Store):
        yield from (item.condition for item in ir.walk_exprs(stmt.value) if isinstance(item, ir.Select))


def _parts(condition: arith.Expr) -> Iterator[arith.Expr]:
    """Iterate over the conjuncts of a condition."""
    if isinstance(condition, arith.And):
        for operand in condition.operands:
            yield from _parts(operand)
    else:
        yield condition


def _with_conditions(stmt: ir.Stmt, change: Callable[[arith.Expr, Ranges], arith.Expr | None], ranges: Ranges) -> ir.Stmt:
    """Apply a function to each conjunct of a statement's conditions, given the ranges of enclosing loops. The function returns None
    for a conjunct that always holds."""

    def remaining(condition: ir.Expr, inner: Ranges) -> ir.Expr | None:
        """Return the remaining condition; None if no conjunct remains."""
        if not isinstance(condition, ir.Index):
            return condition
        parts = [new for part in _parts(condition.index) if (new := change(part, inner)) is not None]
        conjunction: arith.Expr = arith.ONE
        for part in parts:
            conjunction = arith.logical_and(conjunction, part)
        return ir.Index(condition.dtype, conjunction) if parts else None

    def simplified_select(node: ir.Expr, inner: Ranges) -> ir.Expr | None:
        if not isinstance(node, ir.Select):
            return None
        condition = remaining(node.condition, inner)
        return node.then if condition is None else ir.Select(node.dtype, condition, node.then, node.otherwise)

    def rebuilt(node: ir.Stmt, inner: Ranges) -> ir.Stmt:
        match node:
            case ir.For(var=var, extent=extent, body=body):
                limits = ranges[var] if var in ranges else (0, arith.unwrap(extent - 1))
                return replace(node, body=rebuilt(body, {**inner, var: limits}))
            case ir.Seq(stmts=stmts):
                return ir.Seq(tuple(rebuilt(item, inner) for item in stmts))
            case ir.Alloc(body=body) | ir.Let(body=body) | ir.While(body=body):
                return replace(node, body=rebuilt(body, inner))
            case ir.Store():
                return Rewriter(expr=lambda value: simplified_select(value, inner)).stmt(node)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                then, rest = rebuilt(then, inner), remaining(condition, inner)
                if rest is None:
                    return then
                return ir.If(rest, then, None if otherwise is None else rebuilt(otherwise, inner))
        return node

    return rebuilt(stmt, dict(ranges))
