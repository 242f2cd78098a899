"""Schedules of kernels. Virtual threads compute tiles of accumulators. Data and weights are staged in INP and WGT, and products
become GEMM intrinsics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from inlaid.passes.manager import RunPasses, UnitPass, run_passes
from inlaid.tensor import ir
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.transform.compact import compact_buffers
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid.tensor.transform.paths import replace_allocs
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid.tensor.transform.vthread import lower_vthreads
from inlaid_runtime.arith import Var
from inlaid_vta_fpga.compiler.intrinsics import ACC, GEMM, INP, RESET, WGT, intrinsics
from inlaid_vta_fpga.compiler.kernels import Kernel, Source


@dataclass(frozen=True)
class TileSizes:
    """Sizes of a tile. channels, rows, columns: output blocks, rows and columns of a tile, which divide the sizes of the layer.
    steps: number of parts in which input blocks are read. chunks: number of parts of the stages before and after the main product,
    so that stores overlap with compute. threads: virtual threads, interleaved along `axis` (1: output blocks, 2: rows, 3:
    columns)."""

    channels: int
    rows: int
    columns: int
    steps: int = 1
    chunks: int = 1
    axis: int = 1
    threads: int = 1


def kernel_passes(chain: tuple[str, ...]) -> tuple[UnitPass[ir.LoopProgram], ...]:
    """List the passes that lower a scheduled kernel with a chain of stages to loops, for `stream.lower_region`."""
    return (
        UnitPass("accumulate_in_place", partial(accumulate_in_place, chain=chain)),
        UnitPass("flatten_blocks", flatten_blocks),
        UnitPass("simplify_nests", simplify_program),
        UnitPass("compact_buffers", compact_buffers),
        UnitPass("lower_vthreads", lower_vthreads),
    )


def schedule_kernel(kernel: Kernel, tile: TileSizes, block: int, run: RunPasses[ir.LoopProgram] = run_passes) -> ir.LoopProgram:
    """Schedule and lower a kernel: tile it, stage its operands, tensorize GEMM, accumulate in place, interleave virtual threads.
    `run`: see `CompileContext.run_passes`."""
    s = Schedule(kernel.program, intrinsics(block))
    main = kernel.main
    for name in kernel.chain:
        s.set_scope(name, ACC)
    inner, step, thread = _tiled(s, kernel, tile)
    _epilogue(s, kernel, inner, 1 if kernel.layer.wide else tile.chunks)
    position = kernel.chain.index(main)
    for name in reversed(kernel.chain[:position]):
        s.compute_at(name, inner)
    by_name = {gemm.block: gemm for gemm in kernel.gemms}
    for name in kernel.chain:
        if name in by_name:
            _staged(s, by_name[name], inner, step if name == main else None, name == kernel.chain[0], tile.chunks)
    if thread is not None:
        # `simplify_program` removes a loop of one iteration, and the annotation with it.
        s.vthread(thread, step if tile.steps > 1 else thread)
    return run(kernel_passes(kernel.chain), s.program)


def _tiled(s: Schedule, kernel: Kernel, tile: TileSizes) -> tuple[Var, Var, Var | None]:
    """Split and reorder the loops of the main product. Returns the innermost loop over tiles, the loop over steps of input blocks,
    and the loop over virtual threads (None without threads)."""
    n, c, i, j, o, *reduced = s.loops(kernel.main)
    sizes = (tile.channels, tile.rows, tile.columns)
    outer, inner, thread = [], [], None
    for axis, (loop, size) in enumerate(zip((c, i, j), sizes, strict=True), 1):
        if axis == tile.axis and tile.threads > 1:
            out, thread, within = s.split(loop, (None, tile.threads, size))
        else:
            out, within = s.split(loop, (None, size))
        outer.append(out)
        inner.append(within)
    k = reduced[-1]
    if len(reduced) == 1:
        step, rest = s.split(k, (1, None))  # an element-wise product has one step
        s.reorder(n, *outer, *((thread,) if thread else ()), step, *inner, o, rest)
    else:
        ci, ky, kx, _ = reduced
        step, within = s.split(ci, (tile.steps, None))
        s.reorder(n, *outer, *((thread,) if thread else ()), step, inner[0], inner[1], within, ky, kx, inner[2], o, k)
    return thread or outer[-1], step, thread


def _epilogue(s: Schedule, kernel: Kernel, inner: Var, chunks: int) -> None:
    """Move the stages after the main product, and the stores, into the tile loop, and split them into chunks."""
    later = kernel.chain[kernel.chain.index(kernel.main) :]
    attach_loop = inner
    for number, name in enumerate(later):
        # A consumer is placed directly behind its producer, so the store of a stage, placed second, precedes the next stage.
        for block in (*later[number + 1 : number + 2], *(store for store, producer in kernel.stores if producer == name)):
            s.reverse_compute_at(block, attach_loop)
            if attach_loop is inner and chunks > 1:
                attach_loop, _ = s.split(_after(s, block, inner), (chunks, None))


def _staged(s: Schedule, gemm: Source, inner: Var, step: Var | None, first: bool, chunks: int) -> None:
    """Decompose the initialization of a product, stage its operands, and tensorize it. The `first` stage of a tile starts with a
    reset per chunk. Each reset waits only for the store of the same chunk."""
    if gemm.parts > 1:
        o, part, lane = s.loops(gemm.block)[-3:]
        s.reorder(part, o, lane)
    attach_loop = inner if step is None else step
    start = step or _after(s, gemm.block, inner)
    if first and chunks > 1:
        _, start = s.split(start, (chunks, None))
    init = s.decompose_reduction(gemm.block, start)
    if first:
        s.tensorize(s.loops(init)[-1], RESET)
    if gemm.staged:
        s.set_scope(gemm.data, INP)
        s.compute_at(gemm.data, attach_loop)
    elif gemm.data != "ones":
        s.compute_at(s.cache_read(gemm.block, gemm.data, INP), attach_loop)
    else:
        s.cache_read(gemm.block, gemm.data, INP)
    s.compute_at(s.cache_read(gemm.block, gemm.weights, WGT), attach_loop)
    s.tensorize(s.loops(gemm.block)[-2], GEMM)


def _after(s: Schedule, block: str, loop: Var) -> Var:
    """Return the loop around `block` that is directly inside `loop`."""
    loops = s.loops(block)
    return loops[loops.index(loop) + 1]


def accumulate_in_place(program: ir.LoopProgram, chain: tuple[str, ...]) -> ir.LoopProgram:
    """Merge the buffers of a chain of stages into one, and remove copies of an element to itself. Precondition: a stage that writes
    an element reads only this element of its predecessor, and no later statement reads the predecessor."""
    buffers = {stmt.buffer.name: stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)}
    accumulator = buffers[chain[0]]
    replacements = {buffers[name]: accumulator for name in chain[1:]}

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if isinstance(stmt, ir.Alloc) and stmt.buffer in buffers.values() and stmt.buffer.name in chain:
            return stmt.body
        if isinstance(stmt, ir.Store) and isinstance(stmt.value, ir.Load) and stmt.value.buffer is stmt.buffer:
            return ir.Seq(())
        return None

    bare = Rewriter(stmt=change).stmt(program.body)
    renamed = Rewriter(buffers=replacements, stmt=change).stmt(bare)
    return replace_allocs(replace(program, body=ir.Alloc(accumulator, renamed)), (accumulator,))
