"""The last iteration of a loop taken off, where only it must check bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from inlaid import arith
from inlaid.arith import Analyzer
from inlaid.tensor import ir
from inlaid.tensor.primitives import AnnotationKey
from inlaid.tensor.transform.lower_blocks import truth
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.strips import STRIP, in_strips
from inlaid.types import dtype

Ranges = dict[arith.Expr, tuple[arith.Dim | None, arith.Dim | None]]
REMAINDERS = AnnotationKey("remainders", int)
"""Of a loop over pieces of unrolled rows, or of vectors: each number of these that may be left has code of its own, which asks for
none of them. The value is how many elements a row or a vector counts for."""
_LONGEST = 2 * STRIP - 1
"""Rows of the last strip of a tile, where each number of them has code of its own: 28 rows of code, where the remainders of a tile
of 12 are 66."""
_PLAIN = (ir.ForKind.SERIAL, ir.ForKind.PARALLEL)


def peel_loops(program: ir.LoopProgram) -> ir.LoopProgram:
    """Loops whose last iteration alone can fail a condition, of a statement or a choice of values, run that iteration apart.

        for i in 8: for j in 14 unrolled: if 14*i + j < 100: ...
    becomes
        for i in 7: for j in 14 unrolled: ...
        for j in 14 unrolled: if 98 + j < 100: ...

    and, where the extent is not known,

        for i in (n + 13) // 14: for j in 14 unrolled: if 14*i + j < n: ...
    becomes
        for i in n // 14: for j in 14 unrolled: ...
        if n // 14 < (n + 13) // 14: let w = n // 14: for j in 14 unrolled: if 14*w + j < n: ...

    A loop that does nothing once a condition of unknown limit fails ends there:

        for i in 16: if 16*c + i < n: ...
    becomes
        for i in min(16, max(n - 16*c, 0)): ...

    so that the body of the loop, which is where the time goes, checks nothing. What a loop around others asks once in an iteration
    stays as it is. The program has no blocks.
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
    inside: Ranges = {**ranges, loop.var: (0, arith.unwrap(loop.extent - 1))}
    if loop.kind in _PLAIN:
        if isinstance(loop.extent, arith.Const) and loop.extent.value > 1:
            last = loop.extent.value - 1
            most: Ranges = {**ranges, loop.var: (0, last - 1)}
            if _last_alone(_often(loop), inside, most):
                main = _without(
                    replace(loop, extent=arith.Const(last)), lambda part, inner: None if Analyzer(inner).prove(part) else part, most
                )
                tail = Rewriter({loop.var: arith.Const(last)}).stmt(loop.body)
                return ir.Seq((_peel_body(main, most), _peel(tail, ranges)))
        cut = _symbolic_loop(loop, ranges)
        if cut is not None:
            return cut
    return replace(loop, body=_peel(loop.body, inside))


def _often(loop: ir.For) -> list[tuple[arith.Expr, Ranges]]:
    """The conditions that are asked where a loop's time goes: what a loop around others asks once in an iteration costs less than
    its code twice."""
    nested = any(isinstance(stmt, ir.For) for stmt in ir.walk_stmts(loop.body))
    return [(condition, inner) for condition, inner in _conditions(loop, {}) if inner or not nested]


@dataclass(frozen=True)
class _Pieces:
    """The condition `size * var + rest < limit` on a loop's variable, where `rest`, which only loops inside change, lies in
    [0, size)."""

    size: int
    rest: arith.Expr
    limit: arith.Expr

    @property
    def count(self) -> arith.Expr:
        """Pieces up to the limit, the last one perhaps not whole."""
        return arith.ceildiv(self.limit, self.size)

    @property
    def whole(self) -> arith.Expr:
        """Pieces that lie before the limit entirely: all of them where one element of each is asked for."""
        return self.count if self.rest == arith.ZERO else self.limit // self.size

    def same(self, other: _Pieces | None) -> bool:
        """Whether two conditions cut a loop at the same place."""
        if other is None or self.size != other.size:
            return False
        return self.limit == other.limit or Analyzer().equal(self.limit, other.limit)


class _Limits:
    """What conditions say of a loop's variable, each worked out once."""

    def __init__(self, loop: ir.For) -> None:
        self._variable = loop.var
        self._known: dict[Hashable, _Pieces | None] = {}

    def pieces(self, condition: arith.Expr, inner: Ranges) -> _Pieces | None:
        """What a condition says; None for any that says something else. `inner` are the ranges of loops inside."""
        if not isinstance(condition, arith.Compare) or self._variable not in arith.free_vars(condition):
            return None
        key = (condition, *inner.items())
        if key not in self._known:
            self._known[key] = self._pieces(condition, inner)
        return self._known[key]

    def _pieces(self, condition: arith.Compare, inner: Ranges) -> _Pieces | None:
        if condition.op == "<":
            place, end = condition.operands
            found = arith.affine(place - end, self._variable)
            if found is None or not isinstance(found[0], arith.Const) or found[0].value < 1:
                return None
            start = arith.substitute(found[1], dict.fromkeys(inner, arith.ZERO))
            rest = arith.simplify(found[1] - start)
            low, high = Analyzer(inner).bounds(rest)
            if low is not None and high is not None and low >= 0 and high < found[0].value:
                return _Pieces(found[0].value, rest, arith.simplify(arith.ZERO - start))
        return None


def _symbolic_loop(loop: ir.For, ranges: Ranges) -> ir.Stmt | None:
    """A loop over pieces of an unknown length, the last piece apart; None where no condition says that it is such a loop, and where
    loops inside can leave out what there is not."""
    found: list[_Pieces] = []
    limits = _Limits(loop)
    for part, pieces in _limits_of(loop, limits):
        if _left_to_others(loop, part):
            continue
        if not isinstance(loop.extent, arith.Const) and Analyzer().equal(pieces.count, loop.extent):
            found.append(pieces)
        elif not found and _all_under(loop, pieces, limits):
            ends = (pieces.whole, pieces.count)
            whole, extent = (arith.simplify(arith.minimum(arith.maximum(end, 0), loop.extent)) for end in ends)
            return _cut(loop, [pieces], limits, whole, extent, ranges)
    if not found:
        return None
    # Limits that take as many pieces may leave different numbers of them whole.
    whole = arith.simplify(reduce(arith.minimum, (pieces.whole for pieces in found)))
    return _cut(loop, found, limits, whole, loop.extent, ranges)


def _limits_of(loop: ir.For, limits: _Limits) -> list[tuple[arith.Expr, _Pieces]]:
    """The limits that conditions set, each once, with a condition: one that asks for more than the first element of a piece, where
    one does."""
    found: list[tuple[arith.Expr, _Pieces]] = []
    for part, inner in _conditions(loop, {}):
        pieces = limits.pieces(part, inner)
        if pieces is None:
            continue
        place = next((place for place, (_, other) in enumerate(found) if pieces.same(other)), None)
        if place is None:
            found.append((part, pieces))
        elif found[place][1].rest == arith.ZERO:
            found[place] = part, pieces
    return found


def _left_to_others(loop: ir.For, condition: arith.Expr) -> bool:
    """Whether a loop inside ends where a condition begins to fail: then nothing need be written twice for it."""
    used = arith.free_vars(condition)
    return any(
        other == condition and (found := limits.pieces(other, inner)) is not None and _all_under(stmt, found, limits)
        for stmt in ir.walk_stmts(loop.body)
        if isinstance(stmt, ir.For) and stmt.kind in _PLAIN and stmt.var in used
        for limits in (_Limits(stmt),)
        for other, inner in _conditions(stmt, {})
    )


def _all_under(loop: ir.For, pieces: _Pieces, limits: _Limits) -> bool:
    """Whether iterations in which a condition fails leave nothing behind, for a limit that is not known."""
    if not any(isinstance(var, arith.SizeVar) for var in arith.free_vars(pieces.limit)):
        return False
    local = {stmt.buffer for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Alloc)}

    def idle(stmt: ir.Stmt, inner: Ranges) -> bool:
        match stmt:
            case ir.Store(buffer=buffer):
                return buffer in local
            case ir.Intrinsic():
                return all(region.buffer in local for region in stmt.touching(ir.Access.WRITE)) and bool(stmt.regions)
            case ir.If(condition=ir.Index(index=index), otherwise=otherwise):
                if any(pieces.same(limits.pieces(part, inner)) for part in _parts(index)):
                    return otherwise is None or idle(otherwise, inner)
            case ir.For(var=var, extent=extent):
                inner = {**inner, var: (0, arith.unwrap(extent - 1))}
        return all(idle(child, inner) for child in ir.substatements(stmt))

    return idle(loop.body, {})


def _cut(loop: ir.For, found: Sequence[_Pieces], limits: _Limits, whole: arith.Expr, extent: arith.Expr, ranges: Ranges) -> ir.Stmt:
    """The loop over `whole` pieces, where conditions hold; what is left of the last one apart, where `extent` is more."""
    read = _reader(loop, found, limits)
    most: Ranges = {**ranges, loop.var: (0, arith.unwrap(whole - 1))}
    main = _without(replace(loop, extent=whole), lambda part, known: None if read(part, known) else part, most)
    main = _peel_body(main, most)
    if all(pieces.rest == arith.ZERO for pieces in found):
        return main
    # What is left names the number of whole pieces at every access: bound once, it is one variable there.
    start = arith.Var(f"{loop.var.name}_end")
    ranges = {**ranges, start: (0, None)}
    last: dict[arith.Expr, arith.Expr] = {loop.var: start}
    unit = dict(loop.annotations).get(REMAINDERS.name)
    tail: ir.Stmt | None = None
    if len(found) == 1:
        tail = _strips(loop, found[0], limits, last, ranges, unit)
        if tail is None and unit:
            left = arith.simplify(found[0].limit - start * found[0].size)
            tail = _remainders(loop, found[0], limits, loop.body, left, unit, last, ranges)
    if tail is None:
        tail = _peel(Rewriter(last).stmt(loop.body), ranges)
    return ir.Seq((main, ir.If(truth(arith.compare("<", whole, extent)), _bound(start, whole, tail))))


def _bound(variable: arith.Var, value: arith.Expr, body: ir.Stmt) -> ir.Stmt:
    return ir.Let(variable, ir.Index(dtype("int64"), value), body)


def _reader(loop: ir.For, found: Sequence[_Pieces], limits: _Limits) -> Callable[[arith.Expr, Ranges], _Pieces | None]:
    """A function that tells which of these conditions a part of a condition is, given the ranges of the loops around it."""
    inside = {stmt.var for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.For)}

    def read(part: arith.Expr, known: Ranges) -> _Pieces | None:
        pieces = limits.pieces(part, {var: span for var, span in known.items() if var in inside})
        return pieces if pieces is not None and any(map(pieces.same, found)) else None

    return read


def _remainders(
    loop: ir.For,
    pieces: _Pieces,
    limits: _Limits,
    body: ir.Stmt,
    left: arith.Expr,
    unit: int,
    last: Mapping[arith.Expr, arith.Expr],
    ranges: Ranges,
    most: int | None = None,
) -> ir.Stmt:
    """Code of its own for each number of rows or vectors, `unit` elements each, that may be left of the last piece: `left` elements
    are. `most` is the greatest number that there is code for; the default is what is less than a piece."""
    read, count = _reader(loop, [pieces], limits), arith.Var(f"{loop.var.name}_left")
    tail: ir.Stmt | None = None
    for end in range(most or pieces.size - (unit == 1), 0, -unit):

        def among(part: arith.Expr, known: Ranges, end: int = end) -> arith.Expr:
            own = read(part, known)
            if own is None:
                return part
            if Analyzer(known).simplify(own.rest % unit) == arith.ZERO:
                return arith.compare("<", own.rest, end)
            some = arith.logical_or(arith.compare("<", own.rest, end - unit), part)
            return arith.logical_and(arith.compare("<", own.rest, end), some)

        some = _peel(Rewriter(last).stmt(_without(body, among, ranges)), ranges)
        tail = some if tail is None else ir.If(truth(arith.compare("<=", count, end)), some, tail)
    assert tail is not None
    return _bound(count, left, tail)


def _strips(
    loop: ir.For, pieces: _Pieces, limits: _Limits, last: Mapping[arith.Expr, arith.Expr], ranges: Ranges, unit: int | None
) -> ir.Stmt | None:
    """What is left of the last piece as a loop over strips of its rows; None where its rows are no unrolled loops, or too few.

    Where each number of rows that may be left has code of its own (`REMAINDERS`), the last strip has up to `_LONGEST` rows, which
    keep the processor busy where those of one or two would not; numbers above have no code.
    """

    def asks(condition: arith.Expr, row: arith.Var) -> bool:
        part = limits.pieces(condition, {row: (0, pieces.size - 1)})
        return part is not None and part.rest == row and pieces.same(part)

    rows = frozenset(
        inner.var
        for inner in ir.walk_stmts(loop.body)
        if isinstance(inner, ir.For) and inner.kind is ir.ForKind.UNROLLED and inner.extent == arith.Const(pieces.size)
        if any(asks(part, inner.var) for part, _ in _conditions(inner, {}))
    )
    number = arith.Var(f"{loop.var.name}_s")
    longest = _LONGEST if unit else STRIP
    if not rows or pieces.size - bool(unit) <= longest:
        return None
    strip = in_strips(loop.body, rows, number, asks, longest)
    if strip is None:
        return None
    left = arith.simplify(pieces.limit - last[loop.var] * pieces.size)
    # A piece is a few strips, which says how long the loop is at most.
    count = arith.maximum(left // STRIP, 1) if unit else arith.ceildiv(left, STRIP)
    count = arith.simplify(arith.minimum(count, -((1 - pieces.size) // STRIP)))
    inside: Ranges = {**ranges, number: (0, arith.unwrap(count - 1))}
    if unit:
        left = arith.simplify(left - number * STRIP)
        rows_here = arith.select(arith.compare("<=", left, longest), left, STRIP)
        shifted = replace(pieces, limit=arith.simplify(pieces.limit - number * STRIP))
        return ir.For(number, count, _remainders(loop, shifted, _Limits(loop), strip, rows_here, unit, last, inside, longest))
    # The first row of a strip is always there; asked for once, it is known to all that follows.
    first = arith.compare("<", last[loop.var] * pieces.size + number * STRIP, pieces.limit)
    return ir.For(number, count, ir.If(truth(first), _peel(Rewriter(last).stmt(strip), inside)))


def _peel_body(loop: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    assert isinstance(loop, ir.For)
    return replace(loop, body=_peel(loop.body, ranges))


def _last_alone(conditions: Sequence[tuple[arith.Expr, Ranges]], whole: Ranges, most: Ranges) -> bool:
    """Whether one of the conditions may fail in the loop, but not before its last iteration."""
    known: dict[int, tuple[Analyzer, Analyzer]] = {}
    for condition, inner in conditions:
        if id(inner) not in known:
            known[id(inner)] = Analyzer({**whole, **inner}), Analyzer({**most, **inner})
        every, before = known[id(inner)]
        if not every.prove(condition) and before.prove(condition):
            return True
    return False


def _conditions(stmt: ir.Stmt, ranges: Ranges) -> Iterator[tuple[arith.Expr, Ranges]]:
    """The parts of the conditions of statements and choices that read the loop's variable, with the ranges of the loops inside."""
    stack: list[tuple[ir.Stmt, Ranges]] = [(stmt, ranges)]
    variable = stmt.var if isinstance(stmt, ir.For) else None
    while stack:
        node, known = stack.pop()
        if isinstance(node, ir.For) and node is not stmt:
            known = {**known, node.var: (0, arith.unwrap(node.extent - 1))}
        for condition in _asked(node):
            if isinstance(condition, ir.Index):
                yield from ((part, known) for part in _parts(condition.index) if variable in arith.free_vars(part))
        stack.extend((child, known) for child in ir.substatements(node))


def _asked(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """The conditions of a statement itself."""
    if isinstance(stmt, ir.If):
        yield stmt.condition
    elif isinstance(stmt, ir.Store):
        yield from (item.condition for item in ir.walk_exprs(stmt.value) if isinstance(item, ir.Select))


def _parts(condition: arith.Expr) -> Iterator[arith.Expr]:
    """The conditions that are joined by `and`."""
    if isinstance(condition, arith.And):
        for operand in condition.operands:
            yield from _parts(operand)
    else:
        yield condition


def _without(stmt: ir.Stmt, change: Callable[[arith.Expr, Ranges], arith.Expr | None], ranges: Ranges) -> ir.Stmt:
    """The statement with what a function makes of each part of its conditions, given the ranges of the loops around; None for a
    part that holds throughout."""

    def left(condition: ir.Expr, inner: Ranges) -> ir.Expr | None:
        """What must still be asked of a condition; None for nothing."""
        if not isinstance(condition, ir.Index):
            return condition
        parts = [new for part in _parts(condition.index) if (new := change(part, inner)) is not None]
        joined: arith.Expr = arith.ONE
        for part in parts:
            joined = arith.logical_and(joined, part)
        return ir.Index(condition.dtype, joined) if parts else None

    def chosen(node: ir.Expr, inner: Ranges) -> ir.Expr | None:
        if not isinstance(node, ir.Select):
            return None
        condition = left(node.condition, inner)
        return node.then if condition is None else ir.Select(node.dtype, condition, node.then, node.otherwise)

    def known(node: ir.Stmt, inner: Ranges) -> ir.Stmt:
        match node:
            case ir.For(var=var, extent=extent, body=body):
                limits = ranges[var] if var in ranges else (0, arith.unwrap(extent - 1))
                return replace(node, body=known(body, {**inner, var: limits}))
            case ir.Seq(stmts=stmts):
                return ir.Seq(tuple(known(item, inner) for item in stmts))
            case ir.Alloc(body=body) | ir.Let(body=body) | ir.While(body=body):
                return replace(node, body=known(body, inner))
            case ir.Store():
                return Rewriter(expr=lambda value: chosen(value, inner)).stmt(node)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                then, rest = known(then, inner), left(condition, inner)
                if rest is None:
                    return then
                return ir.If(rest, then, None if otherwise is None else known(otherwise, inner))
        return node

    return known(stmt, dict(ranges))
