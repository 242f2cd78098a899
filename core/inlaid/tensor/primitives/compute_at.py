"""Primitives that move a block into the loops of a consumer or producer: compute_at, reverse_compute_at."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.primitives.lookup import check_not_overwritten, failed, last_block, last_loop, outer_block, outer_loop, writers
from inlaid.tensor.primitives.regions import Spans, covers, index_offset, infer_domain, produced_box, regenerated, touched_box
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import (
    Path,
    Ranges,
    Site,
    loop_ranges,
    loops_around,
    rebuilt,
    replace_allocs,
    sites,
    with_body,
)
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def compute_at(program: ir.LoopProgram, block: str, loop: Var) -> ir.LoopProgram:
    """Move a producer into a loop of its consumers. Each iteration computes the elements that the consumers need.

        for i in 8: block b(v = i): t[v] = a[v]
        for j in 2: for k in 4: block c(w = j * 4 + k): c[w] = t[w]
    compute_at("b", j) gives
        for j in 2:
            for i in 4: block b(v = j * 4 + i): t[v] = a[v]
            for k in 4: block c(w = j * 4 + k): c[w] = t[w]

    Elements needed by several iterations are recomputed. The buffer's allocation moves into the loop too, so that it can shrink to
    what one iteration needs. Raises `ScheduleError` if a reader is outside the loop, the block writes an output of the program,
    or an operand is computed inside the loop after its consumer.
    """
    path = outer_block(program, block)
    producer = last_block(path)
    _check_movable(program, path, loop)
    check_not_overwritten(program, producer)
    buffers = tuple(dict.fromkeys(region.buffer for region in producer.writes))
    rest_program = with_body(program, rebuilt(path, None))
    target_path = outer_loop(rest_program, loop)
    target = last_loop(target_path)
    target_sites = list(sites(target.body))
    blocks_inside = {site.block for site in target_sites}
    for buffer in buffers:
        if buffer in program.params:
            raise failed(
                program,
                f"block {block} must not write an output of the program, found {buffer}",
                producer,
                "use reverse_compute_at",
            )
        for site in sites(rest_program.body):
            if (site.reads(buffer) or site.writes(buffer)) and site.block not in blocks_inside:
                raise failed(program, f"block {site.block.name} uses {buffer} outside loop {loop}", site.block)
    ranges = loop_ranges(*loops_around(target_path))
    boxes = [
        (buffer, touched_box(site, box, ranges))
        for buffer in buffers
        for site in target_sites
        for box in site.regions(site.block.reads, buffer)
    ]
    if not boxes:
        raise failed(program, f"no block inside loop {loop} reads the output of block {block}", target)
    domain = infer_domain(producer, boxes, arith.Analyzer(ranges))
    stmt = regenerated(producer, domain, ranges)
    parent_path, children = _children(target_path)
    first = next(
        position for position, child in enumerate(children) if any(site.reads(b) for site in sites(child) for b in buffers)
    )
    sources = dict.fromkeys(region.buffer for region in producer.reads)
    for child in children[first:]:
        for site in sites(child):
            if any(site.writes(source) for source in sources):
                raise failed(
                    program, f"block {site.block.name} in loop {loop} writes an operand of {block} after its first use", site.block
                )
    program = with_body(rest_program, rebuilt(parent_path, joined(*children[:first], stmt, *children[first:])))
    return replace_allocs(program, (*buffers, *sources))


def reverse_compute_at(program: ir.LoopProgram, block: str, loop: Var) -> ir.LoopProgram:
    """Move a consumer into a loop of its producer. Each iteration consumes elements that the producer has completed.

        for i in 2: for j in 4: block b(v = i * 4 + j): t[v] = a[v]
        for k in 8: block c(w = k): c[w] = t[w]
    reverse_compute_at("c", i) gives
        for i in 2:
            for j in 4: block b(v = i * 4 + j): t[v] = a[v]
            for k in 4: block c(w = i * 4 + k): c[w] = t[w]

    Raises `ScheduleError` if one iteration does not complete what the consumer reads, or another operand is not complete there.
    """
    path = outer_block(program, block)
    consumer = last_block(path)
    _check_movable(program, path, loop)
    rest_program = with_body(program, rebuilt(path, None))
    target_path = outer_loop(rest_program, loop)
    target = last_loop(target_path)
    target_sites = list(sites(target.body))
    program_sites = list(sites(rest_program.body))
    start = next(position for position, site in enumerate(program_sites) if site.block is target_sites[0].block)
    ranges = loop_ranges(*loops_around(target_path))
    analyzer = arith.Analyzer(ranges)
    produced_boxes: list[tuple[ir.Buffer, Spans]] = []
    condition: arith.Expr = arith.ONE
    blocks_inside = {site.block for site in target_sites}
    nest_blocks = {site.block for site in sites(loops_around(target_path)[0].body)}
    for buffer in dict.fromkeys(region.buffer for region in consumer.reads):
        for position, site in enumerate(program_sites):
            if site.writes(buffer) and site.block in blocks_inside:
                _check_complete(program, site, target_path)
            elif site.writes(buffer) and (
                position > start or site.block in nest_blocks or any(other.writes(buffer) for other in target_sites)
            ):
                raise failed(
                    program, f"block {site.block.name}, an operand of {block}, is not complete before loop {loop}", site.block
                )
        written_boxes = [produced_box(site, buffer, ranges) for site in target_sites if site.writes(buffer)]
        if written_boxes:
            first = written_boxes[0]
            if first is None or not all(
                other is not None and _is_same_box(first[0], other[0], analyzer) for other in written_boxes
            ):
                raise failed(program, f"an iteration of loop {loop} must write one box of {buffer}", target)
            produced_boxes.append((buffer, first[0]))
            for part in written_boxes:
                condition = condition if part is None else arith.logical_and(condition, part[1])
    if not produced_boxes:
        raise failed(program, f"no block inside loop {loop} computes an operand of block {block}", target)
    domain = _inverse_domain(program, consumer, produced_boxes, analyzer)
    stmt = regenerated(consumer, domain, ranges, condition)
    _check_covered(program, consumer, stmt, produced_boxes, ranges)
    parent_path, children = _children(target_path)
    last = max(
        position
        for position, child in enumerate(children)
        if any(site.writes(b) for site in sites(child) for b, _ in produced_boxes)
    )
    program = with_body(rest_program, rebuilt(parent_path, joined(*children[: last + 1], stmt, *children[last + 1 :])))
    return replace_allocs(program, (region.buffer for region in (*consumer.reads, *consumer.writes)))


def _is_same_box(a: Spans, b: Spans, analyzer: arith.Analyzer) -> bool:
    return covers(a, b, analyzer) and covers(b, a, analyzer)


def _check_movable(program: ir.LoopProgram, path: Path, loop: Var) -> None:
    """Check that the block at the end of a path can move into a loop. Raises `ScheduleError`."""
    block = last_block(path)
    if any(isinstance(stmt, ir.For) and stmt.var is loop for stmt in path):
        raise failed(program, f"block {block.name} is inside loop {loop} already", block)
    if not block.iters or any(item.kind is ir.IterKind.OPAQUE for item in block.iters):
        raise failed(program, f"block {block.name} must have iteration variables, and none may be opaque", block)
    for region in block.writes:
        if len(writers(program, region.buffer)) > 1:
            raise failed(program, f"{region.buffer} must be written by {block.name} alone, found other writers", block)


def _children(loop_path: Path) -> tuple[Path, list[ir.Stmt]]:
    """Return the path to the sequence of statements inside a loop (below its allocations), and the statements of that sequence."""
    loop = last_loop(loop_path)
    path = (*loop_path, loop.body)
    while isinstance(path[-1], ir.Alloc):
        path = (*path, path[-1].body)
    last = path[-1]
    return path, list(last.stmts) if isinstance(last, ir.Seq) else [last]


def _inverse_domain(
    program: ir.LoopProgram,
    block: ir.Block,
    produced_boxes: list[tuple[ir.Buffer, Spans]],
    analyzer: arith.Analyzer,
) -> dict[Var, arith.Span]:
    """Return the ranges of iteration variables over which the block reads only the produced boxes."""
    domain: dict[Var, arith.Span] = {}
    for buffer, box in produced_boxes:
        for region in block.reads:
            if region.buffer is not buffer:
                continue
            for axis, (first, extent) in enumerate(region.ranges):
                for item in block.iters:
                    if item.kind is not ir.IterKind.SPATIAL:
                        continue
                    offset = index_offset(first, item.var)
                    if offset is None or extent != arith.ONE or not isinstance(offset, arith.Const) or item.var in domain:
                        continue
                    dim = buffer.shape[axis]
                    if offset.value < 0 or not analyzer.prove(arith.compare("<=", item.extent + offset, dim)):
                        raise failed(program, f"block {block.name} reads {buffer} out of bounds at index {axis}, {first!r}", block)
                    domain[item.var] = (box[axis][0] - offset, box[axis][1] - offset)
    return domain


# --- checks that an iteration completes what is read ------------------------------------------------------------------


def _check_complete(program: ir.LoopProgram, site: Site, path: Path) -> None:
    """Check that a block inside a loop completes its reductions in each iteration of the loop."""
    outer_vars = {loop.var for loop in loops_around(path)}
    for item, binding in zip(site.block.iters, site.block.bindings, strict=True):
        if item.kind is not ir.IterKind.SPATIAL and not outer_vars.isdisjoint(arith.free_vars(binding)):
            loop = next(var for var in arith.free_vars(binding) if var in outer_vars)
            inner = last_loop(path).var
            problem = f"block {site.block.name} is not complete inside loop {inner}: {item.var} iterates over {loop}"
            raise failed(program, problem, site.block)


def _check_covered(
    program: ir.LoopProgram,
    consumer: ir.Block,
    stmt: ir.Stmt,
    produced_boxes: list[tuple[ir.Buffer, Spans]],
    ranges: Ranges,
) -> None:
    """Check that the consumer, in its new loops, reads only elements that are produced."""
    (site,) = sites(stmt)
    analyzer = arith.Analyzer(ranges)
    for buffer, box in produced_boxes:
        for region in site.regions(consumer.reads, buffer):
            read_box = touched_box(site, region, ranges)
            if read_box is None or not covers(box, read_box, analyzer):
                raise failed(program, f"block {consumer.name} reads more of {buffer} than an iteration produces", consumer)
