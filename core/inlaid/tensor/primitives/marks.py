"""Primitives that set the execution mode of a loop: parallel, vectorize, unroll, bind, vthread, annotate."""

from __future__ import annotations

from typing import Any

from inlaid.tensor import ir
from inlaid.tensor.primitives.independence import check_independent
from inlaid.tensor.primitives.lookup import failed, last_loop, loop_path
from inlaid.tensor.transform.paths import Path, loops_around, rebuilt, with_body
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class AnnotationKey:
    """A key for loop annotations, declared by the pass that reads it; its values have the given type."""

    name: str
    type: type[int] | type[str] | type[bool]


TASKS = AnnotationKey("tasks", bool)
"""Marks the loop whose direct statements are the tasks of enclosing virtual threads."""


def parallel(program: ir.LoopProgram, loop: Var) -> ir.LoopProgram:
    """Allow the iterations of a loop to run on several threads.

        for i: block    becomes    for i, parallel: block

    Raises `ScheduleError` if the iterations are not independent.
    """
    return _marked_if_independent(program, loop_path(program, loop), ir.ForKind.PARALLEL)


def vectorize(program: ir.LoopProgram, loop: Var) -> ir.LoopProgram:
    """Run the iterations of a loop as vector lanes.

        for i in 8: block    becomes    for i in 8, vectorized: block

    Raises `ScheduleError` if the iterations are not independent, the extent is not constant, a loop around or inside is
    vectorized, or the extent of a loop inside depends on this loop.
    """
    path = loop_path(program, loop)
    _check_constant_extent(program, last_loop(path))
    inner_loops = [stmt for stmt in ir.walk_stmts(last_loop(path).body) if isinstance(stmt, ir.For)]
    for other in (*loops_around(path[:-1]), *inner_loops):
        if other.kind is ir.ForKind.VECTORIZED:
            raise failed(program, f"loop {loop} cannot be vectorized: loop {other.var} already is", other)
    for other in inner_loops:
        if loop in arith.free_vars(other.extent):
            raise failed(program, f"loop {loop} cannot be vectorized: the extent {other.extent!r} depends on it", other)
    return _marked_if_independent(program, path, ir.ForKind.VECTORIZED)


def unroll(program: ir.LoopProgram, loop: Var) -> ir.LoopProgram:
    """Mark a loop to be unrolled completely after scheduling.

        for i in 4: block    becomes    for i in 4, unrolled: block

    Raises `ScheduleError` if the extent is not constant.
    """
    path = loop_path(program, loop)
    _check_constant_extent(program, last_loop(path))
    return _marked(program, path, ir.ForKind.UNROLLED)


def bind(program: ir.LoopProgram, loop: Var, thread: str) -> ir.LoopProgram:
    """Bind a loop to a thread axis, e.g. "threadIdx.x".

        for i: block    becomes    for i, threadIdx.x: block

    Raises `ScheduleError` if the iterations are not independent, or a loop around or inside is bound to the same axis.
    """
    path = loop_path(program, loop)
    for other in (*loops_around(path[:-1]), *(stmt for stmt in ir.walk_stmts(path[-1]) if isinstance(stmt, ir.For))):
        if other.thread == thread:
            raise failed(program, f"loop {loop} cannot be bound to {thread}: loop {other.var} already is", other)
    return _marked_if_independent(program, path, ir.ForKind.THREAD, thread)


def vthread(program: ir.LoopProgram, loop: Var, tasks: Var | None = None) -> ir.LoopProgram:
    """Run the iterations of a loop as virtual threads, whose tasks are interleaved when lowered.

        for i in 2: for k: block    becomes    for i in 2, vthread: for k, "tasks" = true: block

    Tasks are the statements directly in the loop `tasks`, which is `loop` or nested in it. Each task completes before the same task
    of the next thread starts. By default, the innermost statements are tasks. Raises `ScheduleError` if the iterations are not
    independent, the extent is not constant, or `tasks` is not nested in `loop`.
    """
    path = loop_path(program, loop)
    _check_constant_extent(program, last_loop(path))
    program = _marked_if_independent(program, path, ir.ForKind.VTHREAD)
    if tasks is None:
        return program
    inner = loop_path(program, tasks)
    if not any(outer.var is loop for outer in loops_around(inner)):
        raise failed(program, f"expected a tasks loop inside loop {loop}, got {tasks} outside it", last_loop(inner))
    return annotate(program, tasks, TASKS, True)


def annotate(program: ir.LoopProgram, loop: Var, key: AnnotationKey, value: int | str | bool) -> ir.LoopProgram:
    """Annotate a loop with a value for the pass that declares the key.

        for i: block    becomes    for i {key: value}: block

    Raises `ScheduleError` if the value does not have the type that the key declares.
    """
    path = loop_path(program, loop)
    old = last_loop(path)
    if type(value) is not key.type:
        raise failed(program, f"annotation {key.name} must be of type {key.type.__name__}, got {value!r}", old)
    annotations: tuple[tuple[str, Any], ...] = (*(pair for pair in old.annotations if pair[0] != key.name), (key.name, value))
    return with_body(program, rebuilt(path, ir.For(old.var, old.extent, old.body, old.kind, old.thread, annotations)))


def _check_constant_extent(program: ir.LoopProgram, loop: ir.For) -> None:
    if not isinstance(arith.simplify(loop.extent), arith.Const):
        raise failed(program, f"the extent of loop {loop.var} must be constant, got {loop.extent!r}", loop, "split it first")


def _marked_if_independent(program: ir.LoopProgram, path: Path, kind: ir.ForKind, thread: str = "") -> ir.LoopProgram:
    check_independent(program, path)
    return _marked(program, path, kind, thread)


def _marked(program: ir.LoopProgram, path: Path, kind: ir.ForKind, thread: str = "") -> ir.LoopProgram:
    old = last_loop(path)
    if old.kind is not ir.ForKind.SERIAL:
        raise failed(program, f"loop {old.var} is already {old.kind.value}", old)
    return with_body(program, rebuilt(path, ir.For(old.var, old.extent, old.body, kind, thread, old.annotations)))
