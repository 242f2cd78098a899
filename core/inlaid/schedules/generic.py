"""The schedule of kernels that no other rule knows: element-wise chains merged, outer loops parallel, inner loops vectors."""

from __future__ import annotations

from inlaid import arith
from inlaid.arith import Var
from inlaid.errors import ScheduleError
from inlaid.schedules.borders import SPLIT_BORDERS
from inlaid.schedules.collapse import COLLAPSE
from inlaid.schedules.rule import InputInfo, KernelContext, Offer, Traced
from inlaid.schedules.shape import block_size, blocks_of, loop_extent, merge_chains
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.types import ROW_MAJOR

PARALLEL_WORK = 1 << 15
"""Iterations of a block from which on threads are worth waking."""
PIECE = 256
"""Columns that are reduced together where columns are all there is to run in parallel."""
SHORT = 8
"""Columns below which the sums of windows, or of products, are not worth a pass over them for each element that is summed."""
REPEATS = 8
"""How often an element may be repeated along a row for its copies to be written out."""
CHUNKS = 64
"""Parallel iterations that are enough for any number of threads: more loops are not merged for it."""


class GenericRule:
    """Takes every kernel."""

    name = "generic"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[InputInfo, ...]) -> Offer | None:
        """Offer row-major layouts and the unscheduled program."""
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: _schedule(program, context)))


def _schedule(program: ir.LoopProgram, context: KernelContext) -> Schedule:
    s = Schedule(program)
    merge_chains(s)
    if context.capabilities.vector_bits:
        # Rows of an image are often shorter than the vectors of an iteration; together they are one long row.
        s.apply(COLLAPSE)
    for block in blocks_of(s.program):
        if _sums_rows(block, vectors=context.capabilities.vector_bits > 0):
            _add_row_by_row(s, block)
        else:
            _write_repeats(s, block)
    if context.threads != 1:
        for block in blocks_of(s.program):
            if _iterations(block) >= PARALLEL_WORK:
                _parallel(s, block)
    _split_choices(s)
    return s


def _split_choices(s: Schedule) -> None:
    """Copy rows by runs where elements are chosen by where in a row they are."""
    for block in blocks_of(s.program):
        loops = s.loops(block.name)
        if loops and isinstance(block.body, ir.Store) and isinstance(block.body.value, ir.Select):
            s.apply(SPLIT_BORDERS, block.name, loops[-1])


def _sums_rows(block: ir.Block, vectors: bool) -> bool:
    """Whether a reduction walks along rows with its last spatial variable, and across them with what it reduces over; on targets
    with vectors also whether it does so through windows or products, each element of which counts for a whole row."""
    if block.init is None or not isinstance(block.body, ir.Store) or not block.body.indices:
        return False
    item = block.iters[len(block.body.indices) - 1]
    if block.body.indices[-1] != item.var:
        return False
    reduced = {item.var for item in block.iters if item.kind is ir.IterKind.REDUCTION}
    loads = [
        n for n in ir.walk_exprs(block.body.value) if isinstance(n, ir.Load) and n.buffer is not block.body.buffer and n.indices
    ]
    if loads and all(load.indices[-1] == item.var and reduced & load.free_vars() for load in loads):
        return True
    if not vectors or (isinstance(item.extent, arith.Const) and item.extent.value < SHORT):
        return False
    along = [load for load in loads if item.var in load.free_vars()]
    return all(_steps(load, item.var) for load in along) and any(reduced & load.free_vars() for load in along)


def _steps(load: ir.Load, column: Var) -> bool:
    """Whether a load goes along a row, element by element or by every second."""
    parts = arith.affine(load.indices[-1], column)
    within = parts is not None and parts[0] in (arith.ONE, arith.Const(2)) and column not in arith.free_vars(parts[1])
    return within and not any(column in arith.free_vars(index) for index in load.indices[:-1])


def _add_row_by_row(s: Schedule, block: ir.Block) -> None:
    """
    for column: for rows: acc[column] += row[column]    becomes    for rows: for column: acc[column] += row[column]

    whose inner loop is one of vectors. Where there is nothing else to run in parallel, columns are cut into pieces.
    """
    # Dimensions of one element have no loop.
    bound = [(v, item.kind) for v, item in zip(block.bindings, block.iters, strict=True) if v != arith.ZERO]
    spatial = [v for v, kind in bound if kind is ir.IterKind.SPATIAL and isinstance(v, Var)]
    rows = [v for v, kind in bound if kind is ir.IterKind.REDUCTION and isinstance(v, Var)]
    known = set(s.loops(block.name)).issuperset(spatial + rows) and len(spatial) + len(rows) == len(bound)
    if not spatial or not rows or not known:
        return
    column = spatial[-1]
    if len(spatial) == 1:
        _, column = s.split(column, (None, PIECE))
    s.reorder(*rows, column)
    s.decompose_reduction(block.name, rows[0])


def _write_repeats(s: Schedule, block: ir.Block) -> None:
    """
    for x in 3 * n: out[x] = row[x // 3]    becomes    for x in n: out[3 * x] = row[x]; out[3 * x + 1] = row[x]; ...
    for x in 3 * n: out[x] = row[x % n]     becomes    for k in 3: for x in n: out[n * k + x] = row[x]

    which divides nothing, and whose stores fill each other's gaps in vectors.
    """
    loops = s.loops(block.name)
    if not loops or not block.iters or block.bindings[-1] is not loops[-1] or not isinstance(block.body, ir.Store):
        return
    column = block.iters[-1].var
    indices = [index for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load) for index in node.indices]
    divisions = {
        (type(part), part.operands[1].value)
        for index in indices
        for part in arith.walk(index)
        if isinstance(part, (arith.FloorDiv, arith.FloorMod))
        and part.operands[0] is column
        and isinstance(part.operands[1], arith.Const)
    }
    if len(divisions) != 1:
        return
    ((kind, count),) = divisions
    if arith.simplify(block.iters[-1].extent % count) != arith.ZERO:
        return
    if kind is arith.FloorMod:
        s.split(loops[-1], (None, count))
    elif count in range(2, REPEATS + 1):
        s.unroll(s.split(loops[-1], (None, count))[1])


def _iterations(block: ir.Block) -> int:
    """How often a block is expected to run; often enough where its loops end at one another's variables, or at data."""
    size = block_size(block)
    known = not arith.reads_data(size) and all(isinstance(var, arith.SizeVar) for var in arith.free_vars(size))
    return arith.size_hint(arith.unwrap(size)) if known else PARALLEL_WORK


def _parallel(s: Schedule, block: ir.Block) -> None:
    """Run the outer spatial loops of a block in parallel, as many of them as make enough chunks."""
    loops = s.loops(block.name)
    spatial = {binding for item, binding in zip(block.iters, block.bindings, strict=True) if item.kind is ir.IterKind.SPATIAL}
    chosen: list[Var] = []
    chunks = 1
    for loop in loops:
        if loop not in spatial or chunks >= CHUNKS:
            break
        extent = loop_extent(s, loop)
        chosen.append(loop)
        chunks *= extent.value if isinstance(extent, arith.Const) else CHUNKS
    if not chosen or chunks == 1:
        return
    try:
        s.parallel(s.fuse(*chosen) if len(chosen) > 1 else chosen[0])
    except ScheduleError:
        # The block's iterations depend on one another, as those of a loop program of its own may.
        return
