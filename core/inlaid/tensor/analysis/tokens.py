"""Checks dependence tokens: no token is left over, no pop deadlocks, and all dependences between stages are ordered."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Box
from inlaid.tensor.analysis.stages import BoxAccess, Queue, Stage, Staged
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope

LONGEST = 8
"""Maximum number of copies in a ring buffer that the check distinguishes if extents are symbolic."""
TRIPS = (0, 1, 2, LONGEST + 1)
"""Iteration counts tried for a loop of symbolic extent. They are sufficient because tokens balance in each iteration, so that the
order of accesses repeats with the period of the ring."""
MAX_CHOICES = 1024
"""Maximum number of combinations of symbolic extents and undecided conditions that are tried."""


def check_tokens(program: ir.LoopProgram, stages: Sequence[Stage], scopes: Sequence[MemoryScope] = ()) -> None:
    """Check the dependence tokens of a program. The program must have no blocks.

    Every queue must be empty at the end, on each path: an iteration of a loop pushes as many tokens as it pops, unless the extent
    is constant, and both branches of a condition push and pop equally. No pop may deadlock: a push of its token precedes it in
    program order. If two tasks of different stages access the same elements, or bytes of `scopes`, and one writes, the later must
    wait for the earlier. Stages run in order, so the n-th pop of a queue takes the n-th token, which makes the check exact if
    control is constant. Symbolic extents are tried with `TRIPS`, and an undecided condition with one outcome for all iterations.

    Raises `VerifyError`, which shows the program and marks the offending statement.
    """
    staged = Staged(program, stages, scopes)
    for queue in staged.queues:
        surplus = _added(staged, queue, program.body, 0)
        if surplus:
            raise staged.error(f"expected no token {_queue_text(staged, queue)} at the end, found {surplus}", program.body)
    for choice in _choices(staged):
        _check_order(staged, choice)


def _queue_text(staged: Staged, queue: Queue) -> str:
    return f"from {staged.names[queue[0]]} to {staged.names[queue[1]]}"


# --- balance ----------------------------------------------------------------------------------------------------------


def _added(staged: Staged, queue: Queue, stmt: ir.Stmt, token_count: int) -> int:
    """Return the number of tokens that a statement adds to a queue, which holds at least `token_count` tokens before it runs."""
    token = staged.token_queue(stmt)
    if token is not None:
        if token == (queue, False) and not token_count:
            raise staged.error(f"expected a token {_queue_text(staged, queue)}, found none: the pop deadlocks", stmt)
        return 0 if token[0] != queue else 1 if token[1] else -1
    if staged.is_task(stmt):
        return 0
    if isinstance(stmt, ir.For):
        return _added_by_loop(staged, queue, stmt, token_count)
    if isinstance(stmt, ir.If):
        branch_changes = {_added(staged, queue, side, token_count) for side in ir.substatements(stmt)}
        if len(branch_changes | ({0} if stmt.otherwise is None else set())) > 1:
            raise staged.error(f"expected equal numbers of tokens {_queue_text(staged, queue)} in both branches", stmt)
        return branch_changes.pop()
    balance = 0
    for part in ir.substatements(stmt):
        balance += _added(staged, queue, part, token_count + balance)
    return balance


def _added_by_loop(staged: Staged, queue: Queue, loop: ir.For, token_count: int) -> int:
    extent = arith.simplify(loop.extent)
    if isinstance(extent, arith.Const) and extent.value < 1:
        return 0
    tokens_per_iteration = _added(staged, queue, loop.body, token_count)
    if tokens_per_iteration and not isinstance(extent, arith.Const):
        raise staged.error(
            f"each iteration of loop {loop.var} adds {tokens_per_iteration} tokens {_queue_text(staged, queue)}, expected 0", loop
        )
    count = extent.value if isinstance(extent, arith.Const) else 1
    if tokens_per_iteration < 0 and count > 1:  # the last iteration finds the fewest
        _added(staged, queue, loop.body, max(token_count + (count - 1) * tokens_per_iteration, 0))
    return count * tokens_per_iteration


# --- order ------------------------------------------------------------------------------------------------------------


def _choices(staged: Staged) -> Iterator[Mapping[object, int]]:
    """Iterate over combinations of iteration counts, one for each distinct extent, and outcomes of conditions."""
    alternatives: dict[object, tuple[int, ...]] = {}
    stack = [staged.program.body]
    while stack:
        stmt = stack.pop()
        if staged.is_task(stmt):
            continue
        if isinstance(stmt, ir.For) and not isinstance(arith.simplify(stmt.extent), arith.Const):
            alternatives[arith.simplify(stmt.extent)] = TRIPS
        if isinstance(stmt, ir.If):
            alternatives[stmt] = (0, 1)
        stack += ir.substatements(stmt)
    count = 1
    for values in alternatives.values():
        count *= len(values)
    if count > MAX_CHOICES:
        raise staged.error(f"expected at most {MAX_CHOICES} paths through control, found {count}", staged.program.body)
    for choice in product(*alternatives.values()):
        yield dict(zip(alternatives, choice, strict=True))


def _check_order(staged: Staged, choice: Mapping[object, int]) -> None:
    """Check that dependences are ordered. A vector clock per stage counts the tasks of each stage that are known to be done."""

    def decide(stmt: ir.Stmt, value: arith.Expr | None) -> int:
        if isinstance(value, arith.Const):
            return max(value.value, 0)
        return choice[arith.simplify(stmt.extent) if isinstance(stmt, ir.For) else stmt]

    analyzer = arith.Analyzer()
    stages = range(len(staged.names))
    clocks = [[0] * len(stages) for _ in stages]
    tokens: dict[Queue, deque[tuple[int, ...]]] = defaultdict(deque)
    access_history: dict[ir.Buffer, list[tuple[int, BoxAccess, Box]]] = defaultdict(list)
    for task in staged.expand(decide):
        clock = clocks[task.stage]
        if task.queue is not None and task.push:
            tokens[task.queue].append(tuple(clock))
        elif task.queue is not None:
            clock[:] = map(max, clock, tokens[task.queue].popleft())
        else:
            clock[task.stage] += 1
            for touch in staged.touches(task.stmt):
                box = _box(touch.box, task.values)
                for buffer in staged.sharing(touch.buffer):
                    for number, other, other_box in access_history[buffer]:
                        unordered = number > clock[other.stage] and (touch.written or other.written)
                        if unordered and not (buffer is touch.buffer and apart(box, other_box, analyzer)):
                            verb = "writes" if touch.written else "reads"
                            prior_access = f"{staged.names[other.stage]} has {'written' if other.written else 'read'} {buffer}"
                            problem = f"{staged.names[task.stage]} {verb} {touch.buffer} without waiting until {prior_access}"
                            raise staged.error(f"tokens must order these stages: {problem}", task.stmt)
                buffer_history = access_history[touch.buffer]
                buffer_history[:] = [
                    item for item in buffer_history if any(item[0] > stage_clock[item[1].stage] for stage_clock in clocks)
                ]
                buffer_history.append((clock[task.stage], touch, box))


def _box(box: Box, values: Mapping[arith.Expr, arith.Expr]) -> Box:
    def resolve(index: arith.Expr) -> arith.Expr:
        return arith.simplify(arith.substitute(index, values)) if arith.free_vars(index) else arith.simplify(index)

    return tuple((resolve(first), resolve(extent)) for first, extent in box)


def apart(a: Box, b: Box, analyzer: arith.Analyzer) -> bool:
    """Test whether two boxes are provably disjoint."""
    return any(
        analyzer.prove(arith.compare("<=", first + extent, other)) or analyzer.prove(arith.compare("<=", other + size, first))
        for (first, extent), (other, size) in zip(a, b, strict=True)
    )
