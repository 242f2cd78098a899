"""Reductions of any shape: one thread per output element reduces in registers.

Covers sliding windows (pooling, depthwise convolution) and image sampling.
"""

from __future__ import annotations

from math import prod

from inlaid.schedules.collapse import COLLAPSE, WITHOUT_EMPTY, without_empty
from inlaid.schedules.shape import is_cheap, loop_extent, worth_inlining
from inlaid.schedules.threads.elementwise import bind_vectors, block_lanes
from inlaid.schedules.threads.grid import BLOCKS, THREADS, decide_block, device_threads, is_elementwise
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.primitives.lookup import block_path
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, Traced
from inlaid.tensor.transform.paths import loops_around
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR

UNROLLED = 32
"""Maximum iterations of a reduction, such as over a window, that is unrolled, so that addresses differ by constants."""


class ReduceRule:
    """Schedules kernels of reductions that are read element-wise, with element-wise blocks before, between and after them."""

    name = "reduce"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> Offer | None:
        """Offer a schedule. Declines kernels whose outputs read several elements of a reduction, or that a primitive rejects."""
        # The result of an empty reduction is its init.
        if program.defines or without_empty(program) is None:
            return None
        if not any(block.init is not None for block in collect_blocks(program)):
            return None
        threads = decide_block(context)
        try:
            scheduled = _schedule(program, threads.number, context)
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: scheduled), decisions=(threads,))


def _schedule(program: ir.LoopProgram, threads: int, context: KernelContext) -> Schedule:
    """Build the nest:

    for elements / 256, blocks: for 256 elements, threads:
        for each reduction: own = identity; for k: own = combine(own, x[element, k])
        out[element] = after(own)
    """
    s = Schedule(program)
    s.apply(WITHOUT_EMPTY)
    for name in [block.name for block in collect_blocks(s.program)][:-1]:
        block = _block(s, name)
        if not isinstance(block.body, ir.Store):
            raise ScheduleError(f"block {name} must be a store, found an opaque loop program")
        if (
            is_elementwise(block)
            and _written(block) not in program.params
            and (worth_inlining(s.program, block) or _is_cheap(block))
        ):
            s.compute_inline(name)
    s.apply(COLLAPSE)
    unbound_blocks = _reduced_blocks(s)
    for final in [block.name for block in collect_blocks(s.program) if _written(block) in s.program.params]:
        is_reduction = _block(s, final).init is not None
        store_block = s.cache_write(final, "register") if is_reduction else final
        fused_blocks = [name for name in _producers(s, store_block) if name in unbound_blocks]
        if fused_blocks:
            _bind_element(s, store_block, fused_blocks, threads)
            unbound_blocks = [name for name in unbound_blocks if name not in fused_blocks]
    if unbound_blocks:
        raise ScheduleError(f"block {unbound_blocks[0]} must feed one output, found several")
    for block in collect_blocks(s.program):
        loops = [stmt for stmt in loops_around(block_path(s.program, block.name)) if stmt.kind is ir.ForKind.THREAD]
        if not loops:
            bind_vectors(s, block, threads, lanes=block_lanes(block, device_threads(context).vector_bytes))
    return s


def _bind_element(s: Schedule, final: str, producers: list[str], threads: int) -> None:
    """Bind each element of a block to a thread, and compute the reductions that it reads inside that thread."""
    loops = s.loops(final)
    if not loops:
        raise ScheduleError(f"block {final} must have a loop to bind, found a single element")
    element = s.fuse(*loops) if len(loops) > 1 else loops[0]
    extent = loop_extent(s, element)
    count = max(min(threads, extent.value), 1) if isinstance(extent, arith.Const) else threads
    if any(not arith.prove(arith.compare("==", _elements(_block(s, name)), extent)) for name in producers):
        raise ScheduleError(f"blocks {', '.join(producers)} must have as many elements as block {final}")
    outer, element = s.split(element, (None, count))
    for name in reversed(producers):
        s.compute_at(name, element)
        _unroll(s, name, element)
        s.set_scope(_written(_block(s, name)).name, "register")
    s.bind(outer, BLOCKS)
    s.bind(element, THREADS)


def _elements(block: ir.Block) -> arith.Expr:
    """Return the number of elements that a block stores."""
    spatial = (arith.unwrap(item.extent) for item in block.iters if item.kind is ir.IterKind.SPATIAL)
    return arith.simplify(arith.wrap(arith.product(tuple(spatial))))


def _reduced_blocks(s: Schedule) -> list[str]:
    """Return the reductions, and the element-wise blocks between reductions and outputs."""
    names: list[str] = []
    reduced_buffers: set[ir.Buffer] = set()
    for block in collect_blocks(s.program):
        is_output = _written(block) in s.program.params
        if block.init is not None or (not is_output and any(region.buffer in reduced_buffers for region in block.reads)):
            names.append(block.name)
            if not is_output:
                reduced_buffers.add(_written(block))
        elif not is_elementwise(block):
            raise ScheduleError(f"block {block.name} must be element-wise or a reduction, found an opaque loop program")
    return names


def _producers(s: Schedule, final: str) -> list[str]:
    """Return the transitive producers of a block in program order, except producers that write outputs."""
    blocks = collect_blocks(s.program)
    position = next(position for position, block in enumerate(blocks) if block.name == final)
    buffers = {region.buffer for region in blocks[position].reads}
    names: list[str] = []
    for block in reversed(blocks[:position]):
        if _written(block) in buffers and _written(block) not in s.program.params:
            names.append(block.name)
            buffers.update(region.buffer for region in block.reads)
    return names[::-1]


def _unroll(s: Schedule, name: str, element: Var) -> None:
    """Unroll a short reduction. Raises `ScheduleError` if a thread would compute several elements of it."""
    loops = list(s.loops(name))
    inner = loops[loops.index(element) + 1 :]
    block = _block(s, name)
    kinds = zip(block.iters, block.bindings, strict=True)
    reducing = {binding for item, binding in kinds if item.kind is ir.IterKind.REDUCTION}
    if not reducing.issuperset(inner):
        raise ScheduleError(f"expected one element of block {name} per thread, found a spatial loop inside the thread")
    extents = [loop_extent(s, loop) for loop in inner]
    if (
        all(isinstance(extent, arith.Const) for extent in extents)
        and prod(arith.evaluate(extent, {}) for extent in extents) <= UNROLLED
    ):
        for loop in inner:
            s.unroll(loop)


def _is_cheap(block: ir.Block) -> bool:
    """Test whether a block is cheap to recompute in each reader (`is_cheap`), ignoring selects by index such as padding."""
    assert isinstance(block.body, ir.Store)
    value = block.body.value
    while isinstance(value, ir.Select) and isinstance(value.condition, ir.Index) and isinstance(value.otherwise, ir.Const):
        value = value.then
    return is_cheap(value)


def _block(s: Schedule, name: str) -> ir.Block:
    return next(block for block in collect_blocks(s.program) if block.name == name)


def _written(block: ir.Block) -> ir.Buffer:
    assert isinstance(block.body, ir.Store)
    return block.body.buffer
