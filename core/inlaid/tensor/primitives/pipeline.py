"""Primitives that overlap data movement with computation: double_buffer, software_pipeline, prefetch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.primitives.lookup import check_not_tensorized, failed, last_loop, outer_block, outer_loop, written_buffer
from inlaid.tensor.primitives.regions import touched_box
from inlaid.tensor.transform.lower_blocks import joined, mapped
from inlaid.tensor.transform.paths import (
    Ranges,
    fresh_copy,
    loop_ranges,
    loops_around,
    nest,
    rebound,
    rebuilt,
    sites,
    unique_name,
    uses,
    with_body,
)
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import dtype

PREFETCH = "prefetch"
"""An intrinsic on one element that prefetches its cache line. It has no effect on values."""
SEMANTICS: Mapping[str, ir.LoopProgram] = {
    PREFETCH: ir.LoopProgram(PREFETCH, (ir.Buffer("element", (), dtype("uint8")),), (), ir.Seq(()))
}
"""Semantics of the intrinsics that primitives insert, by name, for the interpreter."""


def software_pipeline(program: ir.LoopProgram, loop: Var, stages: tuple[int, ...]) -> ir.LoopProgram:
    """Software-pipeline a loop: statements of later stages run on earlier iterations.

        for i in 8: alloc t: { block b(v = i): t[0] = a[v]; block c(w = i): c[w] = t[0] }
    software_pipeline(i, (0, 1)) gives
        alloc t[2]:
            block b(v = 0): t[0] = a[v]
            for i in 7: { block b(v = i + 1): t[(i + 1) % 2] = a[v]; block c(w = i): c[w] = t[i % 2] }
            block c(w = 7): c[w] = t[7 % 2]

    `stages` gives the stage of each statement directly in the loop. Buffers allocated in the loop get one copy per iteration in
    flight. Raises `ScheduleError` if the extent is not constant, or a stage needs the result of a later stage.
    """
    path = outer_loop(program, loop)
    old = last_loop(path)
    allocs, parts = _parts(old)
    last = max(stages, default=0)
    extent = arith.simplify(old.extent)
    if len(stages) != len(parts) or min(stages, default=0) < 0:
        raise failed(program, f"stages must hold a number >= 0 for each of {len(parts)} statements, got {stages}", old)
    if not isinstance(extent, arith.Const) or extent.value <= last or old.kind is not ir.ForKind.SERIAL:
        raise failed(program, f"loop {loop} must be serial with a constant extent > {last}, got {old.extent!r}", old)
    staged = list(zip(stages, parts, strict=True))
    _check_stages(program, old, staged, set(allocs))
    enclosing_loops = loops_around(path)
    inner_buffers: list[ir.Buffer] = []
    for buffer in allocs:
        user_stages = [stage for stage, part in staged if uses(part, buffer)]
        copies = max(user_stages, default=0) - min(user_stages, default=0) + 1
        if copies == 1:
            inner_buffers.append(buffer)
            continue
        ring, window = _ring(buffer, [part for _, part in staged], copies, loop_ranges(*enclosing_loops))
        for site in sites(old.body):
            if (site.reads(buffer) or site.writes(buffer)) and not _stays_inside(site.block, buffer, window):
                check_not_tensorized(program, site.block)
        staged = [(stage, _ringed(part, buffer, ring, window, loop, copies)) for stage, part in staged]
        allocs = [ring if item is buffer else item for item in allocs]
    names = {stmt.name for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Block)}
    ranges = loop_ranges(*enclosing_loops[:-1])
    prologue = _partial_iterations(staged, loop, range(last), extent.value, ranges, names, inner_buffers)
    epilogue = _partial_iterations(
        staged, loop, range(extent.value, extent.value + last), extent.value, ranges, names, inner_buffers
    )
    main_analyzer = arith.Analyzer({**ranges, loop: (0, extent.value - last - 1)})
    body = joined(*(rebound(part, {loop: loop + (last - stage)}, main_analyzer) for stage, part in staged))
    pipeline = joined(*prologue, ir.For(loop, arith.Const(extent.value - last), _allocated(inner_buffers, body)), *epilogue)
    return with_body(program, rebuilt(path, _allocated([item for item in allocs if item not in inner_buffers], pipeline)))


def double_buffer(program: ir.LoopProgram, block: str) -> ir.LoopProgram:
    """Fill the buffer that a block writes one iteration ahead of its use. The buffer, which is allocated in a loop, gets two
    copies.

        for i in 8: alloc t: { block b(v = i): t[0] = a[v]; block c(w = i): c[w] = t[0] }
    double_buffer("b") is software_pipeline(i, (0, 1))

    Raises `ScheduleError` if the block's buffer is not allocated directly in a loop, or if software_pipeline raises it.
    """
    path = outer_block(program, block)
    buffer = written_buffer(program, path[-1]) if isinstance(path[-1], ir.Block) else None
    loop = next((stmt for stmt in reversed(path) if isinstance(stmt, ir.For) and buffer in _parts(stmt)[0]), None)
    if loop is None:
        raise failed(program, f"the buffer of block {block} must be allocated directly in a loop", path[-1], "use compute_at first")
    stages = []
    filling = True
    for part in _parts(loop)[1]:
        filling = filling and not any(site.reads(buffer) for site in sites(part) if buffer is not None)
        stages.append(0 if filling else 1)
    return software_pipeline(program, loop.var, tuple(stages))


def prefetch(program: ir.LoopProgram, block: str, buffer: str, loop: Var, distance: int) -> tuple[ir.LoopProgram, str]:
    """Prefetch the part of a buffer that a block will read `distance` iterations of a loop later.

        for i: for j in 16: block b(v = i, w = j): c[v] += a[v, w]
    prefetch("b", "a", i, 2) gives
        for i:
            for l in 1: block a_prefetch(p = i + 2, q = l * 16): prefetch(a[p, q])
            for j in 16: block b(v = i, w = j): c[v] += a[v, w]

    Prefetches one element per cache line of 64 bytes; past the end, the last element. Returns the new block's name. Raises
    `ScheduleError` if the block is not in the loop, does not read the buffer, or does not read a box of constant size.
    """
    path = outer_loop(program, loop)
    old = last_loop(path)
    site = next((site for site in sites(old.body) if site.block.name == block), None)
    if site is None:
        raise failed(program, f"block {block} is not inside loop {loop}", old)
    source = next((region.buffer for region in site.block.reads if region.buffer.name == buffer), None)
    if source is None:
        raise failed(program, f"block {block} does not read {buffer}", site.block)
    if any(isinstance(stmt, ir.Alloc) and stmt.buffer is source for stmt in ir.walk_stmts(old.body)):
        raise failed(program, f"cannot prefetch {buffer}, which is allocated in loop {loop}", old)
    ranges = loop_ranges(*loops_around(path))
    analyzer = arith.Analyzer(ranges)
    box = touched_box(site, next(site.regions(site.block.reads, source)), ranges)
    substitution: dict[arith.Expr, arith.Expr] = {loop: loop + distance}
    loops: list[tuple[Var, arith.Expr]] = []
    bindings: list[arith.Expr] = []
    for axis, dim in enumerate(source.shape):
        extent = None if box is None else analyzer.bounds(box[axis][1] - box[axis][0] + 1)[1]
        if box is None or extent is None:
            raise failed(program, f"block {block} must read a box of constant size of {buffer} per iteration of {loop}", site.block)
        step = max(64 // source.dtype.bytes, 1) if axis == len(source.shape) - 1 else 1
        var = Var(f"l{axis}")
        first = arith.substitute(box[axis][0], substitution) + var * step
        loops.append((var, arith.Const(-(-extent // step))))
        bindings.append(analyzer.simplify(arith.maximum(arith.minimum(first, arith.wrap(dim) - 1), 0)))
    iters = tuple(ir.IterVar(Var(f"p{axis}"), arith.wrap(dim)) for axis, dim in enumerate(source.shape))
    region = ir.BufferRegion(source, tuple((item.var, arith.ONE) for item in iters))
    name = unique_name(program, f"{buffer}_prefetch")
    prefetch_block = ir.Block(name, iters, tuple(bindings), (region,), (), ir.Intrinsic(PREFETCH, (region,), (ir.AccessMode.HINT,)))
    return with_body(program, rebuilt((*path, old.body), joined(nest(loops, prefetch_block), old.body))), name


# --- parts of loops ---------------------------------------------------------------------------------------------------


def _parts(loop: ir.For) -> tuple[list[ir.Buffer], list[ir.Stmt]]:
    """Return the buffers allocated directly in a loop, and the statements directly in the loop."""
    allocs = []
    stmt = loop.body
    while isinstance(stmt, ir.Alloc):
        allocs.append(stmt.buffer)
        stmt = stmt.body
    return allocs, list(stmt.stmts) if isinstance(stmt, ir.Seq) else [stmt]


def _allocated(buffers: list[ir.Buffer], stmt: ir.Stmt) -> ir.Stmt:
    for buffer in reversed(buffers):
        stmt = ir.Alloc(buffer, stmt)
    return stmt


def _check_stages(program: ir.LoopProgram, loop: ir.For, staged: list[tuple[int, ir.Stmt]], local_buffers: set[ir.Buffer]) -> None:
    for stage, part in staged:
        for buffer in dict.fromkeys(region.buffer for site in sites(part) for region in site.block.writes):
            for other, reader in staged:
                if other == stage or not uses(reader, buffer):
                    continue
                if other < stage or buffer not in local_buffers or any(site.writes(buffer) for site in sites(reader)):
                    raise failed(
                        program,
                        f"stage {other} of loop {loop.var} uses {buffer}, which stage {stage} writes"
                        + ("" if other < stage else "; only one stage may write it, and it must be allocated in the loop"),
                        reader,
                    )


def _ring(buffer: ir.Buffer, parts: list[ir.Stmt], copies: int, ranges: Ranges) -> tuple[ir.Buffer, tuple[int | None, ...]]:
    """Build a ring buffer with `copies` copies of a buffer. Also returns, for each dimension, the extent that one iteration uses
    (None: all)."""
    window: list[int | None] = []
    analyzer = arith.Analyzer(ranges)
    boxes = [
        touched_box(site, box, ranges)
        for part in parts
        for site in sites(part)
        for box in (*site.regions(site.block.reads, buffer), *site.regions(site.block.writes, buffer))
    ]
    for axis, dim in enumerate(buffer.shape):
        low: arith.Expr | None = None
        high: arith.Expr | None = None
        for box in boxes:
            if box is None:
                low = high = None
                break
            low = box[axis][0] if low is None else arith.minimum(low, box[axis][0])
            high = box[axis][1] if high is None else arith.maximum(high, box[axis][1])
        extent = None if low is None or high is None else analyzer.bounds(high - low + 1)[1]
        window.append(None if extent is None or (isinstance(dim, int) and dim <= extent) else extent)
    shape = (copies, *(dim if extent is None else extent for dim, extent in zip(buffer.shape, window, strict=True)))
    return ir.Buffer(buffer.name, shape, buffer.dtype, buffer.scope), tuple(window)


def _stays_inside(block: ir.Block, buffer: ir.Buffer, window: tuple[int | None, ...]) -> bool:
    """Test whether no intrinsic of a block accesses a box of `buffer` that would wrap around in the window."""
    boxes = (
        region.ranges
        for stmt in ir.walk_stmts(block)
        if isinstance(stmt, ir.Intrinsic)
        for region in stmt.regions
        if region.buffer is buffer
    )
    return all(extent == arith.ONE or size is None for box in boxes for (_, extent), size in zip(box, window, strict=True))


def _ringed(stmt: ir.Stmt, buffer: ir.Buffer, ring: ir.Buffer, window: tuple[int | None, ...], loop: Var, copies: int) -> ir.Stmt:
    """Redirect a statement to a ring buffer: select the copy of the iteration, and wrap indices around in the window."""
    if isinstance(stmt, ir.Block):
        if not any(region.buffer is buffer for region in (*stmt.reads, *stmt.writes)):
            return stmt
        version = ir.IterVar(Var("version"), arith.Const(copies), ir.IterKind.OPAQUE)
        analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in stmt.iters})

        def ring_indices(indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
            wrapped = (index if extent is None else index % extent for index, extent in zip(indices, window, strict=True))
            return (version.var, *map(analyzer.simplify, wrapped))

        def region(original: ir.BufferRegion) -> ir.BufferRegion:
            if original.buffer is not buffer:
                return original
            extents = (arith.ONE, *(extent for _, extent in original.ranges))
            return ir.BufferRegion(
                ring, tuple(zip(ring_indices(tuple(first for first, _ in original.ranges)), extents, strict=True))
            )

        def load(node: ir.Expr) -> ir.Expr | None:
            return ir.load(ring, ring_indices(node.indices)) if isinstance(node, ir.Load) and node.buffer is buffer else None

        def store(node: ir.Stmt) -> ir.Stmt | None:
            match node:
                case ir.Store() if node.buffer is buffer:
                    return ir.Store(ring, ring_indices(node.indices), node.value)
                case ir.Intrinsic(regions=regions):
                    return replace(node, regions=tuple(map(region, regions)))
                case ir.Block():
                    return with_footprint(node)
            return None

        new = Rewriter(expr=load, stmt=store).stmt(stmt)
        assert isinstance(new, ir.Block)
        return replace(new, iters=(*new.iters, version), bindings=(*new.bindings, loop % copies))
    return mapped(stmt, lambda child: _ringed(child, buffer, ring, window, loop, copies))


def _partial_iterations(
    staged: list[tuple[int, ir.Stmt]],
    loop: Var,
    rounds: range,
    extent: int,
    ranges: Ranges,
    names: set[str],
    inner_buffers: list[ir.Buffer],
) -> list[ir.Stmt]:
    """Build the iterations that fill or drain a pipeline. They run only the stages that have an iteration to process."""
    iterations = []
    analyzer = arith.Analyzer(ranges)
    for step in rounds:
        parts = [rebound(part, {loop: arith.Const(step - stage)}, analyzer) for stage, part in staged if 0 <= step - stage < extent]
        if parts:
            iterations.append(fresh_copy(_allocated(inner_buffers, joined(*parts)), names))
    return iterations
