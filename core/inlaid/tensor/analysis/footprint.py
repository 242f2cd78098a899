"""Footprints: the boxes of buffers that a statement reads and writes, in terms of its free index variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from inlaid.tensor import ir
from inlaid_runtime import arith

Ranges = dict[arith.Expr, arith.Span]
Box = tuple[tuple[arith.Expr, arith.Expr], ...]
"""A box of a buffer: the first index and the extent of each dimension."""
_Key = tuple[ir.Buffer, Box]


def reads(stmt: ir.Stmt, written_regions: tuple[ir.BufferRegion, ...] | None = None) -> tuple[ir.BufferRegion, ...]:
    """Return the boxes that a statement reads, except in buffers that it also writes or allocates. A box read under a condition may
    extend outside its buffer. `written_regions` are the boxes that it writes, if known."""
    written_buffers = {region.buffer for region in (writes(stmt) if written_regions is None else written_regions)}
    local_buffers = {node.buffer for node in ir.walk_stmts(stmt) if isinstance(node, ir.Alloc)}
    boxes: dict[_Key, None] = {}
    for node, ranges in _leaves(stmt, {}):
        if isinstance(node, ir.Block):
            regions: list[ir.BufferRegion] = list(outside(node, node.reads, ranges))
        else:
            regions = [
                ir.BufferRegion(load.buffer, _box(load.indices, load.buffer, ranges))
                for load in ir.walk_exprs(*statement_values(node))
                if isinstance(load, ir.Load)
            ]
            regions += _intrinsic_regions(node, ir.AccessMode.READ, ranges)
        for region in regions:
            if region.buffer not in written_buffers and region.buffer not in local_buffers:
                boxes[region.buffer, region.ranges] = None
    return tuple(ir.BufferRegion(buffer, box) for buffer, box in boxes)


def writes(stmt: ir.Stmt) -> tuple[ir.BufferRegion, ...]:
    """Return the boxes that a statement writes, except in buffers that it allocates."""
    local_buffers = {node.buffer for node in ir.walk_stmts(stmt) if isinstance(node, ir.Alloc)}
    boxes: dict[_Key, None] = {}
    for node, ranges in _leaves(stmt, {}):
        if isinstance(node, ir.Store):
            boxes[node.buffer, _box(node.indices, node.buffer, ranges)] = None
        elif isinstance(node, ir.Block):
            for region in outside(node, node.writes, ranges):
                boxes[region.buffer, region.ranges] = None
        for region in _intrinsic_regions(node, ir.AccessMode.WRITE, ranges):
            boxes[region.buffer, region.ranges] = None
    return tuple(ir.BufferRegion(buffer, box) for buffer, box in boxes if buffer not in local_buffers)


def with_footprint(block: ir.Block) -> ir.Block:
    """Recompute the reads and writes of a block from its body. The reads and writes of nested blocks must be correct."""
    written_regions = writes(block.body)
    return replace(block, reads=reads(block.body, written_regions), writes=written_regions)


class Uses:
    """The buffers that statements access, memoized by statement. The statements must have no blocks."""

    def __init__(self) -> None:
        self._buffers: dict[ir.Stmt, frozenset[ir.Buffer]] = {}

    def buffers(self, stmt: ir.Stmt) -> frozenset[ir.Buffer]:
        """Return the buffers that a statement and its substatements access. Hints count as accesses."""
        buffers = self._buffers.get(stmt)
        if buffers is None:
            direct_buffers = {load.buffer for load in ir.walk_exprs(*statement_values(stmt)) if isinstance(load, ir.Load)}
            if isinstance(stmt, ir.Store):
                direct_buffers.add(stmt.buffer)
            elif isinstance(stmt, ir.Intrinsic):
                direct_buffers.update(region.buffer for region in stmt.regions)
            buffers = self._buffers[stmt] = frozenset(direct_buffers).union(*map(self.buffers, ir.substatements(stmt)))
        return buffers

    def boxes(self, stmt: ir.Stmt, buffer: ir.Buffer) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
        """Return the boxes of a buffer that a statement reads, and the boxes that it writes."""
        read_boxes: dict[Box, None] = {}
        written_boxes: dict[Box, None] = {}
        analyzer_ranges: Ranges = {}
        analyzer = arith.Analyzer(analyzer_ranges)
        boxes: dict[tuple[arith.Expr, ...], Box] = {}
        for node, ranges in _leaves(stmt, analyzer_ranges, lambda part: buffer in self.buffers(part)):
            if ranges is not analyzer_ranges:
                analyzer_ranges, analyzer, boxes = ranges, arith.Analyzer(ranges), {}
            loads = (load for load in ir.walk_exprs(*statement_values(node)) if isinstance(load, ir.Load) and load.buffer is buffer)
            indexed_accesses = [(load.indices, read_boxes) for load in loads]
            if isinstance(node, ir.Store) and node.buffer is buffer:
                indexed_accesses.append((node.indices, written_boxes))
            for indices, access_boxes in indexed_accesses:
                if indices not in boxes:
                    boxes[indices] = _box(indices, buffer, ranges, analyzer)
                access_boxes[boxes[indices]] = None
            for access, access_boxes in ((ir.AccessMode.READ, read_boxes), (ir.AccessMode.WRITE, written_boxes)):
                for region in _intrinsic_regions(node, access, ranges, analyzer, buffer):
                    access_boxes[region.ranges] = None
        return tuple(read_boxes), tuple(written_boxes)


def touched(stmt: ir.Stmt, buffer: ir.Buffer) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Return the boxes of one buffer that a statement reads, and the boxes that it writes. The statement must have no blocks."""
    return Uses().boxes(stmt, buffer)


def statement_accesses(stmt: ir.Stmt) -> Iterator[tuple[ir.BufferRegion, ir.AccessMode]]:
    """Iterate over the accesses of a statement, without those of its substatements, in program order. Hints count as accesses."""
    for node in ir.walk_exprs(*statement_values(stmt)):
        if isinstance(node, ir.Load):
            yield ir.BufferRegion(node.buffer, tuple((index, arith.ONE) for index in node.indices)), ir.AccessMode.READ
    if isinstance(stmt, ir.Store):
        yield ir.BufferRegion(stmt.buffer, tuple((index, arith.ONE) for index in stmt.indices)), ir.AccessMode.WRITE
    if isinstance(stmt, ir.Intrinsic):
        yield from zip(stmt.regions, stmt.access, strict=True)


def statement_buffers(stmt: ir.Stmt) -> set[ir.Buffer]:
    """Return the buffers that a statement accesses, without those that only its substatements access. Hints count as accesses."""
    return {region.buffer for region, _ in statement_accesses(stmt)}


def semantic_access(semantics: ir.LoopProgram) -> tuple[ir.AccessMode, ...]:
    """Return how an intrinsic accesses each operand, in the order of the parameters of its semantics. An output stored under a
    condition is read and written, since its other elements keep their values. An input that holds a size is read."""
    access_by_buffer = dict.fromkeys(semantics.params, ir.AccessMode.HINT)
    access_by_buffer |= {buffer: ir.AccessMode.READ for _, buffer in semantics.defines if buffer in semantics.inputs}
    stack = [(semantics.body, False)]
    while stack:
        stmt, is_conditional = stack.pop()
        is_conditional = (
            is_conditional or isinstance(stmt, (ir.If, ir.While)) or (isinstance(stmt, ir.Block) and stmt.predicate != arith.ONE)
        )
        stack += [(inner, is_conditional) for inner in ir.substatements(stmt)]
        buffer_accesses = [
            (node.buffer, ir.AccessMode.READ) for node in ir.walk_exprs(*statement_values(stmt)) if isinstance(node, ir.Load)
        ]
        if isinstance(stmt, ir.Store):
            buffer_accesses.append((stmt.buffer, ir.AccessMode.UPDATE if is_conditional else ir.AccessMode.WRITE))
        if isinstance(stmt, ir.Intrinsic):
            pairs = zip(stmt.regions, stmt.access, strict=True)
            buffer_accesses += [
                (region.buffer, access | ir.AccessMode.READ if is_conditional else access) for region, access in pairs
            ]
        for buffer, access in buffer_accesses:
            if buffer in access_by_buffer:
                access_by_buffer[buffer] |= access
    return tuple(access_by_buffer.values())


def full_region(buffer: ir.Buffer) -> ir.BufferRegion:
    """Return the region that covers a whole buffer."""
    return ir.BufferRegion(buffer, tuple((arith.ZERO, arith.wrap(extent)) for extent in buffer.shape))


def outside(block: ir.Block, regions: tuple[ir.BufferRegion, ...], ranges: Ranges) -> Iterator[ir.BufferRegion]:
    """Rewrite regions of a block, which are in terms of its iteration variables, in terms of the loops around it. They are widened
    over the loops in `ranges`."""
    bindings = dict(zip((item.var for item in block.iters), block.bindings, strict=True))
    for region in regions:
        box = tuple((substitute(first, bindings), substitute(extent, bindings)) for first, extent in region.ranges)
        yield ir.BufferRegion(
            region.buffer, tuple(widened(*pair, dim, ranges) for pair, dim in zip(box, region.buffer.shape, strict=True))
        )


def inside(
    first: arith.Expr, extent: arith.Expr, ranges: Mapping[arith.Expr, arith.Span], analyzer: arith.Analyzer
) -> arith.Span | None:
    """Return the smallest and largest index of a range, given by its first index and extent, over all values of the variables in
    `ranges`; None if a bound is unknown."""
    low = arith.span(first, ranges, analyzer)
    high = low if extent == arith.ONE else arith.span(first + extent - 1, ranges, analyzer)
    return None if low is None or high is None else (low[0], high[1])


def substitute(expr: arith.Expr, mapping: Mapping[arith.Var, arith.Expr]) -> arith.Expr:
    """Substitute index variables in an expression, as `arith.substitute` does."""
    return arith.substitute(expr, dict(mapping.items()))


def statement_values(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    """Return the value expressions of a statement, including those that its indices check (see `ir.payloads`), but not those of its
    substatements."""
    values: tuple[ir.Expr, ...] = ()
    indices: tuple[arith.Expr, ...] = ()
    if isinstance(stmt, ir.Store):  # hot path: `match` is slow
        values, indices = (stmt.value,), stmt.indices
    elif isinstance(stmt, ir.For):
        indices = (stmt.extent,)
    elif isinstance(stmt, ir.Intrinsic):
        values, indices = stmt.args, tuple(part for region in stmt.regions for pair in region.ranges for part in pair)
    elif isinstance(stmt, (ir.If, ir.While)):
        values = (stmt.condition,)
    elif isinstance(stmt, ir.Let):
        values = (stmt.value,)
    elif isinstance(stmt, ir.Block):
        indices = (*stmt.bindings, stmt.predicate)
    if any(map(arith.reads_data, indices)):
        values = (*values, *(value for index in indices for value in ir.payloads(index)))
    return values


def _leaves(
    stmt: ir.Stmt, ranges: Ranges, enters: Callable[[ir.Stmt], bool] = lambda part: True
) -> Iterator[tuple[ir.Stmt, Ranges]]:
    """Iterate over a statement and its substatements, each with the ranges of the loops around it. Blocks are not entered, nor
    substatements for which `enters` returns False."""
    stack = [(stmt, ranges)]
    while stack:
        stmt, ranges = stack.pop()
        yield stmt, ranges
        if isinstance(stmt, ir.Block):
            continue
        if isinstance(stmt, ir.For):
            ranges = {**ranges, stmt.var: (arith.ZERO, stmt.extent - 1)}
        elif isinstance(stmt, ir.Let) and stmt.bounds is not None:
            ranges = {**ranges, stmt.var: stmt.bounds}
        stack += [(part, ranges) for part in reversed(ir.substatements(stmt)) if enters(part)]


def _intrinsic_regions(
    stmt: ir.Stmt, access: ir.AccessMode, ranges: Ranges, analyzer: arith.Analyzer | None = None, buffer: ir.Buffer | None = None
) -> Iterator[ir.BufferRegion]:
    """Iterate over the boxes that an intrinsic accesses, only in buffer `buffer` if given. Yields nothing for other statements."""
    for region in stmt.touching(access) if isinstance(stmt, ir.Intrinsic) else ():
        if buffer is not None and region.buffer is not buffer:
            continue
        pairs = zip(region.ranges, region.buffer.shape, strict=True)
        yield ir.BufferRegion(region.buffer, tuple(widened(*pair, dim, ranges, analyzer) for pair, dim in pairs))


def _box(indices: tuple[arith.Expr, ...], buffer: ir.Buffer, ranges: Ranges, analyzer: arith.Analyzer | None = None) -> Box:
    return tuple(_range(index, dim, ranges, analyzer) for index, dim in zip(indices, buffer.shape, strict=True))


def _range(index: arith.Expr, dim: arith.Dim, ranges: Ranges, analyzer: arith.Analyzer | None) -> tuple[arith.Expr, arith.Expr]:
    """Return the first index and the extent of the range of elements that an index may access."""
    if isinstance(index, arith.Opaque):
        return widened(index.lower, index.upper - index.lower + 1, dim, ranges, analyzer)
    if arith.reads_data(index):
        return arith.ZERO, arith.wrap(dim)
    return widened(index, arith.ONE, dim, ranges, analyzer)


def widened(
    first: arith.Expr, extent: arith.Expr, dim: arith.Dim, ranges: Ranges, analyzer: arith.Analyzer | None = None
) -> tuple[arith.Expr, arith.Expr]:
    """Widen a range of indices, given by its first index and extent, over all values of the variables in `ranges`. `analyzer` holds
    the bounds of variables. Returns the whole dimension `dim` if a bound is unknown."""
    if not ranges:
        return first, extent
    low = arith.span(first, ranges, analyzer)
    high = low if extent == arith.ONE else arith.span(first + extent - 1, ranges, analyzer)
    if low is None or high is None:
        return arith.ZERO, arith.wrap(dim)
    return low[0], arith.ONE if high[1] is low[0] else arith.simplify(high[1] - low[0] + 1)
