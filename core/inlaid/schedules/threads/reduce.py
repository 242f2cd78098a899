"""Reductions of any shape: a thread for each element of the result, which works its reductions out in registers.

Windows are such kernels, pooling and depthwise convolution, and samples of images.
"""

from __future__ import annotations

from math import prod

from inlaid import arith
from inlaid.arith import Var
from inlaid.errors import ScheduleError
from inlaid.schedules.collapse import COLLAPSE, WITHOUT_EMPTY, without_empty
from inlaid.schedules.rule import Given, KernelContext, Offer, Traced
from inlaid.schedules.shape import blocks_of, is_cheap, loop_extent, worth_inlining
from inlaid.schedules.threads.elementwise import bind_vectors, lanes_of
from inlaid.schedules.threads.grid import BLOCKS, THREADS, decide_block, is_elementwise, threads_of
from inlaid.tensor import ir
from inlaid.tensor.primitives.place import block_path
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.paths import loops_around
from inlaid.types import ROW_MAJOR

UNROLLED = 32
"""Steps of reductions that are written out: a window's, whose addresses then differ by constants."""


class ReduceRule:
    """Kernels of several reductions, each read where it is written, and element-wise blocks before, between and after them."""

    name = "reduce"

    def offer(self, program: ir.LoopProgram, context: KernelContext, given: tuple[Given, ...]) -> Offer | None:
        """Declines what reads several results of a reduction for one of its own, and whatever a primitive refuses."""
        # Of a reduction that may be empty what that gives is left to its init.
        if program.defines or without_empty(program) is None:
            return None
        if not any(block.init is not None for block in blocks_of(program)):
            return None
        threads = decide_block(context)
        try:
            scheduled = _schedule(program, threads.number, context)
        except ScheduleError:
            return None
        return Offer((ROW_MAJOR,) * len(program.params), Traced(lambda: scheduled), decisions=(threads,))


def _schedule(program: ir.LoopProgram, threads: int, context: KernelContext) -> Schedule:
    """
    for elements / 256, blocks: for 256 elements, threads:
        for each reduction: own = identity; for k: own = combine(own, x[element, k])
        out[element] = after(own)
    """
    s = Schedule(program)
    s.apply(WITHOUT_EMPTY)
    for name in [block.name for block in blocks_of(s.program)][:-1]:
        block = _block(s, name)
        if not isinstance(block.body, ir.Store):
            raise ScheduleError(f"block {name} is a loop program of its own")
        if (
            is_elementwise(block)
            and _written(block) not in program.params
            and (worth_inlining(s.program, block) or _is_cheap(block))
        ):
            s.compute_inline(name)
    s.apply(COLLAPSE)
    late = _late(s)
    for final in [block.name for block in blocks_of(s.program) if _written(block) in s.program.params]:
        reduces = _block(s, final).init is not None
        stored = s.cache_write(final, "register") if reduces else final
        own = [name for name in _needed(s, stored) if name in late]
        if own:
            _bind_element(s, stored, own, threads)
            late = [name for name in late if name not in own]
    if late:
        raise ScheduleError(f"block {late[0]} is read for several results")
    for block in blocks_of(s.program):
        loops = [stmt for stmt in loops_around(block_path(s.program, block.name)) if stmt.kind is ir.ForKind.THREAD]
        if not loops:
            bind_vectors(s, block, threads, lanes=lanes_of(block, threads_of(context).vector_bytes))
    return s


def _bind_element(s: Schedule, final: str, own: list[str], threads: int) -> None:
    """Give each element of a block a thread, which works out its own reductions."""
    loops = s.loops(final)
    if not loops:
        raise ScheduleError(f"block {final} has one element")
    element = s.fuse(*loops) if len(loops) > 1 else loops[0]
    extent = loop_extent(s, element)
    count = max(min(threads, extent.value), 1) if isinstance(extent, arith.Const) else threads
    if any(not arith.prove(arith.compare("==", _results(_block(s, name)), extent)) for name in own):
        raise ScheduleError(f"several elements of block {final} are worked out from one of {', '.join(own)}")
    outer, element = s.split(element, (None, count))
    for name in reversed(own):
        s.compute_at(name, element)
        _unroll(s, name, element)
        s.set_scope(_written(_block(s, name)).name, "register")
    s.bind(outer, BLOCKS)
    s.bind(element, THREADS)


def _results(block: ir.Block) -> arith.Expr:
    """How many elements a block works out."""
    spatial = (arith.unwrap(item.extent) for item in block.iters if item.kind is ir.IterKind.SPATIAL)
    return arith.simplify(arith.wrap(arith.product(tuple(spatial))))


def _late(s: Schedule) -> list[str]:
    """The reductions, and what is worked out from them on the way to results."""
    found: list[str] = []
    made: set[ir.Buffer] = set()
    for block in blocks_of(s.program):
        result = _written(block) in s.program.params
        if block.init is not None or (not result and any(region.buffer in made for region in block.reads)):
            found.append(block.name)
            if not result:
                made.add(_written(block))
        elif not is_elementwise(block):
            raise ScheduleError(f"block {block.name} is a loop program of its own")
    return found


def _needed(s: Schedule, final: str) -> list[str]:
    """The blocks whose results a block reads, directly or not, in order; results of the kernel are read as they are."""
    blocks = blocks_of(s.program)
    place = next(place for place, block in enumerate(blocks) if block.name == final)
    wanted = {region.buffer for region in blocks[place].reads}
    found: list[str] = []
    for block in reversed(blocks[:place]):
        if _written(block) in wanted and _written(block) not in s.program.params:
            found.append(block.name)
            wanted.update(region.buffer for region in block.reads)
    return found[::-1]


def _unroll(s: Schedule, name: str, element: Var) -> None:
    """Write a short reduction out. Raises `ScheduleError` where a thread would work out several elements."""
    loops = list(s.loops(name))
    inner = loops[loops.index(element) + 1 :]
    block = _block(s, name)
    kinds = zip(block.iters, block.bindings, strict=True)
    reducing = {binding for item, binding in kinds if item.kind is ir.IterKind.REDUCTION}
    if not reducing.issuperset(inner):
        raise ScheduleError(f"several elements of what block {name} computes are read for one")
    extents = [loop_extent(s, loop) for loop in inner]
    if (
        all(isinstance(extent, arith.Const) for extent in extents)
        and prod(arith.evaluate(extent, {}) for extent in extents) <= UNROLLED
    ):
        for loop in inner:
            s.unroll(loop)


def _is_cheap(block: ir.Block) -> bool:
    """Whether each reader had better work an element out again: `is_cheap`, and choices by indices, as padding is."""
    assert isinstance(block.body, ir.Store)
    value = block.body.value
    while isinstance(value, ir.Select) and isinstance(value.condition, ir.Index) and isinstance(value.otherwise, ir.Const):
        value = value.then
    return is_cheap(value)


def _block(s: Schedule, name: str) -> ir.Block:
    return next(block for block in blocks_of(s.program) if block.name == name)


def _written(block: ir.Block) -> ir.Buffer:
    assert isinstance(block.body, ir.Store)
    return block.body.buffer
