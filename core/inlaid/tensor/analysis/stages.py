"""Assigns the statements of a loop program to the stages of decoupled access-execute hardware.

Such hardware has a few stages, e.g. units that load, compute and store. Each stage runs its statements in order, and waits for
another stage only at a dependence token. A *task* is a maximal statement that one stage runs. Loops and conditions around tasks of
several stages are *control*, executed by the unit that issues the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Box, statement_buffers, touched
from inlaid.tensor.analysis.memory_scopes import places
from inlaid.tensor.text import show
from inlaid_runtime import arith
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import MemoryScope

Queue = tuple[int, int]
"""A token queue: the number of the stage that pushes tokens, and the number of the stage that pops them."""


@dataclass(frozen=True)
class Stage:
    """A hardware unit that runs its statements in order. It runs all statements that write buffers of the memory scopes `writes`
    ("" is main memory). Stages declared consecutively by a target are neighbors, with a token queue in each direction."""

    name: str
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BoxAccess:
    """A box of a buffer that a task accesses, in terms of the loops around the task."""

    stage: int
    buffer: ir.Buffer
    box: Box
    written: bool


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A task, or the push or pop of a token if `queue` is given, with the values of the enclosing loop variables."""

    stage: int
    stmt: ir.Stmt
    values: Mapping[arith.Expr, arith.Expr]
    queue: Queue | None = None
    push: bool = False


class Staged:
    """A program and the hardware stages that run it. The program must have no blocks or virtual threads. Raises `VerifyError` if no
    stage runs a statement."""

    def __init__(self, program: ir.LoopProgram, stages: Sequence[Stage], scopes: Sequence[MemoryScope] = ()) -> None:
        """`scopes` are the memory scopes whose buffers may share bytes, see `memory_scopes.places`."""
        self.program = program
        self.names = [stage.name for stage in stages]
        self.queues: list[Queue] = [queue for one, other in pairwise(range(len(stages))) for queue in ((one, other), (other, one))]
        self._tokens = {self.token(queue, push).name: (queue, push) for queue in self.queues for push in (True, False)}
        self._stage_by_scope = {scope: number for number, stage in enumerate(stages) for scope in stage.writes}
        self._stages: dict[ir.Stmt, frozenset[int]] = {}
        self._tasks: dict[ir.Stmt, bool] = {}
        self._touches: dict[ir.Stmt, tuple[BoxAccess, ...]] = {}
        self._shared = _shared(program, scopes)

    def token(self, queue: Queue, push: bool) -> ir.Intrinsic:
        """Return the statement that pushes or pops a token."""
        return ir.Intrinsic(f"{'push' if push else 'pop'}.{self.names[queue[0]]}.{self.names[queue[1]]}", ())

    def token_queue(self, stmt: ir.Stmt) -> tuple[Queue, bool] | None:
        """Return the queue of a token statement, and whether the statement pushes; None for other statements."""
        return self._tokens.get(stmt.name) if isinstance(stmt, ir.Intrinsic) else None

    def stage_numbers(self, stmt: ir.Stmt) -> frozenset[int]:
        """Return the stages that run parts of a statement."""
        if stmt not in self._stages:
            inner = frozenset[int]().union(*map(self.stage_numbers, ir.substatements(stmt)))
            self._stages[stmt] = inner | self._direct_stages(stmt)
        return self._stages[stmt]

    def _direct_stages(self, stmt: ir.Stmt) -> set[int]:
        token = self.token_queue(stmt)
        if token is not None:
            (source, target), push = token
            return {source if push else target}
        written_buffers = [stmt.buffer] if isinstance(stmt, ir.Store) else []
        if isinstance(stmt, ir.Intrinsic):
            written_buffers = [region.buffer for region in stmt.touching(ir.AccessMode.WRITE)]
            if not written_buffers and stmt.regions == ():
                raise self.error(f"an intrinsic must write a buffer or be a token, got {stmt.name}", stmt)
        written_buffers = [buffer for buffer in written_buffers if buffer.scope != "register"]  # every stage has its own
        for buffer in written_buffers:
            if buffer.scope not in self._stage_by_scope:
                raise self.error(f"a stage must write the scope of {buffer}, got scope {buffer.scope!r}", stmt)
        stages = {self._stage_by_scope[buffer.scope] for buffer in written_buffers}
        if len(stages) > 1:
            raise self.error(
                f"expected writes of one stage, found {', '.join(self.names[stage] for stage in sorted(stages))}", stmt
            )
        return stages

    def is_task(self, stmt: ir.Stmt) -> bool:
        """Test whether a single stage runs all of a statement, and the statement contains no token."""
        if stmt not in self._tasks:
            self._tasks[stmt] = len(self.stage_numbers(stmt)) < 2 and not any(map(self.token_queue, ir.walk_stmts(stmt)))
        return self._tasks[stmt]

    def touches(self, task: ir.Stmt) -> tuple[BoxAccess, ...]:
        """Return the accesses of a task to buffers that other tasks can access."""
        if task not in self._touches:
            statements = list(ir.walk_stmts(task))
            local_buffers = {stmt.buffer for stmt in statements if isinstance(stmt, ir.Alloc)}
            accessed = set[ir.Buffer]().union(*map(statement_buffers, statements)) - local_buffers
            stage = next(iter(self.stage_numbers(task)), 0)
            self._touches[task] = tuple(
                BoxAccess(stage, buffer, box, bool(is_write))
                for buffer in sorted(accessed, key=str)
                for is_write, boxes in enumerate(touched(task, buffer))
                for box in boxes
            )
        return self._touches[task]

    def sharing(self, buffer: ir.Buffer) -> frozenset[ir.Buffer]:
        """Return the buffers that share bytes with a buffer, including the buffer itself."""
        return self._shared.get(buffer, frozenset((buffer,)))

    def allocations(self) -> Iterator[ir.Buffer]:
        """Iterate over the buffers that are allocated outside of tasks."""
        stack = [self.program.body]
        while stack:
            stmt = stack.pop()
            if not self.is_task(stmt):
                stack += ir.substatements(stmt)
                if isinstance(stmt, ir.Alloc):
                    yield stmt.buffer

    def expand(self, decide: Callable[[ir.Stmt, arith.Expr | None], int]) -> Iterator[Task]:
        """Iterate over the tasks and tokens of a run, in program order. `decide(stmt, value)` returns the number of iterations of a
        control loop, or the outcome of a control condition. `value` is the extent or the condition in terms of sizes (None if it
        depends on data)."""
        yield from self._expand(self.program.body, {}, decide)

    def _expand(
        self, stmt: ir.Stmt, values: Mapping[arith.Expr, arith.Expr], decide: Callable[[ir.Stmt, arith.Expr | None], int]
    ) -> Iterator[Task]:
        token = self.token_queue(stmt)
        if token is not None or self.is_task(stmt):
            for stage in self.stage_numbers(stmt):
                yield Task(stage, stmt, values, *(token or ()))
            return
        match stmt:
            case ir.For(var=var, extent=extent):
                for number in range(decide(stmt, self._value(extent, values))):
                    yield from self._expand(stmt.body, {**values, var: arith.Const(number)}, decide)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                index = condition.index if isinstance(condition, ir.Index) else None
                holds = decide(stmt, None if index is None else self._value(index, values))
                if holds or otherwise is not None:
                    yield from self._expand(then if holds or otherwise is None else otherwise, values, decide)
            case ir.Let(var=var, value=ir.Index(index=index), body=body):
                value = self._value(index, values)
                if value is None:
                    raise self.error("control around tasks must depend only on sizes, got data", stmt)
                yield from self._expand(body, {**values, var: value}, decide)
            case ir.Seq() | ir.Alloc():
                for part in ir.substatements(stmt):
                    yield from self._expand(part, values, decide)
            case _:
                raise self.error(f"tasks of several stages must be inside loops or conditions, got {type(stmt).__name__}", stmt)

    @staticmethod
    def _value(index: arith.Expr, values: Mapping[arith.Expr, arith.Expr]) -> arith.Expr | None:
        return None if arith.reads_data(index) else arith.simplify(arith.substitute(index, values))

    def error(self, problem: str, stmt: ir.Stmt) -> VerifyError:
        return VerifyError(f"{self.program.name}: {problem}\n{show(self.program, mark=stmt)}")


def _shared(program: ir.LoopProgram, scopes: Sequence[MemoryScope]) -> dict[ir.Buffer, frozenset[ir.Buffer]]:
    """Map each buffer to the buffers that share bytes or a register with it."""
    sharing: dict[ir.Buffer, frozenset[ir.Buffer]] = {}
    for scope in scopes:
        spans = {
            buffer: (first, first + (1 if scope.count else _bytes(buffer))) for buffer, first in places(program, scope).items()
        }
        for buffer, (first, end) in spans.items():
            sharing[buffer] = frozenset(
                {other for other, (start, stop) in spans.items() if start < end and first < stop} | {buffer}
            )
    return sharing


def _bytes(buffer: ir.Buffer) -> int:
    max_elements = arith.bounds(arith.product(buffer.shape))[1]
    assert max_elements is not None, f"placed buffer {buffer} must have a bounded size"
    return max_elements * buffer.dtype.bytes
