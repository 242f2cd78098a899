"""The primitive that spreads prefetches evenly over a loop: stream."""

from __future__ import annotations

from math import prod

from inlaid.tensor import ir
from inlaid.tensor.primitives.lookup import failed, last_loop, outer_loop
from inlaid.tensor.primitives.pipeline import PREFETCH
from inlaid.tensor.primitives.regions import touched_box
from inlaid.tensor.transform.lower_blocks import joined
from inlaid.tensor.transform.paths import loop_ranges, loops_around, rebuilt, sites, unique_name, with_body
from inlaid_runtime import arith
from inlaid_runtime.arith import Var

LINE = 64
"""Size of a cache line in bytes."""


def stream(
    program: ir.LoopProgram, block: str, buffer: str, loop: Var, inner: Var, each: bool = False, expected: int = 1
) -> tuple[ir.LoopProgram, str]:
    """Prefetch the part of a buffer that the next iteration of a loop will read. Each iteration of a loop `inner` inside it
    prefetches a share of the cache lines.

        for c: for r in 4: for k in 8: for j in 16: block b(v = c, w = k, x = j): ... a[v, w, x]
    stream("b", "a", c, k) gives
        for c: for r in 4: for k in 8:
            for l in 1, unrolled: block a_stream(p = c + 1, q = (r * 8 + k) // 4, s = 0): prefetch(a[p, q, s])
            for j in 16: block b(v = c, w = k, x = j): ... a[v, w, x]

    A cache line extends along the last dimensions. Lines are prefetched repeatedly if there are more iterations than lines, or
    if `each` run of the inner loop must prefetch all of them, because loops in between may end early. Past the end of the buffer,
    the last element is prefetched. Loops in between may have symbolic extents: all lines are then prefetched in their first
    `expected` iterations, taken together, and again in later ones, which costs less than a branch. Returns the new block's name.
    Raises `ScheduleError` if the block is not in `inner`, or `inner` not in `loop`, the extent of `inner` is not constant, or
    the block does not read the buffer, or does not read a box of constant size.
    """
    path = outer_loop(program, inner)
    enclosing_loops = loops_around(path)
    depth = next((depth for depth, other in enumerate(enclosing_loops[:-1]) if other.var is loop), None)
    if depth is None:
        raise failed(program, f"loop {inner} is not inside loop {loop}", last_loop(path))
    top = path.index(enclosing_loops[depth])
    site = next((site for site in sites(enclosing_loops[depth].body) if site.block.name == block), None)
    if site is None or inner not in [other.var for other in site.loops]:
        raise failed(program, f"block {block} is not inside loop {inner}", last_loop(path))
    source = next((region.buffer for region in site.block.reads if region.buffer.name == buffer), None)
    if source is None:
        raise failed(program, f"block {block} does not read {buffer}", site.block)
    ranges = loop_ranges(*loops_around(path[: top + 1]))
    analyzer = arith.Analyzer(ranges)
    box = touched_box(site, next(site.regions(site.block.reads, source)), ranges)
    extents = [] if box is None else [analyzer.bounds(last - first + 1)[1] for first, last in box]
    inner_loops = enclosing_loops[-1:] if each else enclosing_loops[depth + 1 :]
    if box is None or None in extents or not isinstance(inner_loops[-1].extent, arith.Const):
        raise failed(program, f"block {block} must read a box of constant size of {buffer} per iteration of {loop}", site.block)
    sizes = [extent for extent in extents if extent is not None]
    rounds = prod(other.extent.value for other in inner_loops if isinstance(other.extent, arith.Const))
    steps = _line_steps(source, sizes)
    sizes = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
    lines = prod(sizes)
    rounds *= 1 if all(isinstance(other.extent, arith.Const) for other in inner_loops) else expected
    lines_per_iteration = -(-lines // rounds)
    line_var = Var("l")
    number: arith.Expr = arith.ZERO
    for other in inner_loops:
        number = number * other.extent + other.var
    # Where there are fewer lines than iterations, several iterations prefetch the same line.
    line = number * lines_per_iteration + line_var if lines_per_iteration > 1 else number * lines // rounds
    substitution: dict[arith.Expr, arith.Expr] = {loop: loop + 1}
    inner_analyzer = arith.Analyzer(loop_ranges(*enclosing_loops) | {line_var: (0, lines_per_iteration - 1)})
    bindings: list[arith.Expr] = []
    stride = lines
    for axis, dim in enumerate(source.shape):
        stride //= sizes[axis]
        offset = inner_analyzer.simplify(line // stride % sizes[axis] * steps[axis])
        first = arith.substitute(box[axis][0], substitution) + offset
        bindings.append(inner_analyzer.simplify(arith.maximum(arith.minimum(first, arith.wrap(dim) - 1), 0)))
    iters = tuple(ir.IterVar(Var(f"p{axis}"), arith.wrap(dim)) for axis, dim in enumerate(source.shape))
    region = ir.BufferRegion(source, tuple((item.var, arith.ONE) for item in iters))
    name = unique_name(program, f"{buffer}_stream")
    prefetch_block = ir.Block(name, iters, tuple(bindings), (region,), (), ir.Intrinsic(PREFETCH, (region,), (ir.AccessMode.HINT,)))
    body = joined(ir.For(line_var, arith.Const(lines_per_iteration), prefetch_block, ir.ForKind.UNROLLED), last_loop(path).body)
    return with_body(program, rebuilt((*path, last_loop(path).body), body)), name


def _line_steps(buffer: ir.Buffer, sizes: list[int]) -> list[int]:
    """Return, for each axis, how many indices of a box of sizes `sizes` one cache line covers. From the last axis on, these are all
    indices while the box spans the whole axis and its extent divides what is left of a line; the next axis gets the remaining
    elements."""
    steps = [1] * len(sizes)
    rest = max(LINE // buffer.dtype.bytes, 1)
    for axis in reversed(range(len(sizes))):
        if sizes[axis] != buffer.shape[axis] or rest % sizes[axis]:
            steps[axis] = rest
            break
        steps[axis] = sizes[axis]
        rest //= sizes[axis]
    return steps
