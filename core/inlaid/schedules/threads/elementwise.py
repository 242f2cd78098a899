"""Element-wise kernels: each thread loads and stores vectors of contiguous elements."""

from __future__ import annotations

from inlaid.schedules.collapse import COLLAPSE, accesses
from inlaid.schedules.shape import merge_chains
from inlaid.schedules.threads.grid import bind_flat, decide_block, decide_pieces, device_threads, expected, is_elementwise
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import block_size, collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import ROW_MAJOR


class ElementwiseRule:
    """Schedules fused chains of element-wise operators, casts, selects, broadcasts and gathers."""

    name = "elementwise"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a vectorized schedule. Declines reductions, opaque loop programs and kernels that define sizes."""
        if program.defines:
            return None
        s = Schedule(program)
        merge_chains(s)
        blocks = collect_blocks(s.program)
        if not blocks or not all(map(is_elementwise, blocks)):
            return None
        s.apply(COLLAPSE)
        lanes = {block.name: block_lanes(block, device_threads(context).vector_bytes) for block in collect_blocks(s.program)}
        work = max(expected(block_size(block)) // lanes[block.name] for block in collect_blocks(s.program))
        widest = max(lanes.values())
        vector = context.decide("lanes", [1 << step for step in range(widest.bit_length())], widest)
        pieces, threads = decide_pieces(context, work), decide_block(context)

        def schedule() -> Schedule:
            scheduled = s.copy()
            for block in collect_blocks(scheduled.program):
                bind_vectors(scheduled, block, threads.number, pieces.number, min(lanes[block.name], vector.number))
            return scheduled

        return Offer((ROW_MAJOR,) * len(program.params), Traced(schedule), decisions=(vector, pieces, threads))


def bind_vectors(s: Schedule, block: ir.Block, threads: int, pieces: int = 1, lanes: int = 1) -> None:
    """Vectorize an element-wise block and bind it to the grid:

    for i: for j: out[i, j] = ...
    becomes
    for b, blocks: for t, threads: for piece: for lane in lanes, vectorized: out[i, j + lane] = ...

    A block of one element has no loops and stays unbound.
    """
    loops = list(s.loops(block.name))
    if not loops:
        return
    if lanes > 1:
        loops[-1], lane = s.split(loops[-1], (None, lanes))
        s.vectorize(lane)
    bind_flat(s, s.fuse(*loops) if len(loops) > 1 else loops[0], threads, pieces)


def block_lanes(block: ir.Block, vector_bytes: int) -> int:
    """Choose the vector lanes for the innermost iteration variable of a block: a power of two.

    The widest access has at most `vector_bytes`, and every access starts at a multiple of the lanes. 1 if an access is strided, or
    a select depends on the variable. A reduction keeps one partial result per lane."""
    if not block.iters or not isinstance(block.body, ir.Store):
        return 1
    item, store = block.iters[-1], block.body
    if item.kind is ir.IterKind.SPATIAL and (not store.indices or store.indices[-1] is not item.var):
        return 1
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in block.iters})
    starts: list[arith.Linear] = []
    widest = 1
    for buffer, indices in accesses(block):
        if not any(item.var in arith.free_vars(index) for index in indices):
            continue
        start = _start(analyzer, buffer, indices, item.var)
        if start is None:
            return 1
        starts.append(start)
        widest = max(widest, buffer.dtype.bytes)
    if not starts or any(_selects_by(node, item.var) for node in ir.walk_exprs(store.value)):
        return 1
    lanes = 1 << max((vector_bytes // widest).bit_length() - 1, 0)
    if isinstance(item.extent, arith.Const):
        lanes = min(lanes, 1 << max(item.extent.value.bit_length() - 1, 0))
    while lanes > 1 and not all(_aligned(lanes, start) for start in starts):
        lanes //= 2
    return lanes


def _start(analyzer: arith.Analyzer, buffer: ir.Buffer, indices: tuple[arith.Expr, ...], var: Var) -> arith.Linear | None:
    """Return the flat offset of a unit-stride access at var = 0; None for any other stride."""
    last = arith.affine(indices[-1], var)
    if last is None or last[0] != arith.ONE or any(var in arith.free_vars(index) for index in (last[1], *indices[:-1])):
        return None
    offset: arith.Expr = arith.ZERO
    for index, dim in zip((*indices[:-1], last[1]), buffer.shape, strict=True):
        offset = offset * dim + index
    return analyzer.linear(offset)


def _aligned(lanes: int, start: arith.Linear) -> bool:
    return all(count % lanes == 0 for count in (*start.terms.values(), start.constant))


def _selects_by(node: ir.Expr, var: Var) -> bool:
    """Test whether a node is a select whose condition depends on a variable."""
    return isinstance(node, ir.Select) and isinstance(node.condition, ir.Index) and var in arith.free_vars(node.condition.index)
