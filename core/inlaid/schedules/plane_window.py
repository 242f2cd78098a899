"""Sliding windows over row-major images: vectors along rows of the result.

The window is separable: its rows are reduced first, for all columns of an image and with its padding, into a buffer of whole
vectors. The columns are then reduced from that buffer by vector loads with the stride of the window.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from inlaid.schedules.register_tile import seconds
from inlaid.schedules.shape import Anchor, accumulate_in_registers, axis_loops, expected_extent, is_constant, present
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import KernelContext, Offer
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import unique_name
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.row_windows import RowWindow, over_vectors, reduce_rows
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR

LONGEST_STEP = 4
"""Maximum stride along a row: vectors with larger strides would waste most of their elements."""
LEAST_BYTES = 4
"""Minimum bytes per element: rows of narrower elements are short compared to a vector."""
UNROLLED = 8
"""Maximum window extent per axis. Loops over windows are unrolled."""


def offer_planes(program: ir.LoopProgram, anchor: Anchor, context: KernelContext) -> Offer | None:
    """Offer the schedule; None if rows fill less than half a vector, strides or windows are not constant, or the reduction
    transforms elements before it combines them."""
    bytes_, bits, window = anchor.buffer.dtype.bytes, context.capabilities.vector_bits, _window(anchor)
    lanes, width = bits // (8 * bytes_), expected_extent(anchor.spatial[3])
    # The buffer of a symbolic size cannot be private to a thread.
    if (
        window is None
        or not context.capabilities.masks
        or bytes_ < LEAST_BYTES
        or (context.threads != 1 and not is_constant(*anchor.spatial))
    ):
        return None
    if 2 * width < lanes or any(len(block.iters) != 4 for block in anchor.after):
        return None
    column_steps = prod(map(expected_extent, window.columns)) * window.step * -(-width // lanes)
    row_steps = prod(map(expected_extent, window.rows)) * -(-(width * window.step) // lanes)
    cycles = prod(map(expected_extent, anchor.spatial[:3])) * (column_steps + row_steps)
    layouts = (ROW_MAJOR,) * len(program.params)
    return Offer(layouts, lambda _: _schedule(program, anchor, window, lanes, context), seconds(cycles, context.capabilities))


def _window(anchor: Anchor) -> RowWindow | None:
    """Match a reduction as a separable window; None for any other reduction."""
    y, x = (item.var for item in anchor.spatial[2:])
    match anchor.block.body:
        case ir.Store(value=ir.Binary(op="add" | "max" | "min" as op, a=ir.Load() as a, b=ir.Load() as b)):
            load = a if b.buffer is anchor.buffer else b
        case _:
            return None
    padding = anchor.before[0] if anchor.before else None
    match None if padding is None else padding.body:
        case None:
            outside = ir.const(0, load.dtype)
        case ir.Store(value=ir.Select(condition=ir.Index(), otherwise=ir.Const() as outside)):
            pass
        case _:
            return None
    epilogue_reads = padding is not None and any(region.buffer is load.buffer for block in anchor.after for region in block.reads)
    # Sums require zero padding: the row pass adds the padding value once for all rows of a window.
    if (
        load.dtype is not anchor.buffer.dtype
        or load.buffer is anchor.buffer
        or epilogue_reads
        or (op == "add" and outside.value != 0)
    ):
        return None
    rows, columns = (tuple(item for item in anchor.reduced if item.var in arith.free_vars(index)) for index in load.indices[2:])
    if len(rows) + len(columns) != len(anchor.reduced) or set(rows) & set(columns) or not is_constant(*rows, *columns):
        return None
    linear = arith.affine(load.indices[3], x)
    mixes_axes = any(x in arith.free_vars(index) for index in load.indices[:3]) or y in arith.free_vars(load.indices[3])
    if linear is None or mixes_axes or max(prod(map(expected_extent, items)) for items in (rows, columns)) > UNROLLED:
        return None
    first, reach = arith.bounds(linear[1], {item.var: (0, expected_extent(item) - 1) for item in columns})
    if first != 0 or not isinstance(reach, int) or arith.unwrap(linear[0]) not in range(1, LONGEST_STEP + 1):
        return None
    return RowWindow(op, load, y, rows, columns, arith.size_hint(arith.unwrap(linear[0])), reach, padding, outside)


def _schedule(program: ir.LoopProgram, anchor: Anchor, window: RowWindow, lanes: int, context: KernelContext) -> ir.LoopProgram:
    """Build the nest:

    for n, c:                                 # parallel
        for x / lanes, y: plane[lane] = the rows of the window, reduced
        for y, x / lanes:
            for columns of the window: acc[lane] = combine(acc[lane], plane)    # lane vectorized
            out = after(acc)                  # masked
    """
    s = Schedule(program)
    name, final = anchor.block.name, accumulate_in_registers(s, anchor)
    columns = (anchor.spatial[3].extent - 1) * window.step + window.reach + 1
    pitch, height = arith.simplify(arith.ceildiv(columns, lanes) * lanes), anchor.spatial[2].extent
    # Lanes beyond the image read into the next row, and past the last one.
    length = arith.unwrap(arith.simplify(height * pitch + lanes * window.step))
    plane = ir.Buffer(unique_name(program, "plane"), (length,), window.load.dtype)
    blocks = [next(block for block in collect_blocks(s.program) if block.name == block_name) for block_name in (name, final)]
    s = Schedule(over_vectors(s.program, blocks, window, plane, pitch, lanes))
    n, c, y, x = axis_loops(s, final)
    assert x is not None
    x, lane = s.split(x, (None, lanes))
    s.compute_at(name, x)
    s.vectorize(lane)
    taps = present(*axis_loops(s, name)[4:])
    (lane,) = [loop for loop in s.loops(name) if loop not in (*taps, *present(n, c, y, x))]
    s.reorder(*taps, lane)
    for part in (name, *([s.decompose_reduction(name, taps[0])] if taps else ())):
        s.vectorize(s.loops(part)[-1])
    for tap in taps:
        s.unroll(tap)
    planes = present(n, c)
    if planes and context.threads != 1:
        planes = [s.fuse(*planes) if len(planes) > 1 else planes[0]]
        s.parallel(planes[0])
    block = next(item for item in collect_blocks(s.program) if item.name == name)
    row_pass = reduce_rows(window, plane, block.bindings[:2], height, pitch, lanes)

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if isinstance(stmt, ir.For) and stmt.var in planes[-1:]:
            return replace(stmt, body=ir.Alloc(plane, joined(row_pass, stmt.body)))
        return None

    body = Rewriter(stmt=change).stmt(s.program.body)
    return replace(s.program, body=body if planes else ir.Alloc(plane, joined(row_pass, body)))
