"""Checks that the iterations of a loop are independent."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.analysis.digits import is_determined
from inlaid.tensor.analysis.footprint import inside
from inlaid.tensor.primitives.lookup import failed, last_loop
from inlaid.tensor.primitives.regions import covers, produced_box, touched_box
from inlaid.tensor.transform.lower_blocks import bound_iters
from inlaid.tensor.transform.paths import Path, Ranges, Site, loop_ranges, loop_spans, loops_around, sites
from inlaid_runtime import arith


def check_independent(program: ir.LoopProgram, path: Path) -> None:
    """Check that no iteration of the loop at the end of a path writes elements that another iteration reads or writes.

    Buffers that are allocated inside the loop are private to an iteration. Raises `ScheduleError`, which names the shared elements.
    """
    loop = last_loop(path)
    local_buffers = {stmt.buffer for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Alloc)}
    inner_sites = list(sites(loop.body))
    if any(not isinstance(stmt, (ir.For, ir.Seq, ir.Alloc, ir.If)) for stmt in _outside_blocks(loop.body)):
        raise failed(program, f"loop {loop.var} has statements outside blocks, which may depend on order", loop)
    outer = loop_ranges(*loops_around(path))
    for site in inner_sites:
        _check_bindings(program, loop, site)
    for site in inner_sites:
        for region in site.block.writes:
            if region.buffer not in local_buffers:
                _check_disjoint_writes(program, loop, site, region, outer)
                _check_readers(program, loop, site, region.buffer, inner_sites, outer)


def _outside_blocks(stmt: ir.Stmt) -> list[ir.Stmt]:
    stmts: list[ir.Stmt] = []
    stack = [stmt]
    while stack:
        node = stack.pop()
        if not isinstance(node, ir.Block):
            stmts.append(node)
            stack.extend(ir.substatements(node))
    return stmts


def _check_bindings(program: ir.LoopProgram, loop: ir.For, site: Site) -> None:
    block = site.block
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is not ir.IterKind.SPATIAL and loop.var in arith.free_vars(binding):
            verb = "reduces over" if item.kind is ir.IterKind.REDUCTION else "is ordered along"
            raise failed(
                program, f"the iterations of loop {loop.var} are not independent: block {block.name} {verb} {item.var}", block
            )


def _check_disjoint_writes(program: ir.LoopProgram, loop: ir.For, site: Site, region: ir.BufferRegion, outer: Ranges) -> None:
    """Check that iterations write disjoint elements."""
    bindings = bound_iters(site.block)
    ranges = outer | loop_ranges(*site.loops)
    analyzer = arith.Analyzer(ranges | {loop.var: (0, arith.unwrap(loop.extent - 2))})
    spans = loop_spans(*site.loops)
    starts = [arith.substitute(first, bindings) for first, _ in region.ranges]
    for start, (_, extent) in zip(starts, region.ranges, strict=True):
        if loop.var not in arith.free_vars(start):
            continue
        span = inside(start, arith.substitute(extent, bindings), spans, analyzer)
        if span is not None:
            low, high = span
            step: dict[arith.Expr, arith.Expr] = {loop.var: loop.var + 1}
            next_span = (arith.substitute(low, step), arith.substitute(high, step))
            if analyzer.prove(arith.compare("<", high, next_span[0])) or analyzer.prove(arith.compare("<", next_span[1], low)):
                return
    inner_vars: set[arith.Expr] = {loop.var, *(item.var for item in site.loops)}
    full_analyzer = arith.Analyzer(ranges)
    point_indices = (start for start, (_, extent) in zip(starts, region.ranges, strict=True) if extent == arith.ONE)
    index_parts = [_varying_part(start, inner_vars, full_analyzer) for start in point_indices]
    if not is_determined(loop.var, loop.extent, index_parts, ranges):
        raise failed(
            program,
            f"the iterations of loop {loop.var} are not independent: several write the same elements of {region.buffer}",
            site.block,
            "allocate it inside the loop (compute_at), or choose another loop",
        )


def _varying_part(index: arith.Expr, variables: set[arith.Expr], analyzer: arith.Analyzer) -> arith.Expr:
    """Drop the terms of an index that are the same in all iterations."""
    terms = {
        atom: count
        for atom, count in analyzer.linear(index).terms.items()
        if not variables.isdisjoint(arith.free_vars(atom)) or arith.reads_data(atom)
    }
    return arith.Linear(terms, 0).expr()


def _check_readers(
    program: ir.LoopProgram, loop: ir.For, writer: Site, buffer: ir.Buffer, inner_sites: list[Site], outer: Ranges
) -> None:
    """Check that an iteration reads only those elements of a shared buffer that the same iteration wrote."""
    for reader in inner_sites:
        if not reader.reads(buffer):
            continue
        written_box = produced_box(writer, buffer, outer)
        for box in reader.regions(reader.block.reads, buffer):
            read_box = touched_box(reader, box, outer)
            analyzer = arith.Analyzer(outer)
            if read_box is None or written_box is None or not covers(written_box[0], read_box, analyzer):
                raise failed(
                    program,
                    f"the iterations of loop {loop.var} are not independent: block {reader.block.name} reads elements of {buffer} "
                    f"that other iterations write",
                    reader.block,
                )
