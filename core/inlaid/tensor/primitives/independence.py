"""Checks that the iterations of a loop are independent."""

from __future__ import annotations

from inlaid.tensor import ir
from inlaid.tensor.analysis.digits import determined
from inlaid.tensor.analysis.footprint import inside
from inlaid.tensor.primitives.place import failed, loop_of
from inlaid.tensor.primitives.regions import covers, produced_box, touched_box
from inlaid.tensor.transform.lower_blocks import bound_iters
from inlaid.tensor.transform.paths import Path, Ranges, Site, loop_ranges, loops_around, sites, spans_of
from inlaid_runtime import arith


def check_independent(program: ir.LoopProgram, path: Path) -> None:
    """Check that no iteration of the loop at the end of a path writes elements that another iteration reads or writes.

    Buffers that are allocated inside the loop are private to an iteration. Raises `ScheduleError`, which names the shared elements.
    """
    loop = loop_of(path)
    private = {stmt.buffer for stmt in ir.walk_stmts(loop.body) if isinstance(stmt, ir.Alloc)}
    below = list(sites(loop.body))
    if any(not isinstance(stmt, (ir.For, ir.Seq, ir.Alloc, ir.If)) for stmt in _outside_blocks(loop.body)):
        raise failed(program, f"loop {loop.var} has statements outside blocks, which may depend on order", loop)
    outer = loop_ranges(*loops_around(path))
    for site in below:
        _check_bindings(program, loop, site)
    for site in below:
        for region in site.block.writes:
            if region.buffer not in private:
                _check_own(program, loop, site, region, outer)
                _check_readers(program, loop, site, region.buffer, below, outer)


def _outside_blocks(stmt: ir.Stmt) -> list[ir.Stmt]:
    found: list[ir.Stmt] = []
    stack = [stmt]
    while stack:
        node = stack.pop()
        if not isinstance(node, ir.Block):
            found.append(node)
            stack.extend(ir.substatements(node))
    return found


def _check_bindings(program: ir.LoopProgram, loop: ir.For, site: Site) -> None:
    block = site.block
    for item, binding in zip(block.iters, block.bindings, strict=True):
        if item.kind is not ir.IterKind.SPATIAL and loop.var in arith.free_vars(binding):
            what = "reduces over" if item.kind is ir.IterKind.REDUCTION else "is ordered along"
            raise failed(
                program, f"the iterations of loop {loop.var} are not independent: block {block.name} {what} {item.var}", block
            )


def _check_own(program: ir.LoopProgram, loop: ir.For, site: Site, region: ir.Region, outer: Ranges) -> None:
    """Check that iterations write disjoint elements."""
    bound = bound_iters(site.block)
    ranges = outer | loop_ranges(*site.loops)
    analyzer = arith.Analyzer(ranges | {loop.var: (0, arith.unwrap(loop.extent - 2))})
    spans = spans_of(*site.loops)
    starts = [arith.substitute(first, bound) for first, _ in region.ranges]
    for start, (_, extent) in zip(starts, region.ranges, strict=True):
        if loop.var not in arith.free_vars(start):
            continue
        touched = inside(start, arith.substitute(extent, bound), spans, analyzer)
        if touched is not None:
            low, high = touched
            step: dict[arith.Expr, arith.Expr] = {loop.var: loop.var + 1}
            ahead = (arith.substitute(low, step), arith.substitute(high, step))
            if analyzer.prove(arith.compare("<", high, ahead[0])) or analyzer.prove(arith.compare("<", ahead[1], low)):
                return
    moving: set[arith.Expr] = {loop.var, *(item.var for item in site.loops)}
    every = arith.Analyzer(ranges)
    single = (start for start, (_, extent) in zip(starts, region.ranges, strict=True) if extent == arith.ONE)
    whole = [_moving_part(start, moving, every) for start in single]
    if not determined(loop.var, loop.extent, whole, ranges):
        raise failed(
            program,
            f"the iterations of loop {loop.var} are not independent: several write the same elements of {region.buffer}",
            site.block,
            "allocate it inside the loop (compute_at), or choose another loop",
        )


def _moving_part(index: arith.Expr, moving: set[arith.Expr], analyzer: arith.Analyzer) -> arith.Expr:
    """Drop the terms of an index that are the same in all iterations."""
    terms = {
        atom: count
        for atom, count in analyzer.linear(index).terms.items()
        if not moving.isdisjoint(arith.free_vars(atom)) or arith.reads_data(atom)
    }
    return arith.Linear(terms, 0).expr()


def _check_readers(
    program: ir.LoopProgram, loop: ir.For, writer: Site, buffer: ir.Buffer, below: list[Site], outer: Ranges
) -> None:
    """Check that an iteration reads only those elements of a shared buffer that the same iteration wrote."""
    for reader in below:
        if not reader.reads(buffer):
            continue
        written = produced_box(writer, buffer, outer)
        for box in reader.regions(reader.block.reads, buffer):
            wanted = touched_box(reader, box, outer)
            analyzer = arith.Analyzer(outer)
            if wanted is None or written is None or not covers(written[0], wanted, analyzer):
                raise failed(
                    program,
                    f"the iterations of loop {loop.var} are not independent: block {reader.block.name} reads elements of {buffer} "
                    f"that other iterations write",
                    reader.block,
                )
