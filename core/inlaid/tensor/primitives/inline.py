"""Primitives that merge an element-wise block into its neighbour: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from dataclasses import replace

from inlaid import arith
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, with_footprint, writes
from inlaid.tensor.primitives.place import (
    block_of,
    block_path,
    check_lasting,
    check_open,
    failed,
    outer_block,
    readers,
    writers,
    written_buffer,
)
from inlaid.tensor.primitives.regions import index_limits
from inlaid.tensor.transform.lower_blocks import conjuncts
from inlaid.tensor.transform.paths import (
    Path,
    allocated,
    find,
    loop_ranges,
    loops_around,
    rebuilt,
    replace_allocs,
    sites,
    with_body,
)
from inlaid.tensor.transform.rewrite import Rewriter


def compute_inline(program: ir.LoopProgram, block: str) -> ir.LoopProgram:
    """An element-wise block goes into all blocks that read its result, which is stored no more.

        for i: block b(v = i): t[v] = a[v] + 1
        for i: block c(v = i): c[v] = t[v] * 2
    compute_inline("b") gives
        for i: block c(v = i): c[v] = (a[v] + 1) * 2

    Raises `ScheduleError` where the block reduces, stores more than one element at its own iteration variables, or writes an output
    of the program.
    """
    path = outer_block(program, block)
    producer = block_of(path)
    buffer, store = _elementwise(program, producer)
    position = _positions(program, producer, store)
    if len(writers(program, buffer)) > 1:
        raise failed(program, f"{buffer} is written by other blocks than {block}", producer)
    check_lasting(program, producer)
    program = _without(program, path, buffer)

    def inlined(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer is not buffer:
            return None
        return ir.substitute(store.value, {item.var: node.indices[position[item.var]] for item in producer.iters})

    def refreshed(stmt: ir.Stmt) -> ir.Stmt | None:
        return with_footprint(stmt) if isinstance(stmt, ir.Block) else None

    for site in readers(program, buffer):
        program = _rewritten(program, site.block, Rewriter(expr=inlined, stmt=refreshed))
    return replace_allocs(program, (region.buffer for region in producer.reads))


def reverse_compute_inline(program: ir.LoopProgram, block: str) -> ir.LoopProgram:
    """An element-wise block goes into the block that computes what it reads, which is stored no more.

        for i: block b(v = i): t[v] = a[v] + 1
        for i: block c(v = i): c[v] = t[v] * 2
    reverse_compute_inline("c") gives
        for i: block b(v = i): c[v] = (a[v] + 1) * 2

    Raises `ScheduleError` where the producer reduces, the block reads anything but each element of one intermediate buffer once, or
    other blocks read that buffer.
    """
    path = outer_block(program, block)
    consumer = block_of(path)
    target, store = _elementwise(program, consumer)
    buffer = _source(program, consumer, store)
    producers = writers(program, buffer)
    if len(producers) != 1 or len(readers(program, buffer)) != 1:
        raise failed(program, f"{buffer} is written or read by other blocks", consumer)
    producer = producers[0].block
    _check_sources(program, consumer, producer, buffer)
    condition = _condition(program, path, block_path(program, producer.name))
    stored, first = _elementwise(program, producer)
    assert stored is buffer
    load = next(node for node in ir.walk_exprs(store.value) if isinstance(node, ir.Load) and node.buffer is buffer)
    values = {var: first.indices[place] for place, var in enumerate(load.indices)}
    seen = Rewriter(values, expr=lambda node: first.value if isinstance(node, ir.Load) and node.buffer is buffer else None)
    body = ir.Store(target, tuple(map(seen.index, store.indices)), seen.expr(store.value))
    program = _without(program, path, buffer)
    where = block_path(program, producer.name)
    predicate = arith.logical_and(producer.predicate, condition)
    new = replace(producer, body=body, reads=reads(body), writes=writes(body), predicate=predicate)
    program = with_body(program, rebuilt(where, new))
    return replace_allocs(program, (region.buffer for region in (*consumer.reads, *consumer.writes) if region.buffer is not buffer))


def _condition(program: ir.LoopProgram, path: Path, other: Path) -> arith.Expr:
    """What of a consumer's predicate the producer must take over: conditions on loops around both."""
    block = block_of(path)
    common = {loop.var for loop in loops_around(path)} & {loop.var for loop in loops_around(other)}
    analyzer = arith.Analyzer(loop_ranges(*loops_around(path)))
    limits = index_limits(block, analyzer)
    condition: arith.Expr = arith.ONE
    for part in conjuncts(block.predicate):
        if {var for var in arith.free_vars(part) if isinstance(var, arith.Var)} <= common:
            condition = arith.logical_and(condition, part)
        elif analyzer.simplify(part) not in limits:
            raise failed(program, f"block {block.name} leaves elements out where not {part!r}", block)
    return condition


def _check_sources(program: ir.LoopProgram, consumer: ir.Block, producer: ir.Block, buffer: ir.Buffer) -> None:
    """Check that what the consumer reads besides a buffer is complete before the loops around the producer start."""
    place = block_path(program, producer.name)
    nest = next(stmt for stmt in place if isinstance(stmt, (ir.For, ir.Block)))
    inside = {site.block for site in sites(nest)}
    before = set()
    for site in sites(program.body):
        if site.block in inside:
            break
        before.add(site.block)
    for source in dict.fromkeys(region.buffer for region in consumer.reads if region.buffer is not buffer):
        for site in writers(program, source):
            if site.block not in before:
                raise failed(program, f"{source}, which {consumer.name} reads, is not complete before {producer.name}", consumer)


def _elementwise(program: ir.LoopProgram, block: ir.Block) -> tuple[ir.Buffer, ir.Store]:
    """What a block stores where it is one store without a reduction."""
    buffer = written_buffer(program, block)
    if block.init is not None or any(item.kind is not ir.IterKind.SPATIAL for item in block.iters):
        raise failed(program, f"block {block.name} reduces and cannot be inlined", block, "use compute_at or reverse_compute_at")
    if not isinstance(block.body, ir.Store):
        raise failed(program, f"block {block.name} is more than one store", block)
    return buffer, block.body


def _positions(program: ir.LoopProgram, block: ir.Block, store: ir.Store) -> dict[arith.Expr, int]:
    """Which index of the stored element each iteration variable is."""
    position: dict[arith.Expr, int] = {index: place for place, index in enumerate(store.indices) if isinstance(index, arith.Var)}
    for item in block.iters:
        if item.var not in position:
            raise failed(program, f"{item.var} of block {block.name} is no index of the element it stores in {store.buffer}", block)
    for place, index in enumerate(store.indices):
        if not isinstance(index, (arith.Var, arith.Const)) or (isinstance(index, arith.Var) and position[index] != place):
            raise failed(
                program, f"index {place} of {store.buffer}, {index!r}, is no iteration variable of block {block.name}", block
            )
    return position


def _source(program: ir.LoopProgram, block: ir.Block, store: ir.Store) -> ir.Buffer:
    """The intermediate buffer whose every element an element-wise block reads once, at the place of its iteration variables."""
    places = {
        node.buffer: node.indices
        for node in ir.walk_exprs(store.value)
        if isinstance(node, ir.Load) and allocated(program, node.buffer) is not None
    }
    variables = {item.var: item.extent for item in block.iters}
    for buffer, indices in places.items():
        loads = [node for node in ir.walk_exprs(store.value) if isinstance(node, ir.Load) and node.buffer is buffer]
        whole = all(
            isinstance(index, arith.Var) and arith.Analyzer().equal(variables.get(index, -1), extent)
            for index, extent in zip(indices, buffer.shape, strict=True)
        )
        if whole and set(indices) == variables.keys() and all(load.indices == indices for load in loads):
            return buffer
    raise failed(program, f"block {block.name} does not read each element of one intermediate buffer once", block)


def _without(program: ir.LoopProgram, path: Path, buffer: ir.Buffer) -> ir.LoopProgram:
    """The program without the nest of a block and without the buffer that went with it."""
    program = with_body(program, rebuilt(path, None))
    alloc = find(program.body, ir.Alloc, lambda stmt: stmt.buffer is buffer)
    if alloc is None:
        raise failed(program, f"{buffer} is an output of the program and cannot be inlined")
    last = alloc[-1]
    assert isinstance(last, ir.Alloc)
    return with_body(program, rebuilt(alloc, last.body))


def _rewritten(program: ir.LoopProgram, block: ir.Block, rewriter: Rewriter) -> ir.LoopProgram:
    """The program with the body of a block rewritten, and its footprint worked out anew."""
    check_open(program, block)
    return with_body(program, rebuilt(block_path(program, block.name), rewriter.stmt(block)))
