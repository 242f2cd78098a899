"""Shrinks buffers to the part that is live at any one time."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import Box, Uses, statement_accesses
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith


def compact_buffers(program: ir.LoopProgram) -> ir.LoopProgram:
    """Move allocations into the innermost loop around all uses, and shrink them to the elements that one iteration accesses.

        alloc t[64]: for i in 16: { for j in 4: t[4*i + j] = ...; for j in 4: ... = t[4*i + j] }
    becomes
        for i in 16: alloc t[4]: { for j in 4: t[j] = ...; for j in 4: ... = t[j] }

    The program must have no blocks. A dimension whose uses have no constant common extent keeps its size. A buffer without uses,
    such as an operand of a concatenation that a slice drops, is removed. Buffers in main memory used by several thread phases stay
    outside the loops over blocks.
    """
    return replace(program, body=compact(program.body))


def compact(stmt: ir.Stmt) -> ir.Stmt:
    """Compact the allocations in a statement, as `compact_buffers` does."""
    return _compact(stmt, Uses())


def _compact(stmt: ir.Stmt, uses: Uses) -> ir.Stmt:
    match stmt:
        case ir.Alloc(buffer=buffer, body=body):
            inner = _compact(body, uses)
            return _sink(buffer, inner, uses) if buffer in uses.buffers(inner) else inner
        case ir.For(body=body) | ir.Let(body=body) | ir.While(body=body):
            inner = _compact(body, uses)
            return stmt if inner is body else replace(stmt, body=inner)
        case ir.If(condition=condition, then=then, otherwise=otherwise):
            return ir.If(condition, _compact(then, uses), None if otherwise is None else _compact(otherwise, uses))
        case ir.Seq(stmts=stmts):
            return ir.Seq(tuple(_compact(item, uses) for item in stmts))
    return stmt


def _sink(buffer: ir.Buffer, body: ir.Stmt, uses: Uses) -> ir.Stmt:
    """Move the allocation as deep into `body` as all uses allow. In a memory scope, the allocation also excludes the statements
    before the first use and after the last, since these may become separate kernels.

    The allocation moves into a loop only if every iteration writes each element before reading it, so that no value is carried
    over."""
    match body:
        case ir.Seq(stmts=stmts):
            user_positions = [index for index, item in enumerate(stmts) if buffer in uses.buffers(item)]
            if len(user_positions) == 1:
                index = user_positions[0]
                return ir.Seq((*stmts[:index], _sink(buffer, stmts[index], uses), *stmts[index + 1 :]))
            first, end = user_positions[0], user_positions[-1] + 1
            if buffer.scope not in ("", "register") and end - first < len(stmts):
                return ir.Seq((*stmts[:first], _shrunk(buffer, ir.Seq(stmts[first:end]), uses), *stmts[end:]))
        case ir.For(body=inner, kind=kind) if kind is not ir.ForKind.VECTORIZED and _starts_afresh(inner, buffer, uses):
            sunk = _sink(buffer, inner, uses)
            if not (kind is ir.ForKind.THREAD and buffer.scope == "" and _spans_threads(sunk, buffer)):
                return replace(body, body=sunk)
        case ir.Alloc(buffer=other, body=inner):
            return ir.Alloc(other, _sink(buffer, inner, uses))
    return _shrunk(buffer, body, uses)


def _spans_threads(stmt: ir.Stmt, buffer: ir.Buffer) -> bool:
    """Test whether a statement allocates a buffer around thread loops. Threads cannot share main memory that is allocated inside a
    loop over blocks or threads."""
    allocs = [node for node in ir.walk_stmts(stmt) if isinstance(node, ir.Alloc) and node.buffer.name == buffer.name]
    return any(isinstance(node, ir.For) and node.over_threads for alloc in allocs for node in ir.walk_stmts(alloc.body))


def _starts_afresh(stmt: ir.Stmt, buffer: ir.Buffer, uses: Uses) -> bool:
    """Test whether a statement writes each element of a buffer before it reads it."""
    if not _writes_first(stmt, buffer, uses):  # cheaper than the boxes
        return False
    read_boxes, written_boxes = uses.boxes(stmt, buffer)
    for axis in range(len(buffer.shape)):
        written_span, access_span = _union(written_boxes, axis), _union((*written_boxes, *read_boxes), axis)
        if (
            written_span is None
            or access_span is None
            or written_span[1] != access_span[1]
            or arith.simplify(written_span[0] - access_span[0]) != arith.ZERO
        ):
            return False
    return True


def _writes_first(stmt: ir.Stmt, buffer: ir.Buffer, uses: Uses) -> bool:
    """Test whether the first use of a buffer in a statement is an unconditional store that does not read the buffer."""
    match stmt:
        case ir.Seq(stmts=stmts):
            first = next((item for item in stmts if buffer in uses.buffers(item)), None)
            return first is not None and _writes_first(first, buffer, uses)
        case ir.For(body=body) | ir.Alloc(body=body):
            return _writes_first(body, buffer, uses)
        case ir.Let(body=body):
            return all(region.buffer is not buffer for region, _ in statement_accesses(stmt)) and _writes_first(body, buffer, uses)
        case ir.Store(buffer=target, value=value):
            reads = any(isinstance(node, ir.Load) and node.buffer is buffer for node in ir.walk_exprs(value))
            return target is buffer and not reads
    return False


def shrunk(buffer: ir.Buffer, body: ir.Stmt) -> ir.Stmt:
    """Allocate a buffer around a statement, with the size of the part that the statement accesses."""
    return _shrunk(buffer, body, Uses())


def _shrunk(buffer: ir.Buffer, body: ir.Stmt, uses: Uses) -> ir.Stmt:
    read_boxes, written_boxes = uses.boxes(body, buffer)
    boxes = (*written_boxes, *read_boxes)
    if not boxes or not buffer.shape:
        return ir.Alloc(buffer, body)
    inner_vars = {stmt.var for stmt in ir.walk_stmts(body) if isinstance(stmt, (ir.For, ir.Let))}
    bases: list[arith.Expr] = []
    extents: list[arith.Dim] = []
    for axis, dim in enumerate(buffer.shape):
        base, extent = _union(boxes, axis) or (arith.ZERO, dim)
        is_full = isinstance(dim, int) and isinstance(extent, int) and extent >= dim
        if is_full or not inner_vars.isdisjoint(arith.free_vars(base)):  # the base is evaluated at the allocation
            base, extent = arith.ZERO, dim
        bases.append(base)
        extents.append(extent)
    if tuple(extents) == buffer.shape and all(base == arith.ZERO for base in bases):
        return ir.Alloc(buffer, body)
    shrunk_buffer = ir.Buffer(buffer.name, tuple(extents), buffer.dtype, buffer.scope)

    def small_indices(indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        return tuple(arith.simplify(index - base) for index, base in zip(indices, bases, strict=True))

    def load(node: ir.Expr) -> ir.Expr | None:
        return ir.load(shrunk_buffer, small_indices(node.indices)) if isinstance(node, ir.Load) and node.buffer is buffer else None

    def region(item: ir.BufferRegion) -> ir.BufferRegion:
        if item.buffer is not buffer:
            return item
        starts = small_indices(tuple(start for start, _ in item.ranges))
        return ir.BufferRegion(shrunk_buffer, tuple(zip(starts, (extent for _, extent in item.ranges), strict=True)))

    def store(node: ir.Stmt) -> ir.Stmt | None:
        if isinstance(node, ir.Intrinsic) and any(item.buffer is buffer for item in node.regions):
            return replace(node, regions=tuple(map(region, node.regions)))
        return (
            ir.Store(shrunk_buffer, small_indices(node.indices), node.value)
            if isinstance(node, ir.Store) and node.buffer is buffer
            else None
        )

    return ir.Alloc(shrunk_buffer, Rewriter(expr=load, stmt=store).stmt(body))


def _union(boxes: tuple[Box, ...], axis: int) -> tuple[arith.Expr, int] | None:
    """Return the first index and the extent that cover boxes along an axis; None unless extents and distances are constant."""
    base = boxes[0][axis][0]
    low = high = 0
    for box in boxes:
        distance = arith.ZERO if box[axis][0] == base else arith.simplify(box[axis][0] - base)
        extent = arith.simplify(box[axis][1])
        if not (isinstance(distance, arith.Const) and isinstance(extent, arith.Const)):
            return None
        low, high = min(low, distance.value), max(high, distance.value + extent.value)
    return arith.simplify(base + low), high - low
