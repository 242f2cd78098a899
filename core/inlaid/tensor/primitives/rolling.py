"""The primitive that keeps elements shared by neighboring iterations: rolling_buffer."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.primitives.lookup import (
    block_path,
    check_not_tensorized,
    failed,
    last_block,
    outer_block,
    writers,
    written_buffer,
)
from inlaid.tensor.primitives.regions import index_offset, produced_box
from inlaid.tensor.transform.paths import Site, loop_ranges, loops_around, rebuilt, remapped, sites, with_body
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def rolling_buffer(program: ir.LoopProgram, block: str) -> ir.LoopProgram:
    """Make each iteration of a loop compute only the elements of a block's output that no earlier iteration computed. A rolling
    (circular) buffer keeps the others.

        for i in 8: alloc t[10]: { for r in 3: block b(v = i + r): t[v] = a[v]; block c(w = i): c[w] = t[w] + t[w + 1] + t[w + 2] }
    rolling_buffer("b") gives
        alloc t[3]: for i in 8:
            for r in 3: block b(v = i + r) where i == 0 or 2 <= r: t[v % 3] = a[v]
            block c(w = i): c[w] = t[w % 3] + t[(w + 1) % 3] + t[(w + 2) % 3]

    Raises `ScheduleError` if the buffer is not allocated directly in a serial loop, or its window does not advance by a constant
    step along one dimension.
    """
    path = outer_block(program, block)
    producer = last_block(path)
    buffer = written_buffer(program, producer)
    depth = next((depth for depth, stmt in enumerate(path) if isinstance(stmt, ir.Alloc) and stmt.buffer is buffer), None)
    enclosing_loops = loops_around(path[:depth])
    if (
        depth is None
        or not enclosing_loops
        or any(isinstance(stmt, ir.Seq) for stmt in path[path.index(enclosing_loops[-1]) : depth])
    ):
        raise failed(
            program, f"{buffer}, which block {block} writes, must be allocated directly in a loop", producer, "use compute_at"
        )
    loop = enclosing_loops[-1]
    if loop.kind is not ir.ForKind.SERIAL or len(writers(program, buffer)) != 1:
        raise failed(program, f"loop {loop.var} must be serial, and {buffer} must have exactly one writer", loop)
    ranges = loop_ranges(*enclosing_loops)
    for user in sites(loop.body):
        if user.reads(buffer) or user.writes(buffer):
            check_not_tensorized(program, user.block)
    site = next(site for site in sites(loop.body) if site.block is producer)
    axis, low, extent, step = _window(program, site, buffer, loop, arith.Analyzer(ranges))
    binding = _written_index(program, producer, buffer, axis)
    is_new = arith.logical_or(arith.compare("==", loop.var, 0), arith.compare("<=", low + (extent - step), binding))
    inner_analyzer = arith.Analyzer(ranges | loop_ranges(*site.loops))
    order = ir.IterVar(Var("step"), loop.extent, ir.IterKind.OPAQUE)
    guarded_block = replace(
        producer,
        iters=(*producer.iters, order),
        bindings=(*producer.bindings, loop.var),
        predicate=arith.logical_and(producer.predicate, inner_analyzer.simplify(is_new)),
    )
    program = with_body(program, rebuilt(path, guarded_block))
    shape = tuple(extent if index == axis else dim for index, dim in enumerate(buffer.shape))
    ring = ir.Buffer(buffer.name, shape, buffer.dtype, buffer.scope)

    def wrapped(indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        return tuple(value % extent if index == axis else value for index, value in enumerate(indices))

    program = remapped(program, {buffer: (ring, wrapped)})
    path = block_path(program, block)
    alloc = next(stmt for stmt in path if isinstance(stmt, ir.Alloc) and stmt.buffer is ring)
    inner = with_body(program, rebuilt(path[: path.index(alloc) + 1], alloc.body))
    path = block_path(inner, block)
    target = next(index for index, stmt in enumerate(path) if isinstance(stmt, ir.For) and stmt.var is loop.var)
    return with_body(inner, rebuilt(path[: target + 1], ir.Alloc(ring, path[target])))


def _window(
    program: ir.LoopProgram, site: Site, buffer: ir.Buffer, loop: ir.For, analyzer: arith.Analyzer
) -> tuple[int, arith.Expr, int, int]:
    """Return (axis, first index, extent, step per iteration) of the window of a buffer that advances with a loop."""
    box = produced_box(site, buffer, loop_ranges(loop))
    if box is None or loop.var in arith.free_vars(box[1]):
        raise failed(program, f"an iteration of loop {loop.var} must write one box of {buffer}", site.block)
    windows: list[tuple[int, arith.Expr, int, int]] = []
    for axis, (low, high) in enumerate(box[0]):
        form = arith.affine(low, loop.var)
        extent = analyzer.bounds(high - low + 1)[1]
        if form is not None and form[0] == arith.ZERO:
            continue
        if form is None or not isinstance(form[0], arith.Const) or extent is None or not 0 < form[0].value < extent:
            raise failed(program, f"windows of successive iterations must overlap along dimension {axis} of {buffer}", site.block)
        windows.append((axis, low, extent, form[0].value))
    if len(windows) != 1:
        raise failed(
            program, f"the window of {buffer} must advance along one dimension with loop {loop.var}, not {len(windows)}", site.block
        )
    return windows[0]


def _written_index(program: ir.LoopProgram, block: ir.Block, buffer: ir.Buffer, axis: int) -> arith.Expr:
    """Return the index along an axis at which a block writes, in terms of the loops around the block."""
    region = next(region for region in block.writes if region.buffer is buffer)
    for item, binding in zip(block.iters, block.bindings, strict=True):
        offset = index_offset(region.ranges[axis][0], item.var)
        if isinstance(offset, arith.Const):
            return binding + offset
    raise failed(program, f"dimension {axis} of {buffer} must be indexed by an iteration variable of block {block.name}", block)
