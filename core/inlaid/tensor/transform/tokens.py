"""Inserts dependence tokens between the stages of decoupled access-execute hardware, based on data flow between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import lcm

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Box, widened
from inlaid.tensor.analysis.stages import BoxAccess, Queue, Stage, Staged
from inlaid.tensor.analysis.tokens import LONGEST, apart, check_tokens
from inlaid.tensor.transform.lower_blocks import joined
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope

_Accesses = tuple[BoxAccess, ...]


def insert_tokens(program: ir.LoopProgram, stages: Sequence[Stage], scopes: Sequence[MemoryScope] = ()) -> ir.LoopProgram:
    """Insert tokens so that a stage waits for another one exactly if both access the same elements and one writes.

        for k in n: { inp = x[k]; acc = acc + inp }
    with a stage "load" that writes inp and a stage "compute" that writes acc, becomes
        push compute to load
        for k in n:
            pop compute to load; inp = x[k]; push load to compute
            pop load to compute; acc = acc + inp; push compute to load
        pop compute to load

    The program must have no blocks and no virtual threads, and its loops must not be peeled yet. Buffers that share bytes of
    `scopes` count as one. Allocations used by several stages move outside all loops, and adjacent tasks of a stage are sorted by
    the first task that waits for each. Raises `VerifyError` if tokens between neighboring stages cannot order a dependence, such as
    one between the first and the third of three stages without work in the second between them.
    """
    allocated: dict[ir.Buffer, None] = {}
    body = _Inserter(Staged(program, stages, scopes), allocated).part(program.body).stmt
    for buffer in reversed(allocated):
        body = ir.Alloc(buffer, body)
    result = replace(program, body=body)
    check_tokens(result, stages, scopes)
    return result


@dataclass
class _Part:
    """A statement with tokens of the queues `inside`. Per queue, `first` are the popping stage's accesses before its first wait;
    `last` are the pushing stage's accesses that no later wait in the statement covers. It always waits on the queues `waits`."""

    stmt: ir.Stmt
    first: dict[Queue, _Accesses]
    last: dict[Queue, _Accesses]
    inside: frozenset[Queue] = frozenset()
    waits: frozenset[Queue] = frozenset()


class _Inserter:
    def __init__(self, staged: Staged, allocated: dict[ir.Buffer, None]) -> None:
        self._staged = staged
        self._allocated = allocated

    def part(self, stmt: ir.Stmt) -> _Part:
        """Insert tokens into a statement."""
        staged = self._staged
        if staged.is_task(stmt):
            touches = staged.touches(stmt)
            first, last = (
                {queue: touches for queue in staged.queues if queue[end] in staged.stage_numbers(stmt)} for end in (1, 0)
            )
            return _Part(stmt, first, last)
        match stmt:
            case ir.For(kind=ir.ForKind.SERIAL | ir.ForKind.UNROLLED, body=body):
                return self._sequence(body, stmt)
            case ir.Seq() | ir.Alloc():
                return self._sequence(stmt, None)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                one, other = (self._sequence(side or ir.Seq(()), None) for side in (then, otherwise))
                first, last = (
                    {queue: a.get(queue, ()) + b.get(queue, ()) for queue in staged.queues}
                    for a, b in ((one.first, other.first), (one.last, other.last))
                )
                sides = one.stmt, other.stmt if otherwise is not None else None
                return _Part(ir.If(condition, *sides), first, last, one.inside | other.inside, one.waits & other.waits)
        raise staged.error(f"expected serial loops around tasks of several stages, found {type(stmt).__name__}", stmt)

    def _flat(self, stmt: ir.Stmt) -> Iterator[ir.Stmt]:
        """Iterate over the statements in order. Allocations shared by several stages are recorded and dropped."""
        if isinstance(stmt, ir.Alloc) and not self._staged.is_task(stmt):
            if not all(isinstance(var, arith.SizeVar) for dim in stmt.buffer.shape for var in arith.free_vars(dim)):
                raise self._staged.error(f"expected one size of {stmt.buffer} in all iterations, found {stmt.buffer.shape}", stmt)
            self._allocated[stmt.buffer] = None
        elif not isinstance(stmt, ir.Seq):
            yield stmt
            return
        for part in ir.substatements(stmt):
            yield from self._flat(part)

    def _sequence(self, stmt: ir.Stmt, loop: ir.For | None) -> _Part:
        """Insert tokens between statements that run in sequence, e.g. in a loop body."""
        staged = self._staged
        parts = self._gathered(list(map(self.part, self._flat(stmt))))
        pops: list[list[Queue]] = [[] for _ in parts]
        pushes: list[list[Queue]] = [[] for _ in parts]
        carried: dict[Queue, int] = {}
        inner_queues = frozenset[Queue]().union(*(part.inside for part in parts))
        waits = frozenset[Queue]().union(*(part.waits for part in parts))
        for queue in staged.queues:
            edges = self._edges(queue, parts, loop)
            for source, target, _ in edges:
                pushes[source].append(queue)
                pops[target].append(queue)
            carried[queue] = sum(distance for *_, distance in edges)
            if edges:
                inner_queues, waits = inner_queues | {queue}, waits | {queue}
        body = joined(
            *(
                joined(*self._tokens(before, False), part.stmt, *self._tokens(after, True))
                for before, part, after in zip(pops, parts, pushes, strict=True)
            )
        )
        result = _Part(body, {}, {}, inner_queues, waits)
        for queue in staged.queues:
            starts = [(part.first, part, queue in part_queues) for part, part_queues in zip(parts, pops, strict=True)]
            ends = [(part.last, part, queue in part_queues) for part, part_queues in zip(parts, pushes, strict=True)]
            result.first[queue], result.last[queue] = _until_wait(starts, queue), _until_wait(ends[::-1], queue)
        if loop is None:
            return result
        carried_queues = [queue for queue, count in carried.items() for _ in range(count)]
        result.stmt = joined(*self._tokens(carried_queues, True), replace(loop, body=body), *self._tokens(carried_queues, False))
        if not (isinstance(loop.extent, arith.Const) and loop.extent.value > 0):
            result.waits = frozenset(queue for queue, count in carried.items() if count)
        for side in (result.first, result.last):
            for queue, touches in side.items():
                side[queue] = tuple(_over(touch, loop) for touch in touches)
        return result

    def _gathered(self, parts: list[_Part]) -> list[_Part]:
        """Group tasks of one stage that the same task of another stage waits for, unless a dependence prevents it. For two virtual
        threads, the loads of the first thread then precede the loads of the second."""
        staged, end = self._staged, len(parts)

        def waiting(position: int) -> int:
            """Return the number of the first part that waits for part `position`; `end` if none waits."""
            candidates = ((other, queue) for other in range(position + 1, end) for queue in staged.queues)
            waiters = (
                other
                for other, queue in candidates
                if self._have_conflict(parts[position].last.get(queue, ()), parts[other].first.get(queue, ()))
            )
            return next(waiters, end)

        order = [(waiting(position), part) for position, part in enumerate(parts)]
        for position in range(end):
            for slot in range(position, 0, -1):
                (before, a), (after, b) = order[slot - 1 : slot + 1]
                in_one_stage = (
                    staged.stage_numbers(a.stmt) == staged.stage_numbers(b.stmt)
                    and staged.is_task(a.stmt)
                    and staged.is_task(b.stmt)
                )
                if before <= after or not in_one_stage or self._have_conflict(staged.touches(a.stmt), staged.touches(b.stmt)):
                    break
                order[slot - 1 : slot + 1] = order[slot], order[slot - 1]
        return [part for _, part in order]

    def _have_conflict(self, one: _Accesses, other: _Accesses) -> bool:
        return self._distance(one, other, 0, None) is not None

    def _tokens(self, queues: Sequence[Queue], push: bool) -> list[ir.Intrinsic]:
        return [self._staged.token(queue, push) for queue in queues]

    def _edges(self, queue: Queue, parts: Sequence[_Part], loop: ir.For | None) -> list[tuple[int, int, int]]:
        """Return a queue's tokens as edges: (part before the push, part after the pop, distance in iterations).

        Tokens of a queue are anonymous, so no token may be in flight while a part that contains tokens of the same queue runs. The
        token is popped before that part.
        """
        inner_users = [position for position, part in enumerate(parts) if queue in part.inside]
        waits: dict[int, tuple[int, int]] = {}
        for target, source in product(range(len(parts)), repeat=2):
            if loop is None and source >= target:
                continue
            distance = self._distance(parts[source].last.get(queue, ()), parts[target].first.get(queue, ()), source >= target, loop)
            if distance is None:
                continue
            obstacle = next(
                ((0, position) for position in inner_users if position > source), (1, inner_users[0]) if inner_users else None
            )
            distance_ahead, before = min((distance, target), obstacle) if obstacle else (distance, target)
            waits[before] = max(waits.get(before, (-distance_ahead, source)), (-distance_ahead, source))
        edges: list[tuple[int, int, int]] = []
        last_wait: tuple[float, float] = (-float("inf"), 0)
        for iteration in (0,) if loop is None else (0, 1):  # later iterations need not repeat the waits of the first
            edges = []
            for position, part in enumerate(parts):
                if position in waits:
                    distance_ahead, source = -waits[position][0], waits[position][1]
                    if (iteration - distance_ahead, source) > last_wait:
                        last_wait = (iteration - distance_ahead, source)
                        edges.append((source, position, distance_ahead))
                if queue in part.waits:
                    last_wait = max(last_wait, (iteration, position - 0.5))
        return edges

    def _distance(self, lasts: _Accesses, firsts: _Accesses, least: int, loop: ir.For | None) -> int | None:
        """Return the smallest distance in iterations, from `least` on, between conflicting accesses; None without conflict."""
        distances = [self._conflict(a, b, least, loop) for a, b in product(lasts, firsts) if a.written or b.written]
        return min((distance for distance in distances if distance is not None), default=None)

    def _conflict(self, a: BoxAccess, b: BoxAccess, least: int, loop: ir.For | None) -> int | None:
        if b.buffer not in self._staged.sharing(a.buffer):
            return None
        if a.buffer is not b.buffer:
            return least
        if loop is None:
            return None if apart(a.box, b.box, arith.Analyzer()) else 0
        ring = _ring((a, b), loop.var)
        for distance in range(least, ring + 1):
            if not _apart_at(a, b, loop.var, ring, arith.Const(distance)):
                return distance
        # Distances beyond the ring, for all multiples.
        rounds = arith.Var("rounds")
        is_disjoint = all(_apart_at(a, b, loop.var, ring, (rounds + 1) * ring + step, rounds) for step in range(1, ring + 1))
        return None if is_disjoint else ring + 1


def _until_wait(ends: Sequence[tuple[dict[Queue, _Accesses], _Part, bool]], queue: Queue) -> _Accesses:
    """Collect accesses in order through the first part that waits on `queue`. Stop before a part that has a token of `queue` of its
    own."""
    accesses: _Accesses = ()
    for touches, part, has_token in ends:
        if has_token:
            break
        accesses += touches.get(queue, ())
        if queue in part.waits:
            break
    return accesses


def _over(touch: BoxAccess, loop: ir.For) -> BoxAccess:
    """Widen an access to all iterations of a loop."""
    ranges: dict[arith.Expr, arith.Span] = {loop.var: (arith.ZERO, loop.extent - 1)}
    return replace(touch, box=tuple(widened(*pair, dim, ranges) for pair, dim in zip(touch.box, touch.buffer.shape, strict=True)))


def _ring(touches: Sequence[BoxAccess], var: arith.Var) -> int:
    """Return the number of iterations after which ring indices repeat; 1 without rings."""
    count = 1
    for node in (node for touch in touches for pair in touch.box for node in arith.walk(pair[0])):
        match node:
            case arith.FloorMod(operands=(index, arith.Const(value=size))) if var in arith.free_vars(index) and size > 0:
                count = lcm(count, size)
    return count if count <= LONGEST else 1


def _apart_at(a: BoxAccess, b: BoxAccess, var: arith.Var, ring: int, distance: arith.Expr, *other_vars: arith.Var) -> bool:
    """Test whether two accesses never overlap if the second occurs `distance` iterations after the first."""
    turn = arith.Var("turn")
    analyzer = arith.Analyzer(dict.fromkeys((turn, *other_vars), (0, None)))

    def at(box: Box, iteration: arith.Expr) -> Box:
        substitution: dict[arith.Expr, arith.Expr] = {var: iteration}
        return tuple(
            (analyzer.simplify(arith.substitute(first, substitution)), arith.substitute(size, substitution)) for first, size in box
        )

    iterations = (turn * ring + slot for slot in range(ring))
    return all(apart(at(a.box, iteration), at(b.box, iteration + distance), analyzer) for iteration in iterations)
