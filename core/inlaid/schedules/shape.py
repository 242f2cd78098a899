"""Structure of unscheduled kernels for schedule rules: the anchor reduction, its prologue and its epilogue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import block_size, collect_blocks
from inlaid.tensor.region import size_vars
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.text import show_index, size_name
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, Var
from inlaid_runtime.arith.text import Tokens, parse_expr
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import Layout


@dataclass(frozen=True)
class Anchor:
    """The single reduction of a kernel.

    `buffer` is the accumulator. `product` are the two loads whose products are summed, None for any other reduction. `before` are
    the blocks that the reduction depends on; `after` are all other blocks: the epilogue, and blocks that only the epilogue reads.
    """

    block: ir.Block
    buffer: ir.Buffer
    spatial: tuple[ir.IterVar, ...]
    reduced: tuple[ir.IterVar, ...]
    product: tuple[ir.Load, ir.Load] | None
    before: tuple[ir.Block, ...]
    after: tuple[ir.Block, ...]


def is_static(program: ir.LoopProgram) -> bool:
    """Test whether every dimension of the parameters is an integer."""
    return all(isinstance(dim, int) for buffer in program.params for dim in buffer.shape)


def find_anchor(program: ir.LoopProgram) -> Anchor | None:
    """Find the anchor of a kernel. None if the kernel does not have exactly one reduction, has opaque blocks, or has epilogue
    blocks that read sums at data-dependent indices, such as a broadcast to run-time sizes."""
    blocks = collect_blocks(program)
    reductions = [position for position, block in enumerate(blocks) if block.init is not None]
    if len(reductions) != 1 or any(not isinstance(block.body, ir.Store) for block in blocks):
        return None
    position = reductions[0]
    block = blocks[position]
    assert isinstance(block.body, ir.Store)
    spatial = tuple(item for item in block.iters if item.kind is ir.IterKind.SPATIAL)
    reduced = tuple(item for item in block.iters if item.kind is ir.IterKind.REDUCTION)
    if block.body.indices != tuple(item.var for item in spatial):
        return None
    before, after = _split_producers(block, blocks[:position])
    after = (*after, *blocks[position + 1 :])
    epilogue_buffers = {block.body.buffer, *(region.buffer for other in after for region in other.writes)}
    if any(_depends_on_data(index, other) for other in after for index in _load_indices(other, epilogue_buffers)):
        return None
    return Anchor(block, block.body.buffer, spatial, reduced, _product(block.body), before, after)


def _load_indices(block: ir.Block, buffers: Collection[ir.Buffer]) -> list[arith.Expr]:
    """Return the indices of a block's loads from `buffers`."""
    loads = ir.walk_exprs(block.body.value) if isinstance(block.body, ir.Store) else ()
    return [index for node in loads if isinstance(node, ir.Load) and node.buffer in buffers for index in node.indices]


def _depends_on_data(index: arith.Expr, block: ir.Block) -> bool:
    """Test whether an index depends on data. Selects between sizes that are independent of the block's variables are exempt."""
    inner = {item.var for item in block.iters}
    return any(
        isinstance(node, arith.Opaque) or (isinstance(node, arith.Select) and not inner.isdisjoint(arith.free_vars(node)))
        for node in arith.walk(index)
    )


def _split_producers(block: ir.Block, earlier: Sequence[ir.Block]) -> tuple[tuple[ir.Block, ...], tuple[ir.Block, ...]]:
    """Partition the blocks before `block`: the blocks whose results `block` reads (transitively) or overwrites, and all others."""
    buffers = {region.buffer for region in (*block.reads, *block.writes)}
    producers: list[ir.Block] = []
    for other in reversed(earlier):
        if any(region.buffer in buffers for region in other.writes):
            producers.append(other)
            buffers.update(region.buffer for region in other.reads)
    return tuple(reversed(producers)), tuple(other for other in earlier if other not in producers)


def _product(store: ir.Store) -> tuple[ir.Load, ir.Load] | None:
    """Match acc = acc + a * b and return (a, b)."""
    match store.value:
        case ir.Binary(op="add", a=ir.Load(buffer=buffer), b=ir.Binary(op="mul", a=ir.Load() as a, b=ir.Load() as b)):
            return (a, b) if buffer is store.buffer else None
    return None


def last_epilogue(anchor: Anchor) -> str | None:
    """Return the name of the last epilogue block, into which the others can be inlined; None if there is no epilogue."""
    return anchor.after[-1].name if anchor.after else None


def inline_blocks(schedule: Schedule, blocks: Iterable[str]) -> None:
    """Inline element-wise blocks into their readers."""
    for block in blocks:
        schedule.compute_inline(block)


def accumulate_in_registers(schedule: Schedule, anchor: Anchor) -> str:
    """Inline an anchor's epilogue into its last block and put the accumulator into registers. Returns the block that stores the
    result. Without an epilogue this is a new block, which has the name of the register buffer."""
    final = last_epilogue(anchor)
    inline_blocks(schedule, [block.name for block in anchor.after if block.name != final])
    if final is None:
        return schedule.cache_write(anchor.block.name, "register")
    schedule.set_scope(anchor.buffer.name, "register")
    return final


def axis_loops(schedule: Schedule, block: str) -> list[Var | None]:
    """Return the loop of each iteration variable of a block; None for a variable of extent 1 without a loop."""
    target = next(item for item in collect_blocks(schedule.program) if item.name == block)
    loops = schedule.loops(block)
    return [binding if binding in loops else None for binding in target.bindings]  # type: ignore[misc]


def channel_block(layout: Layout) -> int:
    """Return the block size of a layout that blocks only channels (axis 1); 0 for any other layout."""
    match layout.blocks:
        case ((1, factor),):
            return factor
    return 0


def present(*loops: Var | None) -> list[Var]:
    """Return the loops that are not None."""
    return [loop for loop in loops if loop is not None]


def constant_extent(item: ir.IterVar) -> int:
    """Return the constant extent of an iteration variable."""
    extent = item.extent
    assert isinstance(extent, Const), f"the extent {extent!r} is not constant"
    return extent.value


def expected_extent(item: ir.IterVar) -> int:
    """Return the extent of an iteration variable; the size hint of a symbolic extent."""
    return arith.size_hint(arith.unwrap(item.extent))


def is_constant(*items: ir.IterVar) -> bool:
    """Test whether the extents of iteration variables are all constant."""
    return all(isinstance(item.extent, Const) for item in items)


def mark_tile(schedule: Schedule, *loops: Var) -> None:
    """Unroll all loops except the innermost, which is vectorized."""
    for loop in loops[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(loops[-1])


def size_text(size: arith.Expr) -> int | str:
    """Convert a size to a trace argument."""
    return size.value if isinstance(size, Const) else show_index(size)


def read_size(program: ir.LoopProgram, size: int | str) -> arith.Expr:
    """Parse the output of `size_text` over a program's dimensions."""
    if isinstance(size, int):
        return Const(size)
    dims: dict[str, arith.Expr] = {size_name(variable): variable for variable in size_vars(program)}

    def leaf(tokens: Tokens) -> arith.Expr:
        token = tokens.take()
        return dims.get(token.text) or tokens.fail(f"unknown dimension {token.text}, expected one of {', '.join(dims) or 'none'}")

    return parse_expr(Tokens(size), leaf)


CHEAP = 8
"""Maximum operations of a value that each reader recomputes instead of loading it."""
PIECES = 4
"""Number of runs into which rows are split for an unknown number of threads."""


def share_rows(
    schedule: Schedule, outside: Sequence[Var | None], rows: Var | None, inside: Sequence[Var | None], threads: int
) -> Var | None:
    """Split rows into runs and distribute the runs over threads:

    for outside: for inside: for rows    becomes    parallel for outside, runs of rows, inside: for rows of a run

    so that a thread computes the same rows in every kernel, and its cache contains the rows that it wrote in the previous kernel.
    `inside` are further loops, such as channel blocks, inside or outside of the rows; their order is kept. Rows that cannot be
    split evenly are fused into the parallel loop instead. Returns the parallel loop, or None if rows are part of it.
    """
    pieces = threads or PIECES
    loops = present(*outside, *inside, rows)
    nest = [stmt.var for stmt in ir.walk_stmts(schedule.program.body) if isinstance(stmt, ir.For) and stmt.var in loops]
    extent = None if rows is None else loop_extent(schedule, rows)
    if rows is None or not isinstance(extent, Const) or extent.value % pieces or extent.value == 0:
        fused = schedule.fuse(*nest)
        schedule.parallel(fused)
        return fused if rows is None else None
    run, rest = schedule.split(rows, (pieces, None))
    inner_loops = [rest if loop is rows else loop for loop in nest if loop not in present(*outside)]
    schedule.reorder(*present(*outside), run, *inner_loops)
    fused_loops = inner_loops[:-1] if inner_loops[-1] is rest else inner_loops
    fused = schedule.fuse(*present(*outside), run, *fused_loops)
    schedule.parallel(fused)
    return fused if fused_loops is not inner_loops else None


def loop_extent(schedule: Schedule, loop: Var) -> arith.Expr:
    """Return the extent of a loop."""
    loops = (stmt for stmt in ir.walk_stmts(schedule.program.body) if isinstance(stmt, ir.For))
    return arith.simplify(next(stmt.extent for stmt in loops if stmt.var is loop))


def layouts_by_name(
    program: ir.LoopProgram, layouts: Mapping[ir.Buffer, Layout], more: Mapping[str, Layout] | None = None
) -> dict[ir.Buffer, Layout]:
    """Return the layouts of a scheduled program's buffers, found by buffer name in `layouts` or `more`."""
    names = {**{buffer.name: layout for buffer, layout in layouts.items()}, **(more or {})}
    local_buffers = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
    return {buffer: names[buffer.name] for buffer in (*program.params, *local_buffers) if buffer.name in names}


def lay_out(schedule: Schedule, layouts: Mapping[ir.Buffer, Layout], more: Mapping[str, Layout] | None = None) -> None:
    """Apply the layouts of `layouts_by_name` to a schedule."""
    named_layouts = layouts_by_name(schedule.program, layouts, more)
    if named_layouts:
        schedule.lay_out(*((buffer.name, layout.blocks) for buffer, layout in named_layouts.items()))


def tile_size(extent: int, limit: int) -> int:
    """Tile size for an extent, at most `limit`: the largest divisor if it is more than half of the limit, else the limit, with a
    remainder tile."""
    if extent <= limit:
        return extent
    divisor = max(size for size in range(1, limit + 1) if extent % size == 0)
    return divisor if 2 * divisor > limit else limit


def merge_chains(schedule: Schedule) -> None:
    """Inline element-wise blocks into their readers if that recomputes nothing expensive."""
    for name in [block.name for block in collect_blocks(schedule.program)]:
        block = next(block for block in collect_blocks(schedule.program) if block.name == name)
        if worth_inlining(schedule.program, block):
            schedule.compute_inline(name)


def worth_inlining(program: ir.LoopProgram, block: ir.Block) -> bool:
    """Test whether inlining an element-wise block recomputes nothing expensive: the block is constant, cheap, or has a single
    reader, which reads each element once."""
    if block.init is not None or not isinstance(block.body, ir.Store) or block.body.buffer in program.params:
        return False
    if any(item.kind is not ir.IterKind.SPATIAL for item in block.iters):
        return False
    buffer = block.body.buffer
    other_blocks = [item for item in collect_blocks(program) if item is not block]
    readers = [item for item in other_blocks if any(region.buffer is buffer for region in item.reads)]
    if readers and isinstance(block.body.value, ir.Const):
        return not any(region.buffer is buffer for item in other_blocks for region in item.writes)
    if len(readers) != 1 or any(region.buffer is buffer for item in other_blocks for region in item.writes):
        return False
    reader = readers[0]
    if not isinstance(reader.body, ir.Store):
        return False
    value = reader.body.value
    if isinstance(value, ir.Select) and isinstance(value.condition, ir.Index) and len(_loads(value.otherwise, buffer)) < 2:
        value = value.then  # only one side is evaluated per element
    loads = _loads(value, buffer)
    if len(loads) != 1 or block_size(block) == block_size(reader):
        return len(loads) == 1
    return reader.init is None and (_reads_once(reader, loads[0]) or is_cheap(block.body.value))


def _loads(value: ir.Expr, buffer: ir.Buffer) -> list[ir.Load]:
    return [node for node in ir.walk_exprs(value) if isinstance(node, ir.Load) and node.buffer is buffer]


def _reads_once(reader: ir.Block, load: ir.Load) -> bool:
    """Test whether a load is proved to read each element at most once: the indices contain all variables of the reading block,
    without division or data dependence."""
    variables = frozenset().union(*map(arith.free_vars, load.indices))
    repeats = (arith.FloorDiv, arith.FloorMod, arith.Opaque)
    divided = any(isinstance(part, repeats) for index in load.indices for part in arith.walk(index))
    return not divided and all(item.var in variables or item.extent == arith.ONE for item in reader.iters)


def is_cheap(value: ir.Expr) -> bool:
    """Test whether recomputing a value in each reader is cheaper than storing it: it has at most `CHEAP` operations."""
    nodes = list(ir.walk_exprs(value))
    expensive = (ir.CallMath, ir.CallIntrinsic, ir.Select, ir.Cast)
    slow_ops = ("div", "mod", "sqrt")
    return len(nodes) <= CHEAP and not any(
        isinstance(node, expensive) or (isinstance(node, (ir.Unary, ir.Binary)) and node.op in slow_ops) for node in nodes
    )
