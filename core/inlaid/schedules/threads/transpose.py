"""Transposes staged in shared memory, so that both loads and stores are coalesced."""

from __future__ import annotations

from dataclasses import dataclass

from inlaid.schedules.collapse import COLLAPSE
from inlaid.schedules.shape import loop_extent, merge_chains
from inlaid.schedules.threads.grid import BLOCKS, THREADS, device_threads, expected, is_elementwise, shared_scope
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR

SIDES = (8, 16, 32)
"""Tile sides in elements: 32 of float32 are 128 bytes, one memory transaction."""
SHORTEST = 4
"""Minimum extent of an axis for staging. For shorter axes, caches serve the strided accesses."""


class ThreadTransposeRule:
    """Schedules transposes: one element-wise block whose loads and store are contiguous along different axes."""

    name = "transpose"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines targets without shared memory, and kernels that a schedule primitive rejects."""
        scope = shared_scope(context)
        if scope is None or program.defines:
            return None
        s = Schedule(program)
        merge_chains(s)
        if not all(map(is_elementwise, collect_blocks(s.program))):
            return None
        s.apply(COLLAPSE)
        transpose = _match(s.program)
        if transpose is None:
            return None
        alignment_bytes = scope.alignment * len(transpose.buffers)
        sides = [side for side in SIDES if side * (side + 1) * transpose.bytes + alignment_bytes <= scope.capacity]
        if not sides:
            return None
        subgroup_sides = [side for side in sides if side <= max(device_threads(context).subgroup, SIDES[0])]
        side = context.decide("side", sides, subgroup_sides[-1])
        try:
            scheduled = _schedule(s, transpose, side.number, scope.name, device_threads(context).block)
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: scheduled), decisions=(side,))


@dataclass(frozen=True)
class _Transpose:
    """A block that transposes. `along` is the position of the iteration variable that is contiguous in its loads; `buffers` are the
    loaded buffers, each with the dimension that is contiguous in the store; `bytes` is the sum of their element sizes."""

    block: str
    along: int
    buffers: tuple[tuple[str, int], ...]
    bytes: int


def _match(program: ir.LoopProgram) -> _Transpose | None:
    """Match a transpose; None if no load is transposed, or loads are contiguous along different axes."""
    (block, *other_blocks) = collect_blocks(program)
    if other_blocks or not isinstance(block.body, ir.Store):
        return None
    variables: dict[arith.Expr, int] = {item.var: axis for axis, item in enumerate(block.iters)}
    store = block.body
    if not store.indices or store.indices[-1] is not block.iters[-1].var or not _is_long(block.iters[-1]):
        return None
    store_var = block.iters[-1].var
    load_indices: dict[ir.Buffer, tuple[arith.Expr, ...]] = {}
    contiguous_axes: set[int] = set()
    for node in ir.walk_exprs(store.value):
        if not isinstance(node, ir.Load) or not node.indices or store_var not in node.free_vars():
            continue
        last = node.indices[-1]
        if last is store_var:
            continue
        is_permutation = all(isinstance(index, arith.Const) or index in variables for index in node.indices)
        if not is_permutation or last not in variables or load_indices.setdefault(node.buffer, node.indices) != node.indices:
            return None
        contiguous_axes.add(variables[last])
    if len(contiguous_axes) != 1:
        return None
    (axis,) = contiguous_axes
    if not _is_long(block.iters[axis]):
        return None
    reread_buffers = {
        node.buffer
        for node in ir.walk_exprs(store.value)
        if isinstance(node, ir.Load) and node.indices != load_indices.get(node.buffer)
    }
    buffers = tuple(
        (buffer.name, indices.index(store_var)) for buffer, indices in load_indices.items() if buffer not in reread_buffers
    )
    size = sum(buffer.dtype.bytes for buffer in load_indices)
    return _Transpose(block.name, axis, buffers, size) if len(buffers) == len(load_indices) else None


def _is_long(item: ir.IterVar) -> bool:
    return expected(item.extent) >= SHORTEST


def _schedule(s: Schedule, transpose: _Transpose, side: int, scope: str, threads: int) -> Schedule:
    """Stage a tile in shared memory:

    for i: for j: out[i, j] = f(x[j, i])
    becomes
    for tiles, blocks:
        for t, threads: for k: x_shared[j, i] = x[j, i]          # neighbors along i
        for t, threads: for k: out[i, j] = f(x_shared[j, i])     # neighbors along j

    Rows of a tile are padded by one element, so that column accesses have no bank conflicts.
    """
    loops = list(s.loops(transpose.block))
    (block,) = collect_blocks(s.program)
    # Iteration variables of extent 1 may lack loops.
    load_loop, store_loop = (loop for dim in (transpose.along, -1) for loop in loops if loop is block.bindings[dim])
    batch_loops = [loop for loop in loops if loop not in (load_loop, store_loop)]
    outer, inner = zip(*(s.split(loop, (None, _tile_side(s, loop, side))) for loop in (load_loop, store_loop)), strict=True)
    s.reorder(*batch_loops, *outer, *inner)
    group = s.fuse(*batch_loops, *outer)
    for name, axis in transpose.buffers:
        copy = s.cache_read(transpose.block, name, scope)
        s.compute_at(copy, group)
        s.storage_align(copy, axis, side, 1)
        _bind_tile(s, copy, group, threads)
    _bind_tile(s, transpose.block, group, threads)
    s.bind(group, BLOCKS)
    return s


def _tile_side(s: Schedule, loop: Var, side: int) -> int:
    """Choose the tile extent along a loop: the loop extent rounded up to a power of two, at most `side`."""
    extent = loop_extent(s, loop)
    return min(side, 1 << (extent.value - 1).bit_length()) if isinstance(extent, arith.Const) else side


def _bind_tile(s: Schedule, block: str, group: Var, threads: int) -> None:
    """Bind the elements of a tile to threads, adjacent elements to adjacent threads."""
    loops = list(s.loops(block))
    inner = loops[loops.index(group) + 1 :]
    if len(inner) != 2:
        raise ScheduleError(f"block {block} must have 2 loops inside the grid, found {len(inner)}")
    tile = s.fuse(*inner)
    extent = loop_extent(s, tile)
    count = min(threads, extent.value) if isinstance(extent, arith.Const) else threads
    piece, thread = s.split(tile, (None, count))
    s.reorder(thread, piece)
    s.bind(thread, THREADS)
