"""Primitives that merge an element-wise block into its neighbor: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from dataclasses import replace

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, with_footprint, writes
from inlaid.tensor.primitives.lookup import (
    block_path,
    check_not_overwritten,
    check_not_tensorized,
    failed,
    last_block,
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
from inlaid_runtime import arith


def compute_inline(program: ir.LoopProgram, block: str) -> ir.LoopProgram:
    """Inline an element-wise block into all blocks that read its result. The result is no longer stored.

        for i: block b(v = i): t[v] = a[v] + 1
        for i: block c(v = i): c[v] = t[v] * 2
    compute_inline("b") gives
        for i: block c(v = i): c[v] = (a[v] + 1) * 2

    Raises `ScheduleError` if the block reduces, does not store exactly one element indexed by its iteration variables, or writes
    an output of the program.
    """
    path = outer_block(program, block)
    producer = last_block(path)
    buffer, store = _elementwise(program, producer)
    axis_by_var = _positions(program, producer, store)
    if len(writers(program, buffer)) > 1:
        raise failed(program, f"{buffer} must be written by {block} alone, found other writers", producer)
    check_not_overwritten(program, producer)
    program = _without(program, path, buffer)

    def inlined(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer is not buffer:
            return None
        return ir.substitute(store.value, {item.var: node.indices[axis_by_var[item.var]] for item in producer.iters})

    def refreshed(stmt: ir.Stmt) -> ir.Stmt | None:
        return with_footprint(stmt) if isinstance(stmt, ir.Block) else None

    for site in readers(program, buffer):
        program = _rewritten(program, site.block, Rewriter(expr=inlined, stmt=refreshed))
    return replace_allocs(program, (region.buffer for region in producer.reads))


def reverse_compute_inline(program: ir.LoopProgram, block: str) -> ir.LoopProgram:
    """Inline an element-wise block into the producer of its operand. The operand is no longer stored.

        for i: block b(v = i): t[v] = a[v] + 1
        for i: block c(v = i): c[v] = t[v] * 2
    reverse_compute_inline("c") gives
        for i: block b(v = i): c[v] = (a[v] + 1) * 2

    Raises `ScheduleError` if the producer reduces, the block does not read each element of one intermediate buffer exactly once,
    or other blocks read that buffer.
    """
    path = outer_block(program, block)
    consumer = last_block(path)
    target, store = _elementwise(program, consumer)
    buffer = _source(program, consumer, store)
    producers = writers(program, buffer)
    if len(producers) != 1 or len(readers(program, buffer)) != 1:
        raise failed(program, f"{buffer} must have one writer and one reader", consumer)
    producer = producers[0].block
    _check_sources(program, consumer, producer, buffer)
    condition = _condition(program, path, block_path(program, producer.name))
    output_buffer, producer_store = _elementwise(program, producer)
    assert output_buffer is buffer
    load = next(node for node in ir.walk_exprs(store.value) if isinstance(node, ir.Load) and node.buffer is buffer)
    values = {var: producer_store.indices[axis] for axis, var in enumerate(load.indices)}
    rewriter = Rewriter(
        values, expr=lambda node: producer_store.value if isinstance(node, ir.Load) and node.buffer is buffer else None
    )
    body = ir.Store(target, tuple(map(rewriter.index, store.indices)), rewriter.expr(store.value))
    program = _without(program, path, buffer)
    producer_path = block_path(program, producer.name)
    predicate = arith.logical_and(producer.predicate, condition)
    new = replace(producer, body=body, reads=reads(body), writes=writes(body), predicate=predicate)
    program = with_body(program, rebuilt(producer_path, new))
    return replace_allocs(program, (region.buffer for region in (*consumer.reads, *consumer.writes) if region.buffer is not buffer))


def _condition(program: ir.LoopProgram, path: Path, other: Path) -> arith.Expr:
    """Return the conjuncts of a consumer's predicate that the producer must adopt: the conditions on their common loops."""
    block = last_block(path)
    common_loops = {loop.var for loop in loops_around(path)} & {loop.var for loop in loops_around(other)}
    analyzer = arith.Analyzer(loop_ranges(*loops_around(path)))
    limits = index_limits(block, analyzer)
    condition: arith.Expr = arith.ONE
    for part in conjuncts(block.predicate):
        if {var for var in arith.free_vars(part) if isinstance(var, arith.Var)} <= common_loops:
            condition = arith.logical_and(condition, part)
        elif analyzer.simplify(part) not in limits:
            raise failed(program, f"block {block.name} must not skip elements, but skips them unless {part!r}", block)
    return condition


def _check_sources(program: ir.LoopProgram, consumer: ir.Block, producer: ir.Block, buffer: ir.Buffer) -> None:
    """Check that the consumer's other operands are complete before the loops around the producer start."""
    path = block_path(program, producer.name)
    nest = next(stmt for stmt in path if isinstance(stmt, (ir.For, ir.Block)))
    nest_blocks = {site.block for site in sites(nest)}
    earlier_blocks = set()
    for site in sites(program.body):
        if site.block in nest_blocks:
            break
        earlier_blocks.add(site.block)
    for source in dict.fromkeys(region.buffer for region in consumer.reads if region.buffer is not buffer):
        for site in writers(program, source):
            if site.block not in earlier_blocks:
                raise failed(program, f"operand {source} of {consumer.name} must be complete before {producer.name}", consumer)


def _elementwise(program: ir.LoopProgram, block: ir.Block) -> tuple[ir.Buffer, ir.Store]:
    """Return the store of an element-wise block, and its buffer. The body must be one store and the block must have no init."""
    buffer = written_buffer(program, block)
    if block.init is not None or any(item.kind is not ir.IterKind.SPATIAL for item in block.iters):
        raise failed(program, f"cannot inline block {block.name}, which reduces", block, "use compute_at or reverse_compute_at")
    if not isinstance(block.body, ir.Store):
        raise failed(program, f"cannot inline block {block.name}: its body must be one store", block)
    return buffer, block.body


def _positions(program: ir.LoopProgram, block: ir.Block, store: ir.Store) -> dict[arith.Expr, int]:
    """Map each iteration variable to its position in the indices of the store."""
    axis_by_var: dict[arith.Expr, int] = {index: axis for axis, index in enumerate(store.indices) if isinstance(index, arith.Var)}
    for item in block.iters:
        if item.var not in axis_by_var:
            raise failed(program, f"iteration variable {item.var} of block {block.name} must index its store", block)
    for axis, index in enumerate(store.indices):
        if not isinstance(index, (arith.Var, arith.Const)) or (isinstance(index, arith.Var) and axis_by_var[index] != axis):
            raise failed(
                program, f"index {axis} of {store.buffer}, {index!r}, must be an iteration variable of block {block.name}", block
            )
    return axis_by_var


def _source(program: ir.LoopProgram, block: ir.Block, store: ir.Store) -> ir.Buffer:
    """Return the intermediate buffer of which an element-wise block reads each element once, indexed by its iteration variables."""
    indices_by_buffer = {
        node.buffer: node.indices
        for node in ir.walk_exprs(store.value)
        if isinstance(node, ir.Load) and allocated(program, node.buffer) is not None
    }
    variables = {item.var: item.extent for item in block.iters}
    for buffer, indices in indices_by_buffer.items():
        loads = [node for node in ir.walk_exprs(store.value) if isinstance(node, ir.Load) and node.buffer is buffer]
        is_full = all(
            isinstance(index, arith.Var) and arith.Analyzer().equal(variables.get(index, -1), extent)
            for index, extent in zip(indices, buffer.shape, strict=True)
        )
        if is_full and set(indices) == variables.keys() and all(load.indices == indices for load in loads):
            return buffer
    raise failed(program, f"block {block.name} must read each element of one intermediate buffer exactly once", block)


def _without(program: ir.LoopProgram, path: Path, buffer: ir.Buffer) -> ir.LoopProgram:
    """Remove a block's nest and the allocation of its buffer."""
    program = with_body(program, rebuilt(path, None))
    alloc = find(program.body, ir.Alloc, lambda stmt: stmt.buffer is buffer)
    if alloc is None:
        raise failed(program, f"cannot inline {buffer}, an output of the program")
    last = alloc[-1]
    assert isinstance(last, ir.Alloc)
    return with_body(program, rebuilt(alloc, last.body))


def _rewritten(program: ir.LoopProgram, block: ir.Block, rewriter: Rewriter) -> ir.LoopProgram:
    """Rewrite the body of a block, and recompute its reads and writes."""
    check_not_tensorized(program, block)
    return with_body(program, rebuilt(block_path(program, block.name), rewriter.stmt(block)))
