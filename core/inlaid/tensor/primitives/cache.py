"""Primitives that stage data in another memory: cache_read, cache_write, set_scope."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.tensor import ir
from inlaid.tensor.primitives.lookup import failed, last_block, named_buffer, outer_block, writers, written_buffer
from inlaid.tensor.primitives.regions import Spans, infer_domain, produced_box, regenerated, touched_box
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import (
    Path,
    Ranges,
    Site,
    add_alloc,
    loop_ranges,
    loops_around,
    paths_to_users,
    rebuilt,
    replace_allocs,
    shared_length,
    unique_name,
    with_body,
)
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Var


def cache_read(program: ir.LoopProgram, block: str, buffer: str, scope: str = "") -> tuple[ir.LoopProgram, str]:
    """Make a block read a copy of a buffer, which a new block fills before the block's loops.

        for i: block b(v = i): c[v] = a[v]
    cache_read("b", "a", "local") gives
        for j: block a_local(w = j): a_local[w] = a[w]
        for i: block b(v = i): c[v] = a_local[v]

    Move the new block with compute_at to copy less at a time. Returns the new block's name. Raises `ScheduleError` if the block
    does not read the buffer.
    """
    path = outer_block(program, block)
    reader = last_block(path)
    source = named_buffer(program, buffer)
    if not any(region.buffer is source for region in reader.reads):
        raise failed(program, f"block {block} does not read {buffer}", reader)
    name = unique_name(program, f"{buffer}_{scope or 'cache'}")
    copy = ir.Buffer(name, source.shape, source.dtype, scope)
    new_reader = Rewriter(buffers={source: copy}).stmt(reader)
    top, site = find_copy_position(path, source)
    ranges = loop_ranges(*loops_around(top[:-1]))
    boxes = [touched_box(site, box, ranges) for box in site.regions(reader.reads, source)]
    copying = _copied(name, source, copy, boxes, ranges)
    program = with_body(program, rebuilt(top, joined(copying, rebuilt(path[len(top) - 1 :], new_reader))))
    return add_alloc(program, copy), name


def cache_write(program: ir.LoopProgram, block: str, scope: str = "") -> tuple[ir.LoopProgram, str]:
    """Make a block write to a private buffer, which a new block copies to the original buffer after the block's loops.

        for i: block b(v = i): c[v] = a[v]
    cache_write("b", "register") gives
        for i: block b(v = i): c_register[v] = a[v]
        for j: block c_register(w = j): c[w] = c_register[w]

    Move the new block with reverse_compute_at to copy less at a time. Returns the new block's name. Raises `ScheduleError` if
    the block writes several buffers, or another block writes the same buffer.
    """
    path = outer_block(program, block)
    writer = last_block(path)
    target = written_buffer(program, writer)
    if len(writers(program, target)) > 1:
        raise failed(program, f"{target} must be written by {block} alone, found other writers", writer)
    name = unique_name(program, f"{target.name}_{scope or 'cache'}")
    cache = ir.Buffer(name, target.shape, target.dtype, scope)
    new_writer = Rewriter(buffers={target: cache}).stmt(writer)
    top, site = find_copy_position(path, target)
    ranges = loop_ranges(*loops_around(top[:-1]))
    box, condition = last_box(program, site, target, ranges)
    copying = _copied(name, cache, target, [box], ranges, condition)
    program = with_body(program, rebuilt(top, joined(rebuilt(path[len(top) - 1 :], new_writer), copying)))
    return add_alloc(replace_allocs(program, (target,)), cache), name


def set_scope(program: ir.LoopProgram, buffer: str, scope: str) -> ir.LoopProgram:
    """Place an intermediate buffer in a memory scope.

        alloc t: for i: ...    becomes    alloc t in "shared": for i: ...

    Raises `ScheduleError` for inputs and outputs.
    """
    old = named_buffer(program, buffer)
    if old in program.params:
        raise failed(program, f"expected an intermediate buffer, got parameter {buffer}, whose memory the caller provides")
    new = ir.Buffer(old.name, old.shape, old.dtype, scope)
    return with_body(program, _BufferReplacement(buffers={old: new}).stmt(program.body))


class _BufferReplacement(Rewriter):
    """Replaces buffers in the blocks that use or allocate them, and skips all other blocks."""

    def _block(self, block: ir.Block) -> ir.Block:
        is_accessed = any(region.buffer in self._buffers for region in (*block.reads, *block.writes))
        if is_accessed or any(isinstance(stmt, ir.Alloc) for stmt in ir.walk_stmts(block.body)):
            return super()._block(block)
        return block


def find_copy_position(path: Path, buffer: ir.Buffer) -> tuple[Path, Site]:
    """Return the path to the statement next to which a copy of `buffer` may be placed: the outermost statement around the block at
    the end of `path` that is inside the allocation of `buffer` and contains no other use of it. Also returns the block with the
    loops around it inside that statement."""
    start = next(depth for depth, stmt in enumerate(path) if isinstance(stmt, (ir.For, ir.While, ir.Block)))
    for depth, stmt in enumerate(path[:-1]):
        if isinstance(stmt, ir.Alloc) and stmt.buffer is buffer:
            start = max(start, depth + 1)
    for other in paths_to_users(path[0], buffer):
        if other[-1] is not path[-1]:
            start = max(start, shared_length(path, other))
    return path[: start + 1], Site(last_block(path), tuple(loops_around(path[start:])))


def last_box(program: ir.LoopProgram, site: Site, buffer: ir.Buffer, outer: Ranges) -> tuple[Spans | None, arith.Expr]:
    """Return the box of `buffer` that a block writes (None: all that it writes), and the condition on outer loops for the write."""
    if not outer:
        return None, arith.ONE
    box = produced_box(site, buffer, outer)
    if box is None:
        raise failed(program, f"block {site.block.name} must write one box of {buffer} per iteration around it", site.block)
    return box


def _copied(
    name: str, source: ir.Buffer, target: ir.Buffer, boxes: Sequence[Spans | None], outer: Ranges, condition: arith.Expr = arith.ONE
) -> ir.Stmt:
    """Build loops that copy at least the given boxes of a buffer (None: all of it), under a condition on the outer loops."""
    iters = tuple(ir.IterVar(Var(f"v{axis}"), arith.wrap(extent)) for axis, extent in enumerate(source.shape))
    indices = tuple(item.var for item in iters)
    box = tuple((index, arith.ONE) for index in indices)
    body = ir.Store(target, indices, ir.Load(source.dtype, source, indices))
    block = ir.Block(name, iters, (), (ir.BufferRegion(source, box),), (ir.BufferRegion(target, box),), body)
    return regenerated(block, infer_domain(block, [(target, box) for box in boxes], arith.Analyzer(outer)), outer, condition)
