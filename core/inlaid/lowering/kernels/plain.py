"""Transformations of kernels to the plain loops that code generators take."""

from __future__ import annotations

from dataclasses import replace

from inlaid.plugins.contract import Capabilities
from inlaid.tensor import ir
from inlaid.tensor.primitives import PREFETCH
from inlaid.tensor.scheduling.by_hand import BY_HAND
from inlaid.tensor.transform.lower_blocks import check_lanes, check_registers, mapped
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError

ANY = Capabilities(())
"""Capabilities of a target that declares no capabilities."""


def without_vectors(program: ir.LoopProgram) -> ir.LoopProgram:
    """Replace vectorized loops by serial loops."""

    def serial(stmt: ir.Stmt) -> ir.Stmt | None:
        return replace(stmt, kind=ir.ForKind.SERIAL) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED else None

    return replace(program, body=Rewriter(stmt=serial).stmt(program.body))


def without_prefetches(program: ir.LoopProgram) -> ir.LoopProgram:
    """Remove prefetches, and loops that contain nothing else."""

    def drop(stmt: ir.Stmt) -> ir.Stmt | None:
        is_empty = isinstance(stmt, (ir.For, ir.If)) and all(map(_is_nothing, ir.substatements(stmt)))
        return ir.Seq(()) if is_empty or (isinstance(stmt, ir.Intrinsic) and stmt.name == PREFETCH) else None

    body = Rewriter(stmt=drop).stmt(program.body)
    return program if body is program.body else replace(program, body=body)


def _is_nothing(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Seq) and all(map(_is_nothing, stmt.stmts))


def with_checked_registers(program: ir.LoopProgram) -> ir.LoopProgram:
    """Check that registers have constant indices and, in schedules by hand, full lanes. Raises `ScheduleError`."""
    check_registers(program)
    if (BY_HAND, True) in program.annotations:  # the rules' own schedules may leave lanes unused for small extents
        check_lanes(program)
    return program


def hoist_scratch(program: ir.LoopProgram, able: Capabilities = ANY) -> ir.LoopProgram:
    """Replace allocations by output parameters, except registers, buffers that fit on the stack, and buffers inside parallel and
    vectorized loops. The new parameters hold scratch data. Outputs that hold sizes defined by the kernel stay last.

    A parallel loop whose iterations need more than the thread's stack becomes serial. Raises `ScheduleError`, naming buffer and
    loop, for a buffer that threads or blocks would share.
    """
    scratch: dict[ir.Buffer, None] = {}
    body = _hoist(program.body, scratch, able)
    if body is program.body:
        return program
    results = len(program.outputs) - len(program.defines)
    outputs = (*program.outputs[:results], *scratch, *program.outputs[results:])
    scratch_sizes = frozenset().union(*(arith.free_vars(dim) for buffer in scratch for dim in buffer.shape))
    sizes = tuple(size for size in program.sizes if size not in scratch_sizes)
    return replace(program, outputs=outputs, body=body, sizes=sizes)


def _hoist(stmt: ir.Stmt, scratch: dict[ir.Buffer, None], able: Capabilities, threads: ir.For | None = None) -> ir.Stmt:
    match stmt:
        case ir.For(kind=ir.ForKind.VECTORIZED):
            return stmt
        case ir.For(body=body, kind=ir.ForKind.PARALLEL):
            exceeds_stack = any(
                isinstance(item, ir.Alloc) and not _fits(item.buffer, able.thread_stack_bytes) for item in ir.walk_stmts(body)
            )
            return replace(stmt, body=_hoist(body, scratch, able, threads), kind=ir.ForKind.SERIAL) if exceeds_stack else stmt
        case ir.For(kind=ir.ForKind.THREAD | ir.ForKind.VTHREAD):
            threads = stmt
        case ir.Alloc(buffer=buffer, body=body) if not _fits(buffer, _stack_bytes(stmt, able)):
            if threads is not None:
                actual = f"found {arith.product(buffer.shape)} elements of {buffer.dtype} in main memory"
                problem = f"expected at most {_stack_bytes(stmt, able)} bytes for each iteration of loop {threads.var}, {actual}"
                raise ScheduleError(f"buffer {buffer}: {problem}", remedy="give it a memory scope by set_scope, or tile the loop")
            scratch[buffer] = None
            return _hoist(body, scratch, able)
    return mapped(stmt, lambda inner: _hoist(inner, scratch, able, threads))


def _stack_bytes(alloc: ir.Alloc, able: Capabilities) -> int:
    """Return the maximum bytes of a stack buffer; 0 for a buffer that several threads share, since threads have separate stacks."""
    if able.threads is None:
        return able.stack_bytes
    forks = (ir.ForKind.PARALLEL, ir.ForKind.THREAD)
    is_shared = any(isinstance(node, ir.For) and node.kind in forks for node in ir.walk_stmts(alloc.body))
    return 0 if is_shared else able.thread_stack_bytes


def _fits(buffer: ir.Buffer, limit: int) -> bool:
    size = arith.product(buffer.shape)
    return buffer.scope != "" or (isinstance(size, int) and size * buffer.dtype.bytes <= limit)
